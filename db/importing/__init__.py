"""Files that others wrote, made into bundles: PyTorch's own nights, benchmark-v3 records, GraphNet's logs."""
