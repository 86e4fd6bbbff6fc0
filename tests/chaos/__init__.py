"""Faults: kills, crowds, full disks, locks, damage, clocks, mutations and names, with what they cost counted.

`python -m tests.chaos` (or `make chaos`) does all of it and prints a table; `tests/e2e/test_chaos.py` does a short form.
What each fault is, what it promises and what it cannot see is told in `docs/troubleshooting.md`. All data here is synthetic.
"""
