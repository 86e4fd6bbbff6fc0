"""Comparison of a cell: its outcome, the verdict on each metric, and a finding for each dimension, so that none hides another.

A dimension is latency, memory, compile, correctness or graphs (`collector.metrics.Dimension`). Its metrics are judged one by
one (`analysis.compare.cell_verdicts`); this module makes one finding of them, and a `CellComparison` of all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import numpy as np

from analysis.stats.averages import Numbers, Words
from analysis.stats.verdicts import Verdict
from collector.metrics import METRICS, Dimension
from db.queries.cells import CellName
from db.queries.side_rows import CellState

#: `better` and `worse` have a colour; all other outcomes, known or not, are `calm`.
Look = Literal["better", "worse", "calm"]


class Outcome(StrEnum):
    """The outcome of a cell: a `Verdict` where it passes on both sides, else the change of its status.

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
        """The look of the outcome: better, worse or calm."""
        return "worse" if self in WORSE else "better" if self in (Outcome.IMPROVED, Outcome.FIXED) else "calm"


CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
CONCLUSIVE = (*CHANGES, Outcome.UNCHANGED)
WORSE = (Outcome.REGRESSED, Outcome.BROKE)
#: Outcomes of a cell that does not pass on both sides.
OF_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.STILL_FAILING, Outcome.FLAKY, Outcome.MISSING)
#: All that `gate --fail-on` takes.
VERDICTS = (*CONCLUSIVE, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED, *OF_STATUS)


