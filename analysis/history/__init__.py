"""History of many runs: series, change points and alerts."""
