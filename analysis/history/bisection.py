"""On which side of a change a build is: decided from whole runs, with a stated risk, or left open.

Model: the value of a run is the level of its build plus noise, and the noise of all builds of one bisection is alike. A value
is ln of a metric, or the metric itself where that is a count. The run is the unit; its samples are not independent.

- the ends differ: t-test of the difference of their means, `analysis.stats.verdicts.difference`
- a build is on the good or on the bad side: t-test of its mean against the middle between the means of the ends, whose own
  error counts: d = mean - (good + bad) / 2, its variance s² (1/n + 1/4g + 1/4b)

s² is pooled over all builds that were measured, each around its own mean. What is decided is "past the middle": where a build
has a level of its own in between, the first that is past the middle is found.

A run may come with a control, ln of the eager latency of the same process. Then b x is taken from each difference, where x is
the same difference of the control and b its slope within all builds (`analysis.stats.run_noise`). The error of b counts. So
does what x is beyond 1.96 of its standard errors: there the host moved, and nobody knows how much of that the program feels.

Looking again after every few runs gives chance more than one try, and so do several builds: by Bonferroni's inequality a
risk is shared out evenly among all looks of all decisions, so that the whole bisection goes wrong with at most that risk.
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

#: That a whole bisection names a wrong build.
RISK = LEVEL
#: Standard errors within which the difference of a control is noise, at 5 %.
QUIET = 1.96


class Word(StrEnum):
    """What is known of a build: its side; of the two ends: that they differ, or that they do not by what matters."""

    GOOD = "good"
    BAD = "bad"
    DIFFERENT = "different"
    SAME = "same"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Finding:
    """A decision with its figures. `change`, `low` and `high` (95 %) are on the scale of the values: of ln values, or counts.

    Of the ends it is bad less good, of a build between them its mean less the middle. `p` decides where it is at most
    `level`: two-sided for the ends, one-sided for a build, which is wrongly put on one side only. NaN: no noise is known.
    `moved` is the same difference of the control; `slope` times that was taken from `change`.
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
    """After how many runs of a build it is looked at: `least`, then half as many more each time, `most` at last.

    One run at the least and at the most is for what has no noise. Raises `ValueError` for fewer than two runs otherwise,
    which tell no noise, or for `most` below `least`.
    """
    if (least, most) != (1, 1) and (least < 2 or most < least):
        raise ValueError("at least two runs of each build, and no fewer at the most")
    runs = [least]
    while runs[-1] < most:
        runs.append(min(most, math.ceil(1.5 * runs[-1])))
    return runs


def level_of(builds: int, times: int) -> float:
    """The p at which one look decides: `RISK` shared among `times` looks of the ends and of log2 of all builds."""
    decisions = 1 + math.ceil(math.log2(max(builds, 2)))
    return RISK / (decisions * times)


def compare_ends(good: Runs, bad: Runs, level: float, smallest: float, others: Mapping[str, Runs]) -> Finding:
    """Whether the ends differ: `DIFFERENT` where p is at most `level` and the change at least `smallest` (on the scale of
    the values), `SAME` where the 95 % interval lies within plus or minus `smallest`, else `OPEN`.

    `others` are the runs of the builds between, by name; they tell of the noise.
    """
    finding = _test([(1, bad), (-1, good)], others, level)
    if finding.p <= level and abs(finding.change) >= smallest:
        return finding
    return replace(finding, word=Word.SAME if -smallest <= finding.low and finding.high <= smallest else Word.OPEN)


def find_side(runs: Runs, good: Runs, bad: Runs, level: float, others: Mapping[str, Runs]) -> Finding:
    """The side of a build with these runs: `GOOD` or `BAD` where p is at most `level`, else `OPEN`."""
    finding = _test([(1, runs), (-0.5, good), (-0.5, bad)], others, level)
    finding = replace(finding, p=finding.p / 2)
    value, control = _rows(bad).mean(axis=0) - _rows(good).mean(axis=0)
    towards_bad = value - finding.slope * control
    if not finding.p <= level or finding.change == 0:
        return replace(finding, word=Word.OPEN)
    return replace(finding, word=Word.BAD if finding.change * towards_bad > 0 else Word.GOOD)


def _test(parts: Sequence[tuple[float, Runs]], others: Mapping[str, Runs], level: float) -> Finding:
    """The sum of the means, each times its factor, under the noise within all builds."""
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
    # All of the error is in the variance: as of one run, with nothing on the other side.
    tested = difference(change, np.ones(1), np.full(1, np.inf), error, df)
    low, high, p = (float(column[0]) for column in (tested.low, tested.high, tested.p))
    return Finding(Word.DIFFERENT, float(change[0]), low, high, p, level, float(fit.slope[0]), moved)


def _rows(runs: Runs) -> Numbers:
    """A row a run: its value and its control, 0 where it has none."""
    rows = np.asarray(runs, dtype=np.float64)
    return rows if rows.ndim == 2 else np.column_stack((rows, np.zeros(len(rows))))
