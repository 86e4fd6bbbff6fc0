"""The benchmarks that make the tables in the documentation. `python -m benchmarks` lists them."""
