"""The regressions page."""
