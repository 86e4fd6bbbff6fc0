"""Judges leaks by an absolute rule: a cell that leaks nothing has no logarithm and no noise of its own."""

from __future__ import annotations

import numpy as np

from analysis.compare.adjustment import PairedCells
from analysis.compare.judged import JudgedMetric
from analysis.stats.arrays import Numbers
from analysis.stats.verdicts import Verdict, words_where

#: The metric: bytes that stay allocated with every compiled call.
LEAK = "leak_bytes_per_call"
#: Bytes a call: torch's CUDA caching allocator rounds every request up to this (`kMinBlockSize`), so it is the smallest leak.
BLOCK = 512.0
#: Share of an existing leak: one that grew by less is the same leak. As for memory.
PART = 0.02


def judge_leaks(pairs: PairedCells) -> JudgedMetric:
    """Judge `LEAK`, whose values must be shown, of the cells that pass on both sides.

    A side leaks what all its runs leak: `regressed` where the least of new's runs is above the greatest of base's by a block
    and 2 % at least, `improved` the other way round, `unchanged` where all runs of both sides lie within that. Else the runs
    of a side disagree (a cache that was filled, a buffer that was allocated once): `inconclusive` until there is one more run.
    """
    (base_least, base_most), (new_least, new_most) = pairs.extremes(LEAK)
    is_judged = pairs.cells.passes & np.isfinite(base_least) & np.isfinite(new_least)
    with np.errstate(invalid="ignore"):
        grew = new_least - base_most >= _threshold(base_most)
        shrank = base_least - new_most >= _threshold(new_most)
        most, least = np.maximum(base_most, new_most), np.minimum(base_least, new_least)
        same = most - least < _threshold(least)
    words = np.select(
        [grew, shrank, same],
        [Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.UNCHANGED.value],
        Verdict.INCONCLUSIVE.value,
    )
    base, new = pairs.cells.shown[LEAK]
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(is_judged & (base_most > 0) & (base > 0), new / base - 1, np.nan)
    more_runs = np.where(is_judged & (words == Verdict.INCONCLUSIVE.value), 1.0, np.nan)
    return JudgedMetric.of_rule(LEAK, words_where(is_judged, words), change, more_runs)


def _threshold(leaked: Numbers) -> Numbers:
    return np.maximum(BLOCK, PART * leaked)
