"""The values of a summary and of a comparison, and their JSON. Nothing is read or computed here."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.changes import direction, percent, ratio
from analysis.compare.transitions import Transition
from collector.metrics import METRICS
from db.queries.cell_names import CELL_COLUMNS
from db.queries.filters import CellFilter
from db.queries.sides import Side

#: The averages of a group, in the order that tables show them.
FIGURES = (
    *("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "eager_ms", "compression"),
    "compile_cold_s",
)

_MEASURED = (
    *("run_id", "testbed_id", "replicate", "status", "started_at", "wall_s", "program_id", "environment_id", "code_id"),
    *("same_code_as", "stage", "exception", "message", "hint", "spread"),
)


@dataclass(frozen=True, slots=True)
class Group:
    """The keys of a group: cells of one suite, phase, dtype, device and config have one set of averages."""

    suite: str
    phase: str
    dtype: str
    device: str
    config: str
    config_id: str


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
    def attempted(self) -> int:
        """The pass rate's denominator: measured cells less the unavailable and skipped ones."""
        return self.measured - self.not_applicable

    @property
    def pass_rate(self) -> float | None:
        """Passed over attempted, 0 to 1; None where nothing was attempted. What is missing is counted apart."""
        return self.passed / self.attempted if self.attempted else None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {**asdict(self), "missing": self.missing, "attempted": self.attempted, "pass_rate": self.pass_rate}


@dataclass(frozen=True, slots=True)
class Figure:
    """An average of one metric over the passing cells of a group that have it. `value` is None for n = 0."""

    metric: str
    n: int
    value: float | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {"kind": METRICS[self.metric].average, "n": self.n, "value": self.value}


@dataclass(frozen=True, slots=True)
class PairedFigure:
    """An average of one metric, in its unit, over the cells that pass on both sides and have it there.

    `base_all` and `new_all` are the averages over all cells that pass on one side. They differ from `base` and `new` where
    the set of passing models changed.
    """

    metric: str
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
    def change(self) -> float | None:
        """The relative change from base to new; 0.02 is 2 %."""
        return None if self.ratio is None else self.ratio - 1

    @property
    def ratio_all(self) -> float | None:
        """New over base of the unpaired averages, which also depends on which models pass."""
        return ratio(self.base_all.value, self.new_all.value)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {
            **{"kind": METRICS[self.metric].average, "n": self.n, "base": self.base, "new": self.new},
            "ratio": self.ratio,
            "direction": direction(self.metric, self.base, self.new),
            "base_all": self.base_all.to_json(),
            "new_all": self.new_all.to_json(),
            "ratio_all": self.ratio_all,
        }


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """One group on one side."""

    group: Group
    counts: Counts
    figures: dict[str, Figure]


@dataclass(frozen=True, slots=True)
class SuiteChange:
    """One group on both sides. `group.config` is the new side's; `base_config` differs when configs are compared.

    `listed` names the models (with the batch size where a model has several) of every transition but `both_pass`.
    """

    group: Group
    base_config: str
    base: Counts
    new: Counts
    figures: dict[str, PairedFigure]
    listed: dict[Transition, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {
            **asdict(self.group),
            "base_config": self.base_config,
            "base": self.base.to_json(),
            "new": self.new.to_json(),
            "figures": {name: figure.to_json() for name, figure in self.figures.items()},
            "listed": {transition.value: list(self.listed.get(transition, ())) for transition in Transition},
        }


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """One key of the fingerprint whose values differ between the sides; several values if a side has several."""

    key: str
    base: tuple[str, ...]
    new: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {"key": self.key, "base": list(self.base), "new": list(self.new)}


@dataclass(frozen=True, slots=True)
class SideSummary:
    """One side alone. `cells` has a row per expected cell: `db.queries.side_rows.side_rows` says which columns."""

    side: Side
    filters: CellFilter
    suites: tuple[SuiteSummary, ...]
    cells: pd.DataFrame
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides, cell by cell and suite by suite; `analysis.compare.pairing.pair` says which columns `cells` has.

    Besides, `code` says in words what became of a cell's generated code (`analysis.compare.tables.code_words`), and
    `same_code_as` of each side names the night whose result counts for a cell that was not timed again.

    Changes are numbers without verdicts: `analysis.compare.verdicts` decides which are more than noise.
    """

    base: Side
    new: Side
    filters: CellFilter
    suites: tuple[SuiteChange, ...]
    cells: pd.DataFrame
    environment: tuple[EnvironmentDifference, ...]
    notes: tuple[str, ...]

    def with_transition(self, *transitions: Transition) -> pd.DataFrame:
        """The cells in one of the given transitions, in the order of `cells`."""
        return self.cells[self.cells["transition"].isin([transition.value for transition in transitions])]

    @property
    def on_other_testbeds(self) -> int:
        """The number of cells that the sides measured on different testbeds. Two GPUs of one night are two testbeds."""
        return int((self.cells["testbed_changed"] == True).sum())  # noqa: E712 -- a column of True, False and None

    def transitions(self) -> dict[Transition, int]:
        """How many cells there are of each transition, zeros included."""
        counts = self.cells["transition"].value_counts()
        return {transition: int(counts.get(transition.value, 0)) for transition in Transition}

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys: base, new, filters, notes, environment, on_other_testbeds, transitions, ..."""
        return {
            "base": self.base.to_json(),
            "new": self.new.to_json(),
            "filters": self.filters.to_json(),
            "notes": list(self.notes),
            "environment": [difference.to_json() for difference in self.environment],
            "on_other_testbeds": self.on_other_testbeds,
            "transitions": {transition.value: count for transition, count in self.transitions().items()},
            "suites": [suite.to_json() for suite in self.suites],
            "cells": [
                _cell_json({str(name): plain(value) for name, value in row.items()})
                for row in self.cells.to_dict("records")
            ],
        }


def _cell_json(row: dict[str, Any]) -> dict[str, Any]:
    known = [name for name in METRICS if row[f"{name}_base"] is not None and row[f"{name}_new"] is not None]
    return {
        **{name: row[name] for name in CELL_COLUMNS},
        **{name: row[name] for name in ("transition", "program_changed", "testbed_changed", "code_changed", "code")},
        **{side: _side_json(row, side) for side in ("base", "new")},
        "change": {
            name: {
                "ratio": row[f"{name}_ratio"],
                "percent": percent(row[f"{name}_ratio"]),
                "direction": direction(name, row[f"{name}_base"], row[f"{name}_new"]),
            }
            for name in known
        },
        **{name: row[name] for name in ("rank_metric", "rank_ratio")},
    }


def _side_json(row: dict[str, Any], side: str) -> dict[str, Any]:
    return {
        **{name: row[f"{name}_{side}"] for name in ("expected", "cell_id", "config", "config_id", *_MEASURED)},
        "metrics": {name: value for name in METRICS if (value := row[f"{name}_{side}"]) is not None},
    }


def plain(value: Any) -> Any:
    """A value that JSON can hold: NaN, NA, NaT and infinity become None."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, datetime):
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value
