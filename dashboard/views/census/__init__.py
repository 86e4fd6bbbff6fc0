"""The page of the code census."""
