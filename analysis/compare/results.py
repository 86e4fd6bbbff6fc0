"""What a comparison or a summary says, as values: no query lives here, and no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.compare.figures import Counts, Figure, Group, PairedFigure
from analysis.compare.transitions import Transition
from analysis.reports.as_json import comparison_cells
from db.queries.filters import CellFilter
from db.queries.sides import Side


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """One group on one side. `missing` and `failing` name models, with the batch size where a model has several."""

    group: Group
    counts: Counts
    figures: dict[str, Figure]
    missing: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()


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

    @property
    def missing(self) -> tuple[str, ...]:
        """Models expected on both sides that have no measurement on the new one."""
        return self.listed.get(Transition.MISSING, ())

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {
            **self.group.to_json(),
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

    There are changes here and no verdicts: whether a change is more than noise `analysis.compare.verdicts` decides.
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
        """How many cells both sides measured, but each on another testbed: another GPU of the night is one, too."""
        return int((self.cells["testbed_changed"] == True).sum())  # noqa: E712 -- a column of True, False and None

    def transitions(self) -> dict[Transition, int]:
        """How many cells there are of each transition, zeros included."""
        found = self.cells["transition"].value_counts()
        return {transition: int(found.get(transition.value, 0)) for transition in Transition}

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
            "cells": comparison_cells(self.cells),
        }
