"""Judges leaks by an absolute rule: a cell that leaks nothing has no logarithm and no noise of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.compare.adjustment import PairedCells
from analysis.stats.arrays import Mask, Numbers
from analysis.stats.verdicts import Verdict, words_where

#: The metric: bytes that stay allocated with every compiled call.
LEAK = "leak_bytes_per_call"
#: Bytes a call: torch's CUDA caching allocator rounds every request up to this (`kMinBlockSize`), so it is the smallest leak.
BLOCK = 512.0
#: Share of an existing leak: one that grew by less is the same leak. As for memory.
PART = 0.02


def judge_leaks(pairs: PairedCells, compared: Mask) -> dict[str, Any]:
    """The columns of `LEAK` in a `Judgement`, of the cells compared.

    A side leaks what all its runs leak: `regressed` where the least of new's runs is above the greatest of base's by a block
    and 2 % at least, `improved` the other way round, `unchanged` where all runs of both sides lie within that. Else the runs
    of a side disagree (a cache that was filled, a buffer that was allocated once): `inconclusive` until there is one more run.
    """
    (base_least, base_most), (new_least, new_most) = pairs.extremes(LEAK)
    is_judged = compared & np.isfinite(base_least) & np.isfinite(new_least)
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
    ratio = pairs.cells[f"{LEAK}_ratio"].to_numpy(dtype=float)
    change = np.where(is_judged & (base_most > 0), ratio - 1, np.nan)
    return {
        f"{LEAK}_verdict": words_where(is_judged, words),
        f"{LEAK}_change": change,
        f"{LEAK}_adjusted": change,
        **{f"{LEAK}_{name}": np.full(len(words), np.nan) for name in ("low", "high", "explained", "q")},
        f"{LEAK}_more_runs": np.where(is_judged & (words == Verdict.INCONCLUSIVE.value), 1.0, np.nan),
    }


def _threshold(leaked: Numbers) -> Numbers:
    return np.maximum(BLOCK, PART * leaked)
