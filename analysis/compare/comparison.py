"""Comparison of two sides of a store, judged cell by cell. `analysis.compare.compare_sides` makes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from analysis.compare.adjustment import EagerFacts
from analysis.compare.cell_comparison import (
    CHANGES,
    VERDICTS,
    CellComparison,
    Finding,
    JudgedMetric,
    Outcome,
    Transition,
    count_findings,
)
from analysis.compare.cell_verdicts import MARGIN
from analysis.compare.cost_parts import host_parts, host_words, pass_times, peak_parts, saved_parts
from analysis.compare.kernel_groups import OTHERS, explained
from analysis.compare.side_differences import (
    CodeChanges,
    EnvironmentDifference,
    changes,
    environment_differences,
    side_notes,
)
from analysis.compare.suite_groups import SuiteChange, compare_groups
from collector.metrics import METRICS, MIN_EFFECT, Dimension
from db.queries.cells import EVERYTHING, CellFilter
from db.queries.details import codes
from db.queries.side_rows import CellState, details_behind
from db.queries.sides import Side
from db.store_errors import counted

if TYPE_CHECKING:
    import pandas as pd


#: The order in which cells are shown: cells that are known to have changed come first.
RANKED = (
    *(Outcome.BROKE, Outcome.REGRESSED, Outcome.MISSING, Outcome.FLAKY, Outcome.IMPROVED, Outcome.FIXED),
    *(Outcome.INCONCLUSIVE, Outcome.STILL_FAILING, Outcome.ENVIRONMENT_CHANGED, Outcome.UNCHANGED),
)


#: Most cells that a note names.
_NAMED = 3
#: Parts of its limit: an error above the first is near the limit, if it has grown by more than the second.
_NEAR, _GREW = 0.5, 0.05


@dataclass(frozen=True, slots=True)
class NoiseFacts:
    """The noise of one metric, and its drift.

    `typical` is the median standard deviation (of ln) of the cells from run to run, None where it is not known; `repeats` are
    the degrees of freedom behind it. `drift` is the machine's relative change, by yardsticks or eager runs, that was subtracted
    from all cells; None for a metric without a control.
    """

    typical: float | None
    repeats: float
    drift: float | None


@dataclass(frozen=True)
class Comparison:
    """Every cell that either side expects, base against new, sorted by name.

    `noise` has each metric that is judged by its noise. `environments` are the fingerprints by `environment_id`. `order_note`
    says that a night stored later is not among the sides; empty where none is. `configs` are the configs of base and of new if
    two configs are compared. `eager` has the facts on the eager runs; None where none was measured.
    """

    base: Side
    new: Side
    cells: tuple[CellComparison, ...]
    noise: Mapping[str, NoiseFacts]
    environments: Mapping[str, Mapping[str, Any]]
    order_note: str = ""
    configs: tuple[str, str] | None = None
    filters: CellFilter = EVERYTHING
    eager: EagerFacts | None = None

    def only(self, filters: CellFilter) -> Comparison:
        """Return the cells that the filter leaves. It hides cells and changes no verdict."""
        if filters == EVERYTHING:
            return self
        asked = replace(filters, configs=()) if self.configs else filters
        return replace(self, cells=tuple(one for one in self.cells if asked.matches(one.cell)), filters=filters)

    @cached_property
    def suites(self) -> tuple[SuiteChange, ...]:
        """The groups of the cells, in the order of their names."""
        return compare_groups(self.cells)

    @cached_property
    def environment(self) -> tuple[EnvironmentDifference, ...]:
        """Differences of environment between cells that both sides measured, or between all cells where there is no such cell."""
        ids = [(one.base.environment_id, one.new.environment_id) for one in self.cells]
        both = [pair for pair in ids if None not in pair] or ids
        sides = (dict.fromkeys(pair[side] for pair in both) for side in (0, 1))
        base, new = ([self.environments[key] for key in keys if key and key in self.environments] for keys in sides)
        return environment_differences(base, new)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """The facts that a reader needs, a sentence each."""
        order = [self.order_note] if self.order_note else []
        return (
            *order,
            *_near_line(self.cells),
            *self.control_notes,
            *side_notes(self.base, self.new, self.cells, across=self.configs is not None),
        )

    @property
    def control_notes(self) -> tuple[str, ...]:
        """Facts by the controls and earlier runs, a sentence each: an eager program that changed, cells with two modes."""
        return (*(self.eager.lines if self.eager else ()), *_modes_line(self.cells))

    @property
    def in_common(self) -> bool:
        """Return whether any cell is expected on both sides."""
        return any(one.base.is_expected and one.new.is_expected for one in self.cells)

    @property
    def without_base(self) -> tuple[int, int]:
        """Number of the cells of new that base did not measure, and number of the cells that new expects."""
        return len(self.of(Outcome.ENTERED, Outcome.MISSING_IN_BASE)), sum(one.new.is_expected for one in self.cells)

    @property
    def obstacle(self) -> str:
        """The reason in words why no cell without a verdict can have one: the model or the machine changed; else empty."""
        undecided = self.of(Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED)
        changed = dict.fromkeys(_changed_beside(one) for one in undecided)
        if not changed or "" in changed:
            return ""
        keys = [item.key for item in self.environment[:_NAMED]] if _ENVIRONMENT in changed else []
        what = " and ".join(changed) + (f" ({', '.join(keys)})" if keys else "")
        return f"{what} changed in {counted(len(undecided), 'cell')}: to compare torch, both sides must have the same"

    def of(self, *outcomes: Outcome) -> list[CellComparison]:
        """Return the cells of these outcomes."""
        return [one for one in self.cells if one.outcome in outcomes]

    def counts(self) -> dict[str, int]:
        """Return the number of cells of each verdict that occurs."""
        counts = Counter(one.outcome.verdict for one in self.cells)
        return {outcome.value: counts[outcome] for outcome in Outcome if outcome in VERDICTS and counts[outcome]}

    def dimensions(self) -> dict[Dimension, dict[str, int]]:
        """Return the number of cells of each verdict in each dimension that occurs."""
        return count_findings(one.findings for one in self.cells)

    def ranked(self, order: Sequence[Outcome] = RANKED) -> list[CellComparison]:
        """Return the cells of these verdicts, in their order, and within each verdict the largest change first."""
        shown = [one for one in self.cells if one.outcome.verdict in order]
        return sorted(
            shown,
            key=lambda one: (order.index(one.outcome.verdict or one.outcome), one.rank(one.leading), str(one.cell)),
        )

    def ranked_findings(self, order: Sequence[Outcome] = RANKED) -> list[tuple[CellComparison, Finding]]:
        """Return the findings with these verdicts, in their order, and within each verdict the largest change first.

        A cell has each of its changes there: twice, if it is faster and larger. A cell without a change has its leading finding.
        """
        found = [
            (one, finding)
            for one in self.cells
            for finding in one.changes or ((one.leading,) if one.leading else ())
            if finding.verdict in order
        ]
        return sorted(found, key=lambda item: (order.index(item[1].verdict), item[0].rank(item[1]), str(item[0].cell)))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        transitions = Counter(one.transition for one in self.cells)
        return {
            "base": self.base.to_json(),
            "new": self.new.to_json(),
            "filters": self.filters.to_json(),
            "notes": list(self.notes),
            "environment": [difference.to_json() for difference in self.environment],
            "on_other_testbeds": sum(one.testbed_changed is True for one in self.cells),
            "transitions": {transition.value: transitions[transition] for transition in Transition},
            "suites": [suite.to_json() for suite in self.suites],
            "cells": [one.to_json() for one in self.cells],
            "verdicts": self.verdicts_json(),
        }

    def verdicts_json(self) -> dict[str, Any]:
        """Return the numbers of verdicts, and the noise of each metric, as a JSON object with stable keys."""
        metrics = {
            name: {"smallest": MIN_EFFECT[name], "drift": one.drift, "noise": one.typical, "repeats": one.repeats}
            for name, one in self.noise.items()
        }
        dimensions = {dimension.value: counts for dimension, counts in self.dimensions().items()}
        eager = self.eager.to_json() if self.eager else None
        return {"counts": self.counts(), "metrics": metrics, "dimensions": dimensions, "eager": eager}

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each cell, for a spreadsheet: its names, both sides, and the judgement of every metric."""
        import pandas as pd

        return pd.DataFrame([_row(one) for one in self.cells])


