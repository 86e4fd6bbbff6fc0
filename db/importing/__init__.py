"""Imports files of other programs as bundles: PyTorch's own nights and benchmark-v3 records."""
