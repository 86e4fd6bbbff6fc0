"""On which side of a change a build is: decided from whole runs, with a stated risk, or left open.

Model: the value of a run is the level of its build plus noise, and the noise of all builds of one bisection is alike. A value
is ln of a metric, or the metric itself where that is a count. The run is the unit; its samples are not independent.

- the ends differ: t-test of the difference of their means, `analysis.stats.verdicts.difference`
- a build is on the good or on the bad side: t-test of its mean against the middle between the means of the ends, whose own
  error counts: d = mean - (good + bad) / 2, its variance s² (1/n + 1/4g + 1/4b)

s² is pooled over all builds that were measured, each around its own mean (`analysis.stats.repeats.within`). What is decided is
"past the middle": where a build has a level of its own in between, the first that is past the middle is found.

Looking again after every few runs gives chance more than one try, and so do several builds: by Bonferroni's inequality a
risk is shared out evenly among all looks of all decisions, so that the whole bisection goes wrong with at most that risk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from analysis.stats.repeats import within
from analysis.stats.verdicts import LEVEL, difference

#: That a whole bisection names a wrong build.
RISK = LEVEL


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
    """

    word: Word
    change: float
    low: float
    high: float
    p: float
    level: float


def looks(least: int, most: int) -> list[int]:
    """After how many runs of a build it is looked at: `least`, then half as many more each time, `most` at last.

    Raises:
        ValueError: fewer than two runs, which tell no noise, or `most` below `least`.
    """
    if least < 2 or most < least:
        raise ValueError("at least two runs of each build, and no fewer at the most")
    found = [least]
    while found[-1] < most:
        found.append(min(most, math.ceil(1.5 * found[-1])))
    return found


def level_of(builds: int, times: int, risk: float = RISK) -> float:
    """The p at which one look decides: `risk` shared among `times` looks of the ends and of log2 of all builds."""
    decisions = 1 + math.ceil(math.log2(max(builds, 2)))
    return risk / (decisions * times)


def compare_ends(
    good: Sequence[float], bad: Sequence[float], level: float, smallest: float, others: Mapping[str, Sequence[float]]
) -> Finding:
    """Whether the ends differ: `DIFFERENT` where p is at most `level` and the change at least `smallest` (on the scale of
    the values), `SAME` where the 95 % interval lies within plus or minus `smallest`, else `OPEN`.

    `others` are the values of the builds between, by name; they tell of the noise.
    """
    change = float(np.mean(bad) - np.mean(good))
    found = _test(change, [good, bad, *others.values()], 1 / len(good) + 1 / len(bad), level)
    if found.p <= level and abs(change) >= smallest:
        return found
    return replace(found, word=Word.SAME if -smallest <= found.low and found.high <= smallest else Word.OPEN)


def find_side(
    values: Sequence[float],
    good: Sequence[float],
    bad: Sequence[float],
    level: float,
    others: Mapping[str, Sequence[float]],
) -> Finding:
    """The side of a build with these values: `GOOD` or `BAD` where p is at most `level`, else `OPEN`."""
    middle = float(np.mean(good) + np.mean(bad)) / 2
    towards_bad = float(np.mean(bad)) - middle
    weight = 1 / len(values) + 1 / (4 * len(good)) + 1 / (4 * len(bad))
    found = _test(float(np.mean(values)) - middle, [values, good, bad, *others.values()], weight, level)
    found = replace(found, p=found.p / 2)
    if not found.p <= level or found.change == 0:
        return replace(found, word=Word.OPEN)
    return replace(found, word=Word.BAD if found.change * towards_bad > 0 else Word.GOOD)


def _test(change: float, groups: Sequence[Sequence[float]], weight: float, level: float) -> Finding:
    """`change` under the noise within the groups; its variance is `weight` times theirs."""
    values = np.concatenate([np.asarray(group, dtype=np.float64) for group in groups])
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    squares, df = within(values, labels, np.zeros(len(values), dtype=np.int64), 1)
    variance = squares / np.where(df > 0, df, np.nan)
    # The noise of what is compared is all in `weight`: of one mean, with nothing on the other side.
    runs, nothing = np.array([1 / weight]), np.array([np.inf])
    found = difference(np.array([change]), runs, nothing, variance, df)
    return Finding(Word.DIFFERENT, change, float(found.low[0]), float(found.high[0]), float(found.p[0]), level)