class Judged(NamedTuple):
    """The verdict on one metric of one cell. Changes are relative (0.02 is 2 %); None is not known.

    Attributes:
        change: new over base, minus 1, as the comparison shows both.
        adjusted: the change without the machine's part, with its 95 % interval `low` to `high`. The verdict is about this
            change. An interval beyond a factor of 10 is unknown.
        explained: the machine's part, by yardsticks or eager runs: 1 + change = (1 + adjusted) (1 + explained).
        p: two-sided; `q` is the false discovery rate.
        more_runs: how many more runs of each side would settle the verdict; infinite for more than 50.
        base_runs: the number of runs in base's mean, as `new_runs` in new's.
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
        """Return the verdicts of an exact rule, which knows no noise."""
        unknown = np.full(len(verdict), np.nan)
        parts = dict.fromkeys(("low", "high", "explained", "p", "q", "base_runs", "new_runs"), unknown)
        more = unknown if more_runs is None else more_runs
        return cls(metric, verdict, change=change, adjusted=change, more_runs=more, **parts)


def by_cell(metrics: Iterable[JudgedMetric], count: int) -> list[dict[str, Judged]]:
    """Return the judgements of each of `count` cells by metric, without metrics that were not judged."""
    found: list[dict[str, Judged]] = [{} for _ in range(count)]
    for of_metric in metrics:
        known = np.flatnonzero(of_metric.verdict != None)  # noqa: E711 -- of each entry
        words, *numbers = (getattr(of_metric, field.name)[known].tolist() for field in fields(of_metric)[1:])
        columns = [[None if number != number else number for number in of_part] for of_part in numbers]
        for at, word, *parts in zip(known.tolist(), words, *columns, strict=True):
            found[at][of_metric.metric] = Judged(of_metric.metric, _OUTCOMES[word], *parts)
    return found


_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


#: The two latencies, which are one finding.
WALL, DEVICE = "compiled_ms", "compiled_kernel_ms"
#: The order of verdicts: of several verdicts on one dimension the first in this order counts.
ORDER = (
    *(Outcome.REGRESSED, Outcome.IMPROVED, Outcome.ENVIRONMENT_CHANGED),
    *(Outcome.INCONCLUSIVE, Outcome.UNCHANGED),
)
#: The dimensions in the order of their importance to a user.
_FIRST = (Dimension.LATENCY, Dimension.MEMORY, Dimension.GRAPHS, Dimension.COMPILE, Dimension.CORRECTNESS)


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on a cell in one dimension.

    `judged` is the metric that shows it best, `beside` the other latency. Without a metric the status or the generated code
    decided.
    """

    dimension: Dimension
    verdict: Outcome
    judged: Judged | None = None
    beside: Judged | None = None

    @property
    def metric(self) -> str | None:
        """The name of the metric that shows the verdict best; None where no metric decided."""
        return self.judged.metric if self.judged else None

    @property
    def change(self) -> float | None:
        """The relative change (0.02 is 2 %) without the machine's part."""
        return self.judged.adjusted if self.judged else None

    @property
    def size(self) -> float:
        """The size of the change, for sorting; infinite for a change that has no ratio, since it began at 0."""
        if self.judged is None:
            return 0.0
        begins_at_zero = self.verdict in CHANGES and self.judged.shown is None
        return float("inf") if begins_at_zero else abs(self.judged.shown or 0.0)

    @property
    def is_host_overhead(self) -> bool:
        """Return whether the calls take longer or shorter while the device is busy for as long as before."""
        is_wall = self.metric == WALL and self.verdict in CHANGES
        return is_wall and self.beside is not None and self.beside.verdict is Outcome.UNCHANGED

    @property
    def order(self) -> tuple[int, int]:
        """The key that sorts the findings of a cell by importance: a status first, then a change, then latency."""
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

    `metric` decided the outcome. `moved`: the sides measured the cell on different testbeds. `ran`: the cell ran on both sides.
    A cell that did not run has findings only if its code is equal.
    """
    if outcome.verdict is None or (not ran and outcome is not Outcome.UNCHANGED):
        return ()
    if outcome.verdict in OF_STATUS:
        return (Finding(Dimension.CORRECTNESS, outcome.verdict),)
    found = {Dimension.CORRECTNESS: Finding(Dimension.CORRECTNESS, Outcome.UNCHANGED)}
    for dimension, of_dimension in _by_dimension(judged).items():
        # Where a change of wall time must be seen in a second run, latency stays open.
        is_open = outcome is Outcome.INCONCLUSIVE and metric == WALL
        shown, beside = of_dimension[0], None
        if dimension is Dimension.LATENCY:
            verdict = _latency(judged, is_open)
        else:
            verdict = min((one.verdict for one in of_dimension), key=ORDER.index)
        if len(of_dimension) > 1:
            shown = min((one for one in of_dimension if one.verdict is verdict), key=_width, default=shown)
            if dimension is Dimension.LATENCY:
                beside = next(one for one in of_dimension if one is not shown)
        found[dimension] = Finding(dimension, _elsewhere(outcome, verdict, moved), shown, beside)
    if Dimension.LATENCY not in found and outcome is Outcome.UNCHANGED:
        found[Dimension.LATENCY] = Finding(Dimension.LATENCY, Outcome.UNCHANGED)  # equal code was not timed again
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
    """Return the verdict on latency: a user waits for wall time; device time decides where wall time is open."""
    verdicts = {name: judged[name].verdict for name in (WALL, DEVICE) if name in judged}
    if is_open:
        return Outcome.INCONCLUSIVE
    if verdicts.get(WALL) in CONCLUSIVE:
        return verdicts[WALL]
    return verdicts.get(DEVICE, verdicts.get(WALL, Outcome.INCONCLUSIVE))


def _width(one: Judged) -> tuple[float, bool]:
    return one.width, one.metric == WALL  # device time is the steadier one


def _elsewhere(outcome: Outcome, verdict: Outcome, moved: bool) -> Outcome:
    """Return the verdict, changed as the cell's outcome is where machine or libraries differ between the sides."""
    if outcome is Outcome.ENVIRONMENT_CHANGED and (moved or verdict in CHANGES):
        return Outcome.ENVIRONMENT_CHANGED
    return Outcome.INCONCLUSIVE if moved else verdict


Direction = Literal["better", "worse", "same"]


