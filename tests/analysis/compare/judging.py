"""Two sides of a store, compared and judged."""

from __future__ import annotations

from analysis.compare.verdicts import compare_and_judge


def judged(store, base="latest~1", new="latest", configs=None):
    """The comparison, its judgement, and a row per model with both."""
    comparison, judgement = compare_and_judge(store, base, new, configs=configs)
    return comparison, judgement, comparison.cells.join(judgement.cells).set_index("model", drop=False)
