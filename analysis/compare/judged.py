"""One metric of compared cells with its verdict: of one cell as a value, of all cells as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from analysis.compare.cell_outcome import Outcome
from analysis.stats.arrays import Numbers, Words


class Judged(NamedTuple):
    """One metric of one cell. Changes are relative (0.02 is 2 %); None is not known.

    Attributes:
        change: new over base, as the comparison shows both.
        adjusted: the change without the machine's part, with its 95 % interval `low` to `high`. The verdict is of this one.
            An interval beyond a factor of 1000 is unknown.
        explained: the machine's part by the eager runs: 1 + change = (1 + adjusted) (1 + explained).
        p: two-sided; `q` is the false discovery rate.
        more_runs: how many more runs of each side would settle it; infinite for more than 50.
        base_runs: the number of runs that the value of base is the mean of, as `new_runs` of new.
    """

    metric: str
    verdict: Outcome
    change: float | None = None
    adjusted: float | None = None
    low: float | None = None
    high: float | None = None
    explained: float | None = None
    p: float | None = None
    q: float | None = None
    more_runs: float | None = None
    base_runs: float | None = None
    new_runs: float | None = None

    @property
    def width(self) -> float:
        """The width of the interval; infinite where there is none."""
        return float("inf") if self.low is None or self.high is None else self.high - self.low

    @property
    def shown(self) -> float | None:
        """The change that the verdict is about."""
        return self.change if self.adjusted is None else self.adjusted


@dataclass(slots=True)
class JudgedMetric:
    """The fields of `Judged` for all cells of a comparison: an entry per cell, NaN for None, relative changes.

    `verdict` has the words of outcomes, None where the metric was not judged.
    """

    metric: str
    verdict: Words
    change: Numbers
    adjusted: Numbers
    low: Numbers
    high: Numbers
    explained: Numbers
    p: Numbers
    q: Numbers
    more_runs: Numbers
    base_runs: Numbers
    new_runs: Numbers

    @classmethod
    def of_rule(cls, metric: str, verdict: Words, change: Numbers, more_runs: Numbers | None = None) -> JudgedMetric:
        """Return what an exact rule decided, which knows no noise."""
        unknown = np.full(len(verdict), np.nan)
        parts = dict.fromkeys(("low", "high", "explained", "p", "q", "base_runs", "new_runs"), unknown)
        more = unknown if more_runs is None else more_runs
        return cls(metric, verdict, change=change, adjusted=change, more_runs=more, **parts)

    def by_cell(self) -> Sequence[Judged | None]:
        """Return the judgement of each cell; None where the metric was not judged."""
        numbers = [getattr(self, field.name) for field in fields(self)[2:]]
        columns = [[None if number != number else number for number in of_part.tolist()] for of_part in numbers]
        return [
            None if word is None else Judged(self.metric, _OUTCOMES[word], *parts)
            for word, *parts in zip(self.verdict, *columns, strict=True)
        ]


_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
