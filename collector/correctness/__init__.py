"""Whether a compiled program computes what eager computes."""
