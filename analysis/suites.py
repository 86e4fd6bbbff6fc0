"""Cells into suites: pass rates with their counts, and averages with their n."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.figures import FIGURES, Counts, Figure, Group, PairedFigure
from analysis.results import SuiteChange, SuiteSummary
from analysis.stats.geomean import geomean, mean
from analysis.transitions import Transition
from collector.vocabulary import NOT_APPLICABLE, Status

Mask = NDArray[np.bool_]

_GROUP = ["suite", "phase", "dtype", "device", "config", "config_id"]
_UNASKED = [status.value for status in NOT_APPLICABLE]


def summarise_groups(cells: pd.DataFrame) -> tuple[SuiteSummary, ...]:
    """Every group of one side's rows, in the order of its name."""
    return tuple(_summary(group, rows) for group, rows in _groups(cells))


def compare_groups(cells: pd.DataFrame) -> tuple[SuiteChange, ...]:
    """Every group of paired rows, in the order of its name."""
    return tuple(_change(group, rows) for group, rows in _groups(cells))


def _groups(cells: pd.DataFrame) -> Iterator[tuple[Group, pd.DataFrame]]:
    for key, rows in cells.groupby(_GROUP, sort=True):
        yield Group(*map(str, key)), rows


def _summary(group: Group, rows: pd.DataFrame) -> SuiteSummary:
    status = rows["status"]
    passed = _equal(status, Status.PASS)
    failing = np.asarray(status.notna()) & ~passed & ~np.asarray(status.isin(_UNASKED))
    labels = _labels(rows)
    return SuiteSummary(
        group=group,
        counts=_counts(status, np.ones(len(rows), dtype=bool)),
        figures={metric: _figure(metric, rows[metric].to_numpy(), passed) for metric in FIGURES},
        missing=_pick(labels, np.asarray(status.isna())),
        failing=_pick(labels, failing),
    )


def _change(group: Group, rows: pd.DataFrame) -> SuiteChange:
    labels = _labels(rows)
    found = {transition: _equal(rows["transition"], transition) for transition in rows["transition"].unique()}
    passed = _equal(rows["status_base"], Status.PASS), _equal(rows["status_new"], Status.PASS)
    return SuiteChange(
        group=group,
        base_config=str(rows["config_base"].dropna().iloc[0]) if rows["expected_base"].any() else group.config,
        base=_counts(rows["status_base"], rows["expected_base"].to_numpy(dtype=bool)),
        new=_counts(rows["status_new"], rows["expected_new"].to_numpy(dtype=bool)),
        figures={metric: _paired(metric, rows, *passed) for metric in FIGURES},
        listed={
            Transition(transition): _pick(labels, mask)
            for transition, mask in found.items()
            if transition != Transition.BOTH_PASS.value
        },
    )


def _paired(metric: str, rows: pd.DataFrame, base_passed: Mask, new_passed: Mask) -> PairedFigure:
    base, new = rows[f"{metric}_base"].to_numpy(dtype=float), rows[f"{metric}_new"].to_numpy(dtype=float)
    both = base_passed & new_passed & _usable(metric, base) & _usable(metric, new)
    paired = [_figure(metric, values, both) for values in (base, new)]
    return PairedFigure(
        metric=metric,
        kind=FIGURES[metric],
        n=paired[0].n,
        base=paired[0].value,
        new=paired[1].value,
        base_all=_figure(metric, base, base_passed),
        new_all=_figure(metric, new, new_passed),
    )


def _figure(metric: str, values: NDArray[np.float64], which: Mask) -> Figure:
    found = values[which & _usable(metric, values)].tolist()
    average = geomean(found) if FIGURES[metric] == "geomean" else mean(found)
    return Figure(metric, FIGURES[metric], len(found), average)


def _usable(metric: str, values: NDArray[np.float64]) -> Mask:
    """Measured, and for a geomean positive: a ratio or latency of 0 is what some tools write for "failed"."""
    found = np.isfinite(values)
    return found & (values > 0) if FIGURES[metric] == "geomean" else found


def _counts(status: pd.Series, expected: Mask) -> Counts:
    found = status[expected]
    measured, passed = int(found.notna().sum()), int(_equal(found, Status.PASS).sum())
    unasked = int(found.isin(_UNASKED).sum())
    return Counts(len(found), measured, passed, measured - passed - unasked, unasked)


def _equal(values: pd.Series, wanted: str) -> Mask:
    return np.asarray(values == str(wanted), dtype=bool)


def _labels(rows: pd.DataFrame) -> list[str]:
    """Models by name, with the batch size where the group has a model at several."""
    several = {model for model, count in Counter(rows["model"]).items() if count > 1}
    pairs = zip(rows["model"], rows["batch_size"], strict=True)
    return [f"{model} bs{batch_size}" if model in several else str(model) for model, batch_size in pairs]


def _pick(labels: list[str], mask: Mask) -> tuple[str, ...]:
    return tuple(label for label, is_in in zip(labels, mask, strict=True) if is_in)
