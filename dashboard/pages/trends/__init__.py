"""The trends page."""
