"""What became of a cell: its outcome, the verdict on each metric, and a finding for each dimension, so that none hides another.

A dimension is latency, memory, compile, correctness or graphs (`collector.metrics.Dimension`). Its metrics are judged one by
one (`analysis.compare.cell_verdicts`); this module makes one finding of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np

from analysis.stats.averages import Numbers, Words
from analysis.stats.verdicts import Verdict
from collector.metrics import METRICS, Dimension

#: Better and worse have a colour; all else, known or not, is calm.
Look = Literal["better", "worse", "calm"]


class Outcome(StrEnum):
    """The outcome of a cell: a `Verdict` where it passes on both sides, else what became of its status.

    A cell is expected where it was planned, or measured without a plan.
    """

    REGRESSED = Verdict.REGRESSED.value
    IMPROVED = Verdict.IMPROVED.value
    UNCHANGED = Verdict.UNCHANGED.value
    INCONCLUSIVE = Verdict.INCONCLUSIVE.value
    ENVIRONMENT_CHANGED = "environment_changed"
    BROKE = "broke"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    FLAKY = "flaky"
    MISSING = "missing"  # expected on both sides, measured in base only
    MISSING_IN_BOTH = "missing_in_both"
    MISSING_IN_BASE = "missing_in_base"
    NOT_APPLICABLE = "not_applicable"  # unavailable, skipped or not checked on a side
    ENTERED = "entered"  # not planned in base
    LEFT = "left"  # not planned in new

    @property
    def verdict(self) -> Outcome | None:
        """The outcome as gate, reports and JSON count it; None where nothing can be said of the cell."""
        return self if self in VERDICTS else Outcome.MISSING if self is Outcome.MISSING_IN_BOTH else None

    @property
    def look(self) -> Look:
        """Whether it is good or bad."""
        return "worse" if self in WORSE else "better" if self in (Outcome.IMPROVED, Outcome.FIXED) else "calm"


CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
CONCLUSIVE = (*CHANGES, Outcome.UNCHANGED)
WORSE = (Outcome.REGRESSED, Outcome.BROKE)
#: Outcomes of a cell that does not pass on both sides.
OF_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.STILL_FAILING, Outcome.FLAKY, Outcome.MISSING)
#: All that `gate --fail-on` takes.
VERDICTS = (*CONCLUSIVE, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED, *OF_STATUS)


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


#: The two latencies, which are one finding.
WALL, DEVICE = "compiled_ms", "compiled_kernel_ms"
#: Of several verdicts on one dimension the first that occurs counts.
ORDER = (
    *(Outcome.REGRESSED, Outcome.IMPROVED, Outcome.ENVIRONMENT_CHANGED),
    *(Outcome.INCONCLUSIVE, Outcome.UNCHANGED),
)
#: The dimensions by what a user waits for first.
_FIRST = (Dimension.LATENCY, Dimension.MEMORY, Dimension.GRAPHS, Dimension.COMPILE, Dimension.CORRECTNESS)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a cell in one dimension, by the metric that tells it best.

    `judged` is that metric, `beside` the other latency. Without a metric the status or the generated code decided.
    """

    dimension: Dimension
    verdict: Outcome
    judged: Judged | None = None
    beside: Judged | None = None

    @property
    def metric(self) -> str | None:
        """The metric that tells it best."""
        return self.judged.metric if self.judged else None

    @property
    def change(self) -> float | None:
        """The relative change (0.02 is 2 %) without the machine's part."""
        return self.judged.adjusted if self.judged else None

    @property
    def size(self) -> float:
        """How large the change is, for sorting; infinite for one that has no ratio, since it began at 0."""
        if self.judged is None:
            return 0.0
        begins_at_zero = self.verdict in CHANGES and self.judged.shown is None
        return float("inf") if begins_at_zero else abs(self.judged.shown or 0.0)

    @property
    def is_host_overhead(self) -> bool:
        """Whether the calls take longer or shorter while the device is busy for as long as before."""
        is_wall = self.metric == WALL and self.verdict in CHANGES
        return is_wall and self.beside is not None and self.beside.verdict is Outcome.UNCHANGED

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands among the findings of its cell, what matters most first: a status, then a change, then latency."""
        place = CHANGES.index(self.verdict) + 1 if self.verdict in CHANGES else 0 if self.verdict in OF_STATUS else 3
        return place, _FIRST.index(self.dimension)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; every key is there."""
        parts = {name: getattr(self.judged, name, None) for name in ("low", "high", "q")}
        return {
            **{"dimension": self.dimension, "verdict": self.verdict, "metric": self.metric, "change": self.change},
            **parts,
        }


