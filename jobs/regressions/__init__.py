"""Records of regressions: open them from alerts, print them, and send messages about them."""
