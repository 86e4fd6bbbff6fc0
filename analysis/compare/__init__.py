"""Comparison of two sides: one table of cells with values, changes and verdicts."""