_ENVIRONMENT = "the environment"


def _changed_beside(one: CellComparison) -> str:
    """Name what changed besides torch and keeps a cell from a verdict; empty where nothing did."""
    if one.model_changed:
        return "the model itself"
    if one.testbed_changed:
        return "the testbed"
    return _ENVIRONMENT if one.outcome is Outcome.ENVIRONMENT_CHANGED else ""


def _modes_line(cells: Sequence[CellComparison]) -> tuple[str, ...]:
    """Return a sentence on the cells that have two modes; empty where none has."""
    found = [(one, one.modes) for one in cells if one.modes]
    if not found:
        return ()
    named = [f"{one.cell} ({low:.2f} and {high:.2f})" for one, (low, high) in found[:_NAMED]]
    more = [f"{len(found) - _NAMED} more"] if len(found) > _NAMED else []
    return (f"two modes, from run to run, of which neither is a change: {', '.join([*named, *more])}",)


def near_limit(base: CellState, new: CellState) -> bool:
    """Return whether the error of new is above half of its limit and has grown: the cell may fail next."""
    before, after = (state.values.get(MARGIN) for state in (base, new))
    return before is not None and after is not None and after > _NEAR and after - before > _GREW


def _near_line(cells: Sequence[CellComparison]) -> tuple[str, ...]:
    """Return a sentence on the cells that pass and whose error came near its limit; empty where none did."""
    near = [one for one in cells if one.passes and near_limit(one.base, one.new)]
    near.sort(key=lambda one: -one.new.values[MARGIN])
    if not near:
        return ()
    named = [f"{one.cell} ({one.base.values[MARGIN]:.2f} -> {one.new.values[MARGIN]:.2f})" for one in near[:_NAMED]]
    more = [f"{len(near) - _NAMED} more"] if len(near) > _NAMED else []
    return (f"error came near its limit, above which a cell fails: {', '.join([*named, *more])}",)


