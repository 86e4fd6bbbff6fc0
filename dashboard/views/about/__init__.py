"""The page about the numbers."""