def findings(
    outcome: Outcome,
    metric: str | None,
    judged: Mapping[str, Judged],
    *,
    moved: bool = False,
    ran: bool = True,
) -> tuple[Finding, ...]:
    """Return a cell's findings, in the order of the dimensions; none where nothing can be said of the cell.

    `metric` decided the outcome. `moved`: the sides measured the cell on different testbeds. `ran`: it ran on both sides; of a
    cell that did not only equal code says anything.
    """
    if outcome.verdict is None or (not ran and outcome is not Outcome.UNCHANGED):
        return ()
    if outcome.verdict in OF_STATUS:
        return (Finding(Dimension.CORRECTNESS, outcome.verdict),)
    found = {Dimension.CORRECTNESS: Finding(Dimension.CORRECTNESS, Outcome.UNCHANGED)}
    for dimension, of_dimension in _by_dimension(judged).items():
        # Where a change of wall time must be seen in a second run, latency stays open.
        is_open = outcome is Outcome.INCONCLUSIVE and metric == WALL
        verdict = _latency(judged, is_open) if dimension is Dimension.LATENCY else _first(of_dimension)
        shown = min((one for one in of_dimension if one.verdict is verdict), key=_width, default=of_dimension[0])
        beside = next((one for one in of_dimension if one is not shown), None)
        found[dimension] = Finding(
            dimension,
            _elsewhere(outcome, verdict, moved),
            shown,
            beside if dimension is Dimension.LATENCY else None,
        )
    if Dimension.LATENCY not in found and outcome is Outcome.UNCHANGED:
        found[Dimension.LATENCY] = Finding(Dimension.LATENCY, Outcome.UNCHANGED)  # the same code, which was not timed
    return tuple(found[dimension] for dimension in Dimension if dimension in found)


def count_findings(found: Iterable[Iterable[Finding]]) -> dict[Dimension, dict[str, int]]:
    """Return how many cells have which verdict in each dimension that occurs."""
    counts: dict[Dimension, Counter[str]] = {}
    for finding in (one for of_cell in found for one in of_cell):
        counts.setdefault(finding.dimension, Counter())[finding.verdict.value] += 1
    return {
        dimension: {
            outcome.value: counts[dimension][outcome.value] for outcome in Outcome if counts[dimension][outcome.value]
        }
        for dimension in Dimension
        if dimension in counts
    }


def _by_dimension(judged: Mapping[str, Judged]) -> dict[Dimension, list[Judged]]:
    by_dimension: dict[Dimension, list[Judged]] = {}
    for name, one in judged.items():
        if (dimension := METRICS[name].dimension) is not None:
            by_dimension.setdefault(dimension, []).append(one)
    return by_dimension


def _latency(judged: Mapping[str, Judged], is_open: bool) -> Outcome:
    """Return the verdict on latency: wall time is what a user waits for, device time decides where that is open."""
    verdicts = {name: judged[name].verdict for name in (WALL, DEVICE) if name in judged}
    if is_open:
        return Outcome.INCONCLUSIVE
    if verdicts.get(WALL) in CONCLUSIVE:
        return verdicts[WALL]
    return verdicts.get(DEVICE, verdicts.get(WALL, Outcome.INCONCLUSIVE))


def _first(of_dimension: Sequence[Judged]) -> Outcome:
    return min((one.verdict for one in of_dimension), key=ORDER.index)


def _width(one: Judged) -> tuple[float, bool]:
    return one.width, one.metric == WALL  # device time is the steadier one


def _elsewhere(outcome: Outcome, verdict: Outcome, moved: bool) -> Outcome:
    """Return the verdict where machine or libraries differ between the sides, as that of the whole cell was changed."""
    if outcome is Outcome.ENVIRONMENT_CHANGED and (moved or verdict in CHANGES):
        return Outcome.ENVIRONMENT_CHANGED
    return Outcome.INCONCLUSIVE if moved else verdict