def ratio(base: float | None, new: float | None) -> float | None:
    """Return new over base; None where either was not measured, or base is 0 and new is not; 0 over 0 is 1."""
    if base is None or new is None or math.isnan(base) or math.isnan(new):
        return None
    if base == 0:
        return 1.0 if new == 0 else None
    return new / base


def percent(value: float | None) -> float | None:
    """Return a ratio as a signed percentage: 1.05 is +5.0."""
    return None if value is None or math.isnan(value) else (value - 1) * 100


def direction(metric: str, base: float | None, new: float | None) -> Direction | None:
    """Return whether `new` is better or worse than `base`, or the same; None if unmeasured or neither direction is better."""
    better = METRICS[metric].better
    if base is None or new is None or math.isnan(base) or math.isnan(new) or better == "neither":
        return None
    if base == new:
        return "same"
    return "better" if (new < base) == (better == "lower") else "worse"


class Transition(StrEnum):
    """The change of a cell's status from base to new. A cell is expected where it was planned, or measured without a plan."""

    BOTH_PASS = "both_pass"  # noqa: S105 -- no password
    BROKE = "broke"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    MISSING = "missing"  # expected on both sides, a row in base only
    MISSING_IN_BASE = "missing_in_base"  # expected on both sides, a row in new only
    MISSING_IN_BOTH = "missing_in_both"  # expected on both sides, no row in either
    NOT_APPLICABLE = "not_applicable"  # unavailable, skipped or not checked on a side
    ENTERED = "entered"  # not planned in base
    LEFT = "left"  # not planned in new


def transition(base: CellState, new: CellState) -> Transition:
    """Return the transition of a cell from base to new; the first rule that holds counts."""
    if base.passes and new.passes:
        return Transition.BOTH_PASS
    rules = (
        (Transition.ENTERED, not base.is_expected),
        (Transition.LEFT, not new.is_expected),
        (Transition.MISSING_IN_BOTH, base.status is None and new.status is None),
        (Transition.MISSING, new.status is None),
        (Transition.MISSING_IN_BASE, base.status is None),
        (Transition.NOT_APPLICABLE, base.is_not_applicable or new.is_not_applicable),
        (Transition.BROKE, base.passes),
        (Transition.FIXED, new.passes),
    )
    return next((word for word, holds in rules if holds), Transition.STILL_FAILING)


#: The latencies by which a cell that was not judged is ranked: device time is far steadier than wall-clock time.
_RANKING = (DEVICE, WALL)
_MEASURED = (
    *("run_id", "testbed_id", "replicate", "status", "started_at", "wall_s", "program_id", "environment_id", "code_id"),
    *("same_code_as", "stage", "exception", "message", "hint", "spread"),
)
_OF_METRIC = ("verdict", "change", "adjusted", "low", "high", "explained", "q", "more_runs")


