"""Plans of runs: the cells to measure, their order, and their costs."""
