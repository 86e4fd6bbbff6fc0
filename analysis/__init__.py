"""Analysis of the stored results, shared by the command line and the dashboard."""
