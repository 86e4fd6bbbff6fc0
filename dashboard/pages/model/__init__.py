"""The model page."""
