"""Finds the first bad torch build."""
