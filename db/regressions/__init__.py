"""Records of regressions."""
