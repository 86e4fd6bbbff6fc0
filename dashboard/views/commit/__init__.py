"""The page of a commit."""
