"""Metrics of a measurement as one packed value."""