@dataclass(frozen=True, slots=True)
class CellComparison:
    """A cell that either side expects.

    Attributes:
        cell: its name; if two configs are compared, the name in new.
        outcome: its outcome, which `metric` decided; `metric` is None where a status or the generated code did.
        judged: each metric that has a verdict, in the order of the table of metrics.
        findings: the verdict in each dimension.
        is_throttled: whether power or heat held the GPU's clocks down on either side.
        code: the change of its generated code, in words; None where it is not known.
        same_environment: whether both sides ran with the same libraries and settings.
        model_changed: whether the model, one of a user's own, changed itself.
        modes: the two levels between which its latency goes to and fro from run to run, over the more frequent one.
    """

    cell: CellName
    base: CellState
    new: CellState
    transition: Transition
    outcome: Outcome
    metric: str | None
    judged: Mapping[str, Judged]
    findings: tuple[Finding, ...]
    is_throttled: bool
    code: str | None
    same_environment: bool
    model_changed: bool
    modes: tuple[float, float] | None = None

    @property
    def passes(self) -> bool:
        """Return whether the cell passes on both sides."""
        return self.transition is Transition.BOTH_PASS

    @property
    def program_changed(self) -> bool | None:
        """Return whether the effective options differ; None where a side has none."""
        return differ(self.base.program_id, self.new.program_id)

    @property
    def code_changed(self) -> bool | None:
        """Return whether the generated code differs; None where a side has none."""
        return differ(self.base.code_id, self.new.code_id)

    @property
    def testbed_changed(self) -> bool | None:
        """Return whether the testbeds differ; None where a side has no measurement."""
        return differ(self.base.testbed_id, self.new.testbed_id)

    @property
    def is_comparable(self) -> bool:
        """Return whether the cell passes on both sides of one machine, so that a metric's verdict may be shown as one."""
        is_moved = self.testbed_changed or self.outcome is Outcome.ENVIRONMENT_CHANGED
        return self.passes and not is_moved

    @property
    def leading(self) -> Finding | None:
        """The most important finding, an undecided one of an undecided cell; None where nothing can be said of the cell."""
        is_open = self.outcome is Outcome.INCONCLUSIVE
        undecided = [finding for finding in self.findings if is_open and finding.verdict is self.outcome]
        return min(undecided or self.findings, key=_order, default=None)

    def rank(self, finding: Finding | None) -> tuple[float, float]:
        """Return a sort key of a finding: the largest change first, and of changes that began at 0 the largest value."""
        if finding is None:
            return 0.0, 0.0
        return -finding.size, -self.new.values.get(finding.metric or "", 0.0)

    @property
    def changes(self) -> tuple[Finding, ...]:
        """The findings for the worse or the better, the most important first."""
        return tuple(sorted((one for one in self.findings if one.verdict in CHANGES), key=_order))

    @property
    def rank_metric(self) -> str | None:
        """The latency that both sides have, device time before wall-clock time."""
        return next((name for name in _RANKING if (self.ratio(name) or 0) > 0), None)

    @property
    def more_runs(self) -> float | None:
        """Number of runs to add to each side to settle an inconclusive cell; None where runs do not help, or if unknown."""
        if self.outcome is not Outcome.INCONCLUSIVE or self.testbed_changed:
            return None
        return self.leading.judged.more_runs if self.leading and self.leading.judged else None

    def ratio(self, metric: str) -> float | None:
        """Return new over base; None where a side has none, or base is 0 and new is not."""
        return ratio(self.base.values.get(metric), self.new.values.get(metric))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        both = [name for name in METRICS if name in self.base.values and name in self.new.values]
        verdict = self.outcome.verdict
        return {
            **asdict(self.cell),
            "transition": self.transition,
            **{name: getattr(self, name) for name in ("program_changed", "testbed_changed", "code_changed", "code")},
            **{"base": _side_json(self.base), "new": _side_json(self.new)},
            "change": {name: self._change_json(name) for name in both},
            "rank_metric": self.rank_metric,
            "rank_ratio": self.ratio(self.rank_metric) if self.rank_metric else None,
            "verdict": verdict,
            "verdict_metric": self.metric,
            "held_back": self.is_throttled,
            "modes": self.modes,
            "judged": {
                name: {part: _finite(getattr(one, part)) for part in _OF_METRIC} for name, one in self.judged.items()
            },
            "findings": [one.to_json() for one in self.findings],
        }

    def _change_json(self, metric: str) -> dict[str, Any]:
        base, new = self.base.values[metric], self.new.values[metric]
        found = ratio(base, new)
        return {"ratio": found, "percent": percent(found), "direction": direction(metric, base, new)}


def differ(base: str | None, new: str | None) -> bool | None:
    """Return whether two ids differ; None where either is not known."""
    return None if base is None or new is None else base != new


def _order(finding: Finding) -> tuple[int, int]:
    return finding.order


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _side_json(state: CellState) -> dict[str, Any]:
    measured = {name: getattr(state, name) for name in _MEASURED}
    if isinstance(measured["started_at"], datetime):
        measured["started_at"] = measured["started_at"].isoformat()
    names = {name: getattr(state.cell, name, None) for name in ("cell_id", "config", "config_id")}
    return {"expected": state.is_expected, **names, **measured, "metrics": dict(state.values)}
