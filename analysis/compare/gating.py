"""Whether new may pass: the rule of `gate`, which a report begins with."""

from __future__ import annotations

from collections.abc import Mapping


def decide(counts: Mapping[str, int], fail_on: frozenset[str], max_missing: int | None = None) -> tuple[int, str]:
    """The exit code and why, from how many cells there are of each outcome.

    Nothing measured is never 0 and never 1: a night that did not run has shown nothing, good or bad.
    """
    missing = counts.get("missing", 0)
    told = sum(counts.values()) - missing
    if not told:
        return 3, "no cell was measured on both sides"
    if max_missing is not None and missing > max_missing:
        return 3, f"{missing} cells are missing, more than the {max_missing} allowed"
    if found := {word: counts[word] for word in sorted(fail_on) if counts.get(word)}:
        return 1, ", ".join(f"{count} {word}" for word, count in found.items())
    if told == counts.get("inconclusive", 0) + counts.get("environment_changed", 0):
        return 3, "nothing could be concluded: measure again, or compare within one testbed"
    return 0, "nothing found"
