"""Records of regressions: opened from alerts, printed, handed on."""