def _row(one: CellComparison) -> dict[str, Any]:
    sides = {"base": one.base, "new": one.new}
    row = {"cell": str(one.cell), **asdict(one.cell), "outcome": one.outcome.value, "transition": one.transition.value}
    for side, state in sides.items():
        row |= {"_".join((name, side)): getattr(state, name) for name in _OF_SIDE}
    for metric in METRICS:
        row |= {"_".join((metric, side)): state.values.get(metric) for side, state in sides.items()}
        row["_".join((metric, "ratio"))] = one.ratio(metric)
        judged = one.judged.get(metric)
        row |= {"_".join((metric, part)): getattr(judged, part, None) for part in JudgedMetric.__slots__[1:]}
    return row


_OF_SIDE = (
    *("is_expected", "cell_id", "status", "run_id", "testbed_id", "program_id", "environment_id", "code_id"),
    *("same_code_as", "started_at", "wall_s", "stage", "exception", "message", "hint", "spread"),
)


#: Most runs of a cell that confirm the result of one night: no mode of single processes lasts for three.
MOST_CONFIRMATIONS = 2
#: Outcomes that a new process may take back.
_CHANGED = frozenset({*CHANGES, Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY})


def is_due(outcome: str, more_runs: float | None) -> bool:
    """Return whether one more run of each side confirms a change, or decides on an open cell.

    `more_runs` is how many more runs of each side the comparison asks for; None where that is not known.
    """
    if outcome in _CHANGED:
        return True
    return outcome == Outcome.INCONCLUSIVE.value and more_runs is not None and more_runs <= 1


