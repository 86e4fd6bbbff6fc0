"""Checks, repairs and removal."""
