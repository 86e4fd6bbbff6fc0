"""Two sides become one table of cells with values, changes and verdicts."""
