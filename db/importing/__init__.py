"""Imports files of other programs as bundles: PyTorch's own nights, benchmark-v3 records, GraphNet's logs."""
