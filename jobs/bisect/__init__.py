"""Find the first bad torch build or commit."""
