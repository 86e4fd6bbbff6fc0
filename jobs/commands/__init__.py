"""The verbs of the command line, related ones in one file."""
