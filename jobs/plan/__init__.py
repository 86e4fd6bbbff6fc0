"""Which cells to measure, in what order, and what that costs."""
