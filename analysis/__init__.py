"""What the stored results say, asked once for the command line and the dashboard alike."""
