"""Cells into suites: pass rates with their counts, and averages with their n."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.compare.results import FIGURES, Counts, Figure, Group, PairedFigure, SuiteChange, SuiteSummary
from analysis.compare.transitions import Transition
from collector.vocabulary import NOT_APPLICABLE, Status

Mask = NDArray[np.bool_]
Places = NDArray[np.intp]

_GROUP = ["suite", "phase", "dtype", "device", "config", "config_id"]
_UNASKED = [status.value for status in NOT_APPLICABLE]


def summarise_groups(cells: pd.DataFrame) -> tuple[SuiteSummary, ...]:
    """Every group of one side's rows, in the order of its name."""
    side = _Side(cells, "")
    labels = _Labels(cells)
    return tuple(_summary(group, rows, side, labels) for group, rows in _groups(cells))


def compare_groups(cells: pd.DataFrame) -> tuple[SuiteChange, ...]:
    """Every group of paired rows, in the order of its name."""
    base, new, labels = _Side(cells, "_base"), _Side(cells, "_new"), _Labels(cells)
    both = base.passed & new.passed
    paired = {name: both & base.usable[name] & new.usable[name] for name in FIGURES}
    transitions, configs = cells["transition"].to_numpy(), cells["config_base"].to_numpy(dtype=object)
    found = []
    for group, rows in _groups(cells):
        expected = rows[base.expected[rows]]
        change = SuiteChange(
            group=group,
            base_config=str(configs[expected[0]]) if len(expected) else group.config,
            base=base.counts(rows),
            new=new.counts(rows),
            figures={metric: _paired(metric, rows[paired[metric][rows]], rows, base, new) for metric in FIGURES},
            listed=_listed(transitions[rows].tolist(), labels.of(rows)),
        )
        found.append(change)
    return tuple(found)


class _Side:
    """One side's outcomes as arrays, an entry a row: made once for all groups."""

    def __init__(self, cells: pd.DataFrame, ending: str) -> None:
        status = cells[f"status{ending}"].to_numpy(dtype=object)
        self.measured: Mask = np.asarray(cells[f"status{ending}"].notna())
        self.passed: Mask = status == Status.PASS.value
        self.unasked: Mask = np.isin(status.astype(str), _UNASKED)
        self.expected: Mask = (
            cells[f"expected{ending}"].to_numpy(dtype=bool) if ending else np.ones(len(cells), dtype=bool)
        )
        values = {name: cells[f"{name}{ending}"].to_numpy(dtype=float) for name in FIGURES}
        self.usable = {name: _usable(name, found) for name, found in values.items()}
        self._counted = {name: self.passed & found for name, found in self.usable.items()}
        # What is summed: logarithms for a geomean, each taken once for all the averages that it is part of.
        self._terms = {name: _terms(name, found, self.usable[name]) for name, found in values.items()}

    def counts(self, rows: Places) -> Counts:
        """The outcomes of a group's cells."""
        found = rows[self.expected[rows]]
        measured, passed, unasked = (
            int(np.count_nonzero(which[found])) for which in (self.measured, self.passed, self.unasked)
        )
        return Counts(len(found), measured, passed, measured - passed - unasked, unasked)

    def figure(self, metric: str, rows: Places) -> Figure:
        """The average over the passing rows that have the metric."""
        return self.average(metric, rows[self._counted[metric][rows]])

    def average(self, metric: str, rows: Places) -> Figure:
        """The average over these rows, all of which have the metric; as `analysis.stats.averages.geomean` defines it."""
        if not len(rows):
            return Figure(metric, FIGURES[metric], 0, None)
        average = math.fsum(self._terms[metric][rows].tolist()) / len(rows)
        return Figure(metric, FIGURES[metric], len(rows), math.exp(average) if _is_geomean(metric) else average)


def _summary(group: Group, rows: Places, side: _Side, labels: _Labels) -> SuiteSummary:
    names = labels.of(rows)
    failing = side.measured & ~side.passed & ~side.unasked
    return SuiteSummary(
        group=group,
        counts=side.counts(rows),
        figures={metric: side.figure(metric, rows) for metric in FIGURES},
        missing=_pick(names, ~side.measured[rows]),
        failing=_pick(names, failing[rows]),
    )


def _paired(metric: str, both: Places, rows: Places, base: _Side, new: _Side) -> PairedFigure:
    before, after = base.average(metric, both), new.average(metric, both)
    return PairedFigure(
        metric=metric,
        kind=FIGURES[metric],
        n=before.n,
        base=before.value,
        new=after.value,
        base_all=base.figure(metric, rows),
        new_all=new.figure(metric, rows),
    )


def _is_geomean(metric: str) -> bool:
    return FIGURES[metric] == "geomean"


def _usable(metric: str, values: NDArray[np.float64]) -> Mask:
    """Measured, and for a geomean positive: a ratio or latency of 0 is what some tools write for "failed"."""
    found: Mask = np.isfinite(values)
    return found & (values > 0) if _is_geomean(metric) else found


def _terms(metric: str, values: NDArray[np.float64], usable: Mask) -> NDArray[np.float64]:
    if not _is_geomean(metric):
        return values
    found = np.full(len(values), np.nan)
    # Not numpy's logarithm: its last digit may differ from the one that the command line has always printed.
    found[usable] = [math.log(value) for value in values[usable].tolist()]
    return found


def _groups(cells: pd.DataFrame) -> Iterator[tuple[Group, Places]]:
    """The groups in the order of their names, with the numbers of their rows."""
    if cells.empty:
        return
    factors = [pd.factorize(cells[name], sort=True) for name in _GROUP]
    codes, names = [found[0] for found in factors], [found[1] for found in factors]
    found = np.ravel_multi_index(codes, [len(of_column) for of_column in names])
    order = np.argsort(found, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(found[order]) != 0))
    for rows in np.split(order, starts[1:]):
        first = int(rows[0])
        yield Group(*(str(of_column[int(code[first])]) for code, of_column in zip(codes, names, strict=True))), rows


class _Labels:
    """Models by name, with the batch size where the group has a model at several."""

    def __init__(self, cells: pd.DataFrame) -> None:
        self._models = cells["model"].to_numpy(dtype=object)
        self._batch_sizes = cells["batch_size"].to_numpy()

    def of(self, rows: Places) -> list[str]:
        """The labels of one group."""
        models: list[str] = self._models[rows].tolist()
        if len(set(models)) == len(models):
            return models
        several = {model for model, count in Counter(models).items() if count > 1}
        pairs = zip(models, self._batch_sizes[rows].tolist(), strict=True)
        return [f"{model} bs{batch_size}" if model in several else model for model, batch_size in pairs]


def _listed(transitions: list[str], labels: list[str]) -> dict[Transition, tuple[str, ...]]:
    found: dict[Transition, list[str]] = {}
    for transition, label in zip(transitions, labels, strict=True):
        if transition != Transition.BOTH_PASS.value:
            found.setdefault(Transition(transition), []).append(label)
    return {transition: tuple(of_transition) for transition, of_transition in found.items()}


def _pick(labels: list[str], mask: Mask) -> tuple[str, ...]:
    return tuple(label for label, is_in in zip(labels, mask, strict=True) if is_in)
