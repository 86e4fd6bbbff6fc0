"""Cells into suites: pass rates with their counts, and averages with their n."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.compare.results import FIGURES, Counts, Figure, Group, PairedFigure, SuiteChange, SuiteSummary
from analysis.compare.transitions import Transition
from analysis.stats.arrays import Labels, Mask, Words
from collector.metrics import METRICS
from collector.vocabulary import NOT_APPLICABLE, Status, batch_word

_GROUP = ["suite", "phase", "dtype", "device", "config", "config_id"]


def summarise_groups(cells: pd.DataFrame) -> tuple[SuiteSummary, ...]:
    """Every group of one side's rows, in the order of its name."""
    groups, labels = _groups(cells)
    side = _Side(cells, "", labels, len(groups))
    figures = {metric: side.averages(metric) for metric in FIGURES}
    return tuple(
        SuiteSummary(group, counts, {metric: figures[metric][number] for metric in FIGURES})
        for number, (group, counts) in enumerate(zip(groups, side.counts(), strict=True))
    )


def compare_groups(cells: pd.DataFrame) -> tuple[SuiteChange, ...]:
    """Every group of paired rows, in the order of its name."""
    groups, labels = _groups(cells)
    base, new = (_Side(cells, ending, labels, len(groups)) for ending in ("_base", "_new"))
    base_configs = cells["config_base"].groupby(labels).first().fillna(cells["config"].groupby(labels).first()).tolist()
    figures = {metric: _paired(metric, base, new) for metric in FIGURES}
    listed: list[dict[Transition, tuple[str, ...]]] = [{} for _ in groups]
    for number, word, model in zip(labels.tolist(), cells["transition"], _models(cells, labels), strict=True):
        if word != Transition.BOTH_PASS.value:
            transition = Transition(word)
            listed[number][transition] = (*listed[number].get(transition, ()), model)
    sides = zip(groups, base_configs, base.counts(), new.counts(), listed, strict=True)
    return tuple(
        SuiteChange(*of_sides[:4], {metric: figures[metric][number] for metric in FIGURES}, of_sides[4])
        for number, of_sides in enumerate(sides)
    )


class _Side:
    """One side's outcomes, an entry a row, and what each group makes of them. `labels` are the groups of the rows."""

    def __init__(self, cells: pd.DataFrame, ending: str, labels: Labels, count: int) -> None:
        self._labels, self._count = labels, count
        status = cells[f"status{ending}"]
        self.measured: Mask = status.notna().to_numpy()
        self.passed: Mask = status.eq(Status.PASS.value).to_numpy(dtype=bool)
        self.not_applicable: Mask = status.isin([word.value for word in NOT_APPLICABLE]).to_numpy(dtype=bool)
        timed, has_code = (cells[f"{name}{ending}"].notna().to_numpy() for name in ("compiled_ms", "code_id"))
        self._untimed: Mask = self.passed & has_code & ~timed
        self._expected = cells[f"expected{ending}"].to_numpy(dtype=bool) if ending else np.ones(len(cells), dtype=bool)
        # A ratio or latency of 0 is what some tools write for "failed": it has no logarithm.
        with np.errstate(divide="ignore", invalid="ignore"):
            values = {metric: cells[f"{metric}{ending}"].to_numpy(dtype=float) for metric in FIGURES}
            self._terms = {name: np.log(value) if _is_geomean(name) else value for name, value in values.items()}

    def counts(self) -> list[Counts]:
        """The outcomes of each group."""
        masks = (self._expected, self.measured, self.passed, self.not_applicable)
        sums = (np.bincount(self._labels[mask], minlength=self._count).tolist() for mask in masks)
        return [
            Counts(expected, measured, passed, measured - passed - not_applicable, not_applicable)
            for expected, measured, passed, not_applicable in zip(*sums, strict=True)
        ]

    def usable(self, metric: str) -> Mask:
        """The passing rows that have the metric."""
        usable: Mask = self.passed & np.isfinite(self._terms[metric])
        return usable

    def averages(self, metric: str, rows: Mask | None = None) -> list[Figure]:
        """The average of each group over the usable ones of these rows.

        Without rows over all of them: then a group has none where some cells were not timed again, since their code is known.
        They belong to it, and without them it would be the average of others.
        """
        chosen = self.usable(metric) if rows is None else rows & self.usable(metric)
        if rows is None:
            lacking = self._untimed & ~self.usable(metric)
            chosen &= ~np.isin(self._labels, self._labels[lacking])
        owners = self._labels[chosen]
        counts = np.bincount(owners, minlength=self._count)
        sums = np.bincount(owners, self._terms[metric][chosen], self._count)
        means = np.divide(sums, counts, out=np.full(self._count, np.nan), where=counts > 0)
        values = (np.exp(means) if _is_geomean(metric) else means).tolist()
        return [Figure(metric, n, value if n else None) for n, value in zip(counts.tolist(), values, strict=True)]


def _paired(metric: str, base: _Side, new: _Side) -> list[PairedFigure]:
    both = base.usable(metric) & new.usable(metric)
    averages = [side.averages(metric, rows) for rows in (both, None) for side in (base, new)]
    return [
        PairedFigure(metric, before.n, before.value, after.value, base_all, new_all)
        for before, after, base_all, new_all in zip(*averages, strict=True)
    ]


def _is_geomean(metric: str) -> bool:
    return METRICS[metric].average == "geomean"


def _groups(cells: pd.DataFrame) -> tuple[list[Group], Labels]:
    """The groups in the order of their names, and the number of each row's group."""
    labels = np.asarray(cells.groupby(_GROUP).ngroup(), dtype=np.int64)
    first = np.unique(labels, return_index=True)[1]
    names = zip(*(cells[name].iloc[first].astype(str) for name in _GROUP), strict=True)
    return [Group(*of_group) for of_group in names], labels


def _models(cells: pd.DataFrame, labels: Labels) -> Words:
    """The model of each row, with the batch size where its group has the model at several."""
    models = cells["model"].astype(object)
    is_several = models.groupby([labels, models]).transform("size") > 1
    return models.mask(is_several, models + " " + cells["batch_size"].map(batch_word)).to_numpy(dtype=object)
