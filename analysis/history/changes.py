"""What a change of one series is, as values: no query lives here, and no arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from analysis.compare.environment_diff import EnvironmentDifference
from analysis.history.series import Point
from analysis.stats.levels import LevelChange
from collector.own_models import names_another_model


class Direction(StrEnum):
    """Which way a change went, by the metric's own direction; a status that fails is worse."""

    WORSE = "worse"
    BETTER = "better"
    NEITHER = "neither"


class Certainty(StrEnum):
    """`pending` is a shift too young to be established: wait for more nights."""

    ESTABLISHED = "established"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Span:
    """What was measured on both sides of a change: it came after `base`, the last point before, and by `onset`."""

    base: Point
    onset: Point

    @property
    def is_one_commit(self) -> bool:
        """Whether both sides measured the same code: then no commit can be to blame."""
        return self.base.commit == self.onset.commit

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {"base": _point_json(self.base), "onset": _point_json(self.onset)}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one series: a cell on a branch and testbed, by one metric or (`metric` empty) by its status.

    `span` is where the series shows it best, `possible` where it can be as well: where the noise hides a small step, or
    where a flaky cell first failed. `is_over` says that the series has gone back since, whatever came after that.
    `levels` are in the metric's unit.
    `control` is how many times as much the eager time became over the same boundary, None of a metric that has none.
    `environment` and `program` say what else differs between the two sides of `span`, torch's own version and commit left
    out.
    """

    repo: str
    branch: str
    testbed_id: str
    cell_id: str
    cell: str
    cell_key: int
    metric: str
    direction: Direction
    certainty: Certainty
    span: Span
    possible: Span
    is_over: bool
    levels: LevelChange | None = None
    control: float | None = None
    statuses: tuple[str, str] | None = None
    environment: tuple[EnvironmentDifference, ...] = ()
    program: tuple[EnvironmentDifference, ...] = ()

    @property
    def environment_changed(self) -> bool:
        """Whether the surroundings or the options changed at the same boundary: the commits are not the only suspects."""
        return bool(self.environment or self.program)

    @property
    def model_changed(self) -> bool:
        """Whether the model, one of a user's own, changed itself at the same boundary: then no commit of torch is to blame."""
        return any(names_another_model(one.key, one.base, one.new) for one in self.environment)

    @property
    def worsening(self) -> float | None:
        """How many times as bad it became: above 1 is worse, whichever way that is for the metric. None of a status."""
        if self.levels is None:
            return None
        size = abs(math.log(self.levels.ratio))
        return math.exp(-size if self.direction is Direction.BETTER else size)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {
            **{name: getattr(self, name) for name in ("cell_id", "cell", "testbed_id")},
            "metric": self.metric or None,
            **{name: getattr(self, name) for name in ("direction", "certainty", "is_over")},
            "span": self.span.to_json(),
            "possible": self.possible.to_json(),
            "levels": _levels_json(self.levels) if self.levels else None,
            "control": self.control,
            "statuses": list(self.statuses) if self.statuses else None,
            "environment_changed": self.environment_changed,
            "environment": [one.to_json() for one in self.environment],
            "program": [one.to_json() for one in self.program],
        }


def _levels_json(levels: LevelChange) -> dict[str, float | None]:
    """Null for an end of an interval that is not known."""
    values = {name: getattr(levels, name) for name in ("before", "after", "now", "ratio", "low", "high", "p", "q")}
    return {name: None if math.isnan(value) else value for name, value in values.items()}


def _point_json(point: Point) -> dict[str, Any]:
    return {
        "commit": point.commit,
        "position": point.position,
        "started_at": datetime.fromtimestamp(point.started_at, UTC).isoformat(),
        "runs": [run.run_id for run in point.runs],
    }