def due_cells(comparison: Comparison, confirmed: Mapping[str, int]) -> list[CellComparison]:
    """Return the cells to measure again, in the order of their names.

    `confirmed` has the number of times that a cell of new was measured again already, by `cell_id`: a cell is due at most
    `MOST_CONFIRMATIONS` times. A cell of another testbed, or of a model that itself changed, is left out, since no run settles
    it.
    """
    return [
        one
        for one in comparison.cells
        if confirmed.get(one.cell.cell_id, 0) < MOST_CONFIRMATIONS
        and one.testbed_changed is False
        and not one.model_changed
        and is_due(one.outcome.value, one.more_runs)
    ]


#: Smallest part of a change for which kernels are named as its cause.
_LEADING = 0.25
#: Most changes whose evidence is read, the largest first: it takes a few queries for each cell.
_MOST_READ = 100


@dataclass(frozen=True, slots=True)
class Cause:
    """Changes with one cause, the largest first."""

    title: str
    changes: tuple[tuple[CellComparison, Finding], ...]


def causes(conn: Connection, comparison: Comparison) -> list[Cause]:
    """Return the changes for the worse or the better, broken and fixed cells among them, grouped by cause, most changes first."""
    ranked = comparison.ranked_findings((Outcome.BROKE, *CHANGES, Outcome.FIXED))
    grouped: dict[str, list[tuple[CellComparison, Finding]]] = {}
    for place, (one, finding) in enumerate(ranked):
        title = _cause(conn, one, finding) if place < _MOST_READ else "smaller changes"
        grouped.setdefault(title, []).append((one, finding))
    ordered = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return [Cause(title, tuple(found)) for title, found in ordered]


def _cause(conn: Connection, one: CellComparison, finding: Finding) -> str:
    if finding.dimension is Dimension.CORRECTNESS and not finding.metric:
        state = one.base if finding.verdict is Outcome.FIXED else one.new
        return " in ".join(filter(None, (state.exception or state.status, state.stage)))
    if finding.dimension is Dimension.LATENCY:
        return (finding.is_host_overhead and _host(conn, one)) or _kernels(conn, one)
    if finding.metric == _PEAK:
        return _memory(conn, one)
    if finding.dimension is Dimension.COMPILE and finding.metric:
        times = pass_times([details_behind(conn, one.base)], [details_behind(conn, one.new)])
        return f"compile time, most of it in {times[0].name}" if times else METRICS[finding.metric].title
    return METRICS[finding.metric].title if finding.metric else finding.dimension.value


def _host(conn: Connection, one: CellComparison) -> str:
    """Name the part of the host's work that took longer or shorter; empty where that is not known."""
    parts = host_parts(details_behind(conn, one.base), details_behind(conn, one.new))
    return f"host overhead, most of it in {parts[0].name}" if host_words(parts) else ""


def _memory(conn: Connection, one: CellComparison) -> str:
    """Name the part that moved the peak most; parts that went the other way explain nothing."""
    base, new = details_behind(conn, one.base), details_behind(conn, one.new)
    grew = (one.new.values.get(_PEAK) or 0.0) - (one.base.values.get(_PEAK) or 0.0)
    for parts in (saved_parts(base, new), peak_parts(base, new)):
        leading = next((part for part in parts if part.change * grew > 0), None)
        if leading and abs(leading.change) >= _LEADING * abs(grew):
            return leading.words
    return METRICS[_PEAK].title


_PEAK = "compiled_peak_bytes"


def _kernels(conn: Connection, one: CellComparison) -> str:
    known = codes(conn, [key for key in (one.base.code_id, one.new.code_id) if key])
    before, after = (known.get(state.code_id or "") for state in (one.base, one.new))
    changed: CodeChanges | None = changes(before, after) if before and after else None
    parts = [
        part
        for part in explained(details_behind(conn, one.base), details_behind(conn, one.new), changed)
        if part.name != OTHERS
    ]
    if parts and parts[0].share >= _LEADING:
        return f"{parts[0].called} kernels"
    if one.code_changed is None:
        return "generated code not known"
    return "many kernels, none of them most of it" if one.code_changed else "the same generated code"
