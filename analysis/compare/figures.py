"""What is said about a group of cells: how many passed, and the averages of their metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from analysis.compare.changes import Direction, direction, ratio

FigureKind = Literal["geomean", "mean"]

#: The averages of a group, in the order that tables show them: geometric for ratios and latencies, whose changes are
#: ratios; arithmetic for compile time, whose sum is what a person waits for.
FIGURES: dict[str, FigureKind] = {
    "speedup": "geomean",
    "device_speedup": "geomean",
    "compiled_ms": "geomean",
    "compiled_kernel_ms": "geomean",
    "eager_ms": "geomean",
    "compression": "geomean",
    "compile_cold_s": "mean",
}


@dataclass(frozen=True, slots=True)
class Group:
    """What a suite's figures are kept apart by."""

    suite: str
    phase: str
    dtype: str
    device: str
    config: str
    config_id: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Counts:
    """Cells of one group on one side. `planned` is what was expected: planned, or measured without a plan."""

    planned: int
    measured: int
    passed: int
    failed: int
    not_applicable: int

    @property
    def missing(self) -> int:
        """Cells that were expected and have no measurement."""
        return self.planned - self.measured

    @property
    def asked(self) -> int:
        """The pass rate's denominator: expected cells less the unavailable and skipped ones; missing ones count."""
        return self.planned - self.not_applicable

    @property
    def pass_rate(self) -> float | None:
        """Passed over asked, 0 to 1; None where nothing was asked."""
        return self.passed / self.asked if self.asked else None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**found, "missing": self.missing, "asked": self.asked, "pass_rate": self.pass_rate}


@dataclass(frozen=True, slots=True)
class Figure:
    """An average of one metric over the passing cells of a group that have it. `value` is None for n = 0."""

    metric: str
    kind: FigureKind
    n: int
    value: float | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {"kind": self.kind, "n": self.n, "value": self.value}


@dataclass(frozen=True, slots=True)
class PairedFigure:
    """An average of one metric over the cells that pass on both sides and have it there.

    `base_all` and `new_all` are the averages over whatever passes on one side; where they differ from `base` and `new`
    the set of models has moved the headline. Units are the metric's own.
    """

    metric: str
    kind: FigureKind
    n: int
    base: float | None
    new: float | None
    base_all: Figure
    new_all: Figure

    @property
    def ratio(self) -> float | None:
        """New over base; None where either is unknown or base is 0."""
        return ratio(self.base, self.new)

    @property
    def ratio_all(self) -> float | None:
        """New over base of the unpaired averages: the headline that the set of models may have moved."""
        return ratio(self.base_all.value, self.new_all.value)

    @property
    def direction(self) -> Direction | None:
        """Whether the paired change is for the better; a fact about the sign, not a verdict."""
        return direction(self.metric, self.base, self.new)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {
            "kind": self.kind,
            "n": self.n,
            "base": self.base,
            "new": self.new,
            "ratio": self.ratio,
            "direction": self.direction,
            "base_all": self.base_all.to_json(),
            "new_all": self.new_all.to_json(),
            "ratio_all": self.ratio_all,
        }
