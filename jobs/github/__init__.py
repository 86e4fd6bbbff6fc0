"""GitHub: comments, issues, what its jobs tell."""
