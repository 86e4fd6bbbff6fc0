"""Judges what the compiler counts, by an exact rule: a count has no noise, and 0 no logarithm."""

from __future__ import annotations

import numpy as np

from analysis.compare.adjustment import PairedCells
from analysis.compare.judged import JudgedMetric
from analysis.stats.arrays import Mask
from analysis.stats.verdicts import Verdict, words_where
from collector.metrics import METRICS

#: Counts of which more is worse, whatever the number: graph breaks, recompilations, fallbacks, skipped cudagraphs, kernels that
#: no cudagraph launched.
RISING = tuple(metric.name for metric in METRICS.values() if metric.is_count and metric.better == "lower")
#: Counts of what was compiled or recorded. More or fewer of them are neither good nor bad, but none at all is no program, or one
#: without cudagraphs.
VANISHING = ("graphs", "kernels_generated", "cudagraph_launches")
COUNTED = tuple(name for name in METRICS if name in RISING or name in VANISHING)
#: A graph whose kernels are all a library's has kernels.
_INSTEAD = {"kernels_generated": "kernels_extern"}
#: All that is read of the repeats for it.
READ_FOR_COUNTS = tuple(sorted({*COUNTED, *_INSTEAD.values()}))


def judge_counts(pairs: PairedCells) -> dict[str, JudgedMetric]:
    """Judge each of `COUNTED` of which values are shown, of the cells that pass on both sides.

    `regressed` where a count of `RISING` is larger in every run of new than in any of base, or one of `VANISHING` is 0 in all
    runs of new and in none of base; `improved` the other way round. No verdict where neither holds: that no more graphs break
    says nothing about a cell whose times are open.
    """
    judged = {}
    for name in (name for name in COUNTED if name in pairs.cells.shown):
        worse, better = _rising(pairs, name) if name in RISING else _vanishing(pairs, name)
        is_changed = pairs.cells.passes & (worse | better)
        words = np.where(worse, Verdict.REGRESSED.value, Verdict.IMPROVED.value)
        base, new = pairs.cells.shown[name]
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(is_changed & (base > 0), new / base - 1, np.nan)
        judged[name] = JudgedMetric.of_rule(name, words_where(is_changed, words), change)
    return judged


def _rising(pairs: PairedCells, name: str) -> tuple[Mask, Mask]:
    (base_least, base_most), (new_least, new_most) = pairs.extremes(name)
    return new_least > base_most, new_most < base_least


def _vanishing(pairs: PairedCells, name: str) -> tuple[Mask, Mask]:
    (base_least, base_most), (new_least, new_most) = pairs.extremes(name)
    gone, came = (base_least > 0) & (new_most == 0), (base_most == 0) & (new_least > 0)
    if other := _INSTEAD.get(name):
        (_, other_base), (_, other_new) = pairs.extremes(other)
        gone, came = gone & (other_new == 0), came & (other_base == 0)
    return gone, came
