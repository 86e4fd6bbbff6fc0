"""The check that a compiled program computes what eager computes."""
