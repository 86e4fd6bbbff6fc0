"""Decide from whole runs, with a stated risk, on which side of a change a build is, or leave it open.

Model: the value of a run is the level of its build plus noise, and the noise of all builds of one bisection is alike. A value
is ln of a metric, or the metric itself where that is a count. The run is the unit; its samples are not independent.

- the ends differ: t-test of the difference of their means, `analysis.stats.verdicts.difference`
- a build is on the good or on the bad side: t-test of its mean against the middle between the means of the ends, whose own
  error counts: d = mean - (good + bad) / 2, its variance s² (1/n + 1/4g + 1/4b)

s² is pooled over all builds that were measured, each around its own mean. The decision is "past the middle": if builds have
levels of their own in between, the first build past the middle is found.

A run may come with a control, ln of the eager latency of the same process. Then b x is subtracted from each difference, where x
is the same difference of the control and b its slope within all builds (`analysis.stats.run_noise`). The error of b counts. So
does the part of x beyond 1.96 of its standard errors: there the host moved, and it is not known how much of this move the
program shares.

Several looks at growing numbers of runs, and several builds, give chance more than one try. By Bonferroni's inequality the risk
is shared out evenly among all looks of all decisions, so that the whole bisection goes wrong with at most that risk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from analysis.stats.averages import Numbers
from analysis.stats.run_noise import around_means, fit_slopes
from analysis.stats.verdicts import LEVEL, difference

#: The runs of a build: their values, or pairs of a value and its control.
Runs = Sequence[float] | Sequence[tuple[float, float]]

#: The risk that a whole bisection names a wrong build.
RISK = LEVEL
#: Standard errors within which the difference of a control is noise, at 5 %.
QUIET = 1.96


class Word(StrEnum):
    """A decision: the side of a build, that the two ends differ, that they differ by less than matters, or `OPEN`."""

    GOOD = "good"
    BAD = "bad"
    DIFFERENT = "different"
    SAME = "same"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Finding:
    """A decision with its figures. `change`, `low` and `high` (95 %) are on the scale of the values: of ln values, or counts.

    `change` is bad minus good for the ends, and mean minus middle for a build between them. `p` decides where it is at most
    `level`: it is two-sided for the ends, and one-sided for a build, which can be on the wrong side in one way only. NaN: the
    noise is not known. `moved` is the same difference of the control; `slope` times `moved` was subtracted from `change`.
    """

    word: Word
    change: float
    low: float
    high: float
    p: float
    level: float
    slope: float = 0.0
    moved: float = 0.0


def looks(least: int, most: int) -> list[int]:
    """Return the numbers of runs after which a build is tested: `least`, then half as many more each time, at last `most`.

    `least` and `most` of 1 are for metrics without noise. Else raise `ValueError` for `least` below 2, since one run shows no
    noise, or for `most` below `least`.
    """
    if (least, most) != (1, 1) and (least < 2 or most < least):
        raise ValueError("at least two runs of each build, and no fewer at the most")
    runs = [least]
    while runs[-1] < most:
        runs.append(min(most, math.ceil(1.5 * runs[-1])))
    return runs


def level_of(builds: int, times: int) -> float:
    """Return the p at which one look decides: `RISK` over `times` looks at the ends and at each of log2(`builds`) builds."""
    decisions = 1 + math.ceil(math.log2(max(builds, 2)))
    return RISK / (decisions * times)


def compare_ends(good: Runs, bad: Runs, level: float, smallest: float, others: Mapping[str, Runs]) -> Finding:
    """Test whether the ends differ.

    `DIFFERENT` where p is at most `level` and the change at least `smallest` (on the scale of the values), `SAME` where the 95 %
    interval lies within plus or minus `smallest`, else `OPEN`. `others` are the runs of the builds between, by name; the noise
    is learned from them, too.
    """
    finding = _test([(1, bad), (-1, good)], others, level)
    if finding.p <= level and abs(finding.change) >= smallest:
        return finding
    return replace(finding, word=Word.SAME if -smallest <= finding.low and finding.high <= smallest else Word.OPEN)


def find_side(runs: Runs, good: Runs, bad: Runs, level: float, others: Mapping[str, Runs]) -> Finding:
    """Find the side of a build with these runs: `GOOD` or `BAD` where p is at most `level`, else `OPEN`."""
    finding = _test([(1, runs), (-0.5, good), (-0.5, bad)], others, level)
    finding = replace(finding, p=finding.p / 2)
    value, control = _rows(bad).mean(axis=0) - _rows(good).mean(axis=0)
    towards_bad = value - finding.slope * control
    if not finding.p <= level or finding.change == 0:
        return replace(finding, word=Word.OPEN)
    return replace(finding, word=Word.BAD if finding.change * towards_bad > 0 else Word.GOOD)


def _test(parts: Sequence[tuple[float, Runs]], others: Mapping[str, Runs], level: float) -> Finding:
    """Test the sum of the means, each times its factor, under the noise within all builds."""
    compared = [(factor, _rows(runs)) for factor, runs in parts]
    groups = [*(group for _, group in compared), *map(_rows, others.values())]
    value, moved = np.sum([factor * group.mean(axis=0) for factor, group in compared], axis=0).tolist()
    weight = sum(factor**2 / len(group) for factor, group in compared)
    rows, labels = np.concatenate(groups), np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    y, x = (around_means(column, labels) for column in rows.T)
    fit = fit_slopes(np.array([x @ x]), np.array([x @ y]), np.array([y @ y]))
    df = len(rows) - len(groups) - fit.taken
    variance = fit.left / np.where(df > 0, df, np.nan)
    change = value - fit.slope * moved
    usual = QUIET * math.sqrt(weight * float(x @ x) / max(len(rows) - len(groups), 1))
    of_host = max(abs(moved) - usual, 0.0)
    error = variance * (weight + moved**2 / fit.spread) + of_host**2
    # `error` is the whole variance of the change: passed as the variance of one run against infinitely many.
    tested = difference(change, np.ones(1), np.full(1, np.inf), error, df)
    low, high, p = (float(column[0]) for column in (tested.low, tested.high, tested.p))
    return Finding(Word.DIFFERENT, float(change[0]), low, high, p, level, float(fit.slope[0]), moved)


def _rows(runs: Runs) -> Numbers:
    """Return a row for each run: its value and its control, 0 where it has none."""
    rows = np.asarray(runs, dtype=np.float64)
    return rows if rows.ndim == 2 else np.column_stack((rows, np.zeros(len(rows))))
