"""One cell on two sides: what both measured, what became of it, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from analysis.compare.findings import CHANGES, DEVICE, WALL, Finding, Judged, Outcome
from collector.metrics import METRICS
from db.queries.cells import CellName
from db.queries.side_rows import CellState

Direction = Literal["better", "worse", "same"]


def ratio(base: float | None, new: float | None) -> float | None:
    """New over base; None where either was not measured or base is 0 and new is not; 0 over 0 is 1."""
    if base is None or new is None or math.isnan(base) or math.isnan(new):
        return None
    if base == 0:
        return 1.0 if new == 0 else None
    return new / base


def percent(value: float | None) -> float | None:
    """A ratio as a signed percentage: 1.05 is +5.0."""
    return None if value is None or math.isnan(value) else (value - 1) * 100


def direction(metric: str, base: float | None, new: float | None) -> Direction | None:
    """Whether `new` is better than `base` by the metric's own sense; None if unmeasured or the metric has no sense."""
    better = METRICS[metric].better
    if base is None or new is None or math.isnan(base) or math.isnan(new) or better == "neither":
        return None
    if base == new:
        return "same"
    return "better" if (new < base) == (better == "lower") else "worse"


class Transition(StrEnum):
    """What became of a cell from base to new. A cell is expected where it was planned, or measured without a plan."""

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
    """Return what became of a cell from base to new; the first rule that holds counts."""
    rules = (
        (Transition.ENTERED, not base.is_expected),
        (Transition.LEFT, not new.is_expected),
        (Transition.MISSING_IN_BOTH, base.status is None and new.status is None),
        (Transition.MISSING, new.status is None),
        (Transition.MISSING_IN_BASE, base.status is None),
        (Transition.NOT_APPLICABLE, base.is_not_applicable or new.is_not_applicable),
        (Transition.BOTH_PASS, base.passes and new.passes),
        (Transition.BROKE, base.passes),
        (Transition.FIXED, new.passes),
    )
    return next((word for word, holds in rules if holds), Transition.STILL_FAILING)


#: By what a cell that was not judged is shown: device time is far steadier than wall-clock time.
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
        cell: its name; of two configs that of new.
        outcome: what became of it; `metric` decided, None where a status or the generated code did.
        judged: each metric that has a verdict, in the order of the table of metrics.
        findings: what became of it in each dimension.
        is_throttled: whether power or heat held the GPU's clocks down on either side.
        code: what became of its generated code, in words; None where it is not known.
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
        """Whether it passes on both sides."""
        return self.transition is Transition.BOTH_PASS

    @property
    def program_changed(self) -> bool | None:
        """Whether the effective options differ; None where a side has none."""
        return differ(self.base.program_id, self.new.program_id)

    @property
    def code_changed(self) -> bool | None:
        """Whether the generated code differs; None where a side has none."""
        return differ(self.base.code_id, self.new.code_id)

    @property
    def testbed_changed(self) -> bool | None:
        """Whether the testbeds differ; None where a side has no measurement."""
        return differ(self.base.testbed_id, self.new.testbed_id)

    @property
    def is_comparable(self) -> bool:
        """Whether the machine is the same, so that a metric's verdict may be shown as one."""
        is_moved = self.testbed_changed or self.outcome is Outcome.ENVIRONMENT_CHANGED
        return self.passes and not is_moved

    @property
    def leading(self) -> Finding | None:
        """The finding that matters most; None where nothing can be said of the cell."""
        return min(self.findings, key=_order, default=None)

    @property
    def changes(self) -> tuple[Finding, ...]:
        """The findings for the worse or the better, those that matter most first."""
        return tuple(sorted((one for one in self.findings if one.verdict in CHANGES), key=_order))

    @property
    def rank_metric(self) -> str | None:
        """The latency that both sides have, device time before wall-clock time."""
        return next((name for name in _RANKING if (self.ratio(name) or 0) > 0), None)

    @property
    def more_runs(self) -> float | None:
        """How many more runs of each side would settle an inconclusive cell; None where runs do not help, or not known."""
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
    """Whether two ids differ; None where either is not known."""
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
