"""The measurement of one cell: model, eager reference, compiled program, correctness, latency, memory, counters."""
