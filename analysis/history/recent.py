"""The averages and pass rates of a branch over its last nights, relative to the newest night."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from collector.metrics import METRICS
from db.nights import NightInfo
from db.queries.sides import Side

#: Number of nights that are shown.
NIGHTS = 30
#: Passed over measured; all other figures are metrics that are averaged.
RATE = "pass_rate"
#: A group of cells counts for a night if its average has as many cells as in the newest night, within this share. Else the
#: average would show the change of the models.
_ALIKE = 0.05
_GROUP = ["suite", "phase", "dtype", "device", "config_id"]


def nights_up_to(nights: Sequence[NightInfo], side: Side) -> list[NightInfo]:
    """The last 30 nights (`NIGHTS`) of the side's branch and testbeds up to the side, oldest first. `nights` are newest first."""
    testbeds, branch = {run.testbed_id for run in side.runs}, side.branches[0]
    last = max(run.started_at for run in side.runs)
    matching = [
        night
        for night in nights
        if night.started_at <= last and any(run.branch == branch and run.testbed_id in testbeds for run in night.runs)
    ]
    return matching[:NIGHTS][::-1]


def recent(
    history: pd.DataFrame, nights: Sequence[NightInfo], side: Side, figures: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """The figures of these nights on the side's testbeds, oldest first; NaN where a night has no such figure.

    A pass rate is 0 to 1. An average is a ratio to the newest night, over the groups of cells that both nights have. `history`
    is the branch's `db.queries.series.suite_history`. Raises `KeyError` where it does not have a figure.
    """
    testbeds = {run.testbed_id for run in side.runs}
    index_of = {run.run_id: at for at, night in enumerate(nights) for run in night.runs if run.testbed_id in testbeds}
    rows = history[history["run_id"].isin(index_of.keys())]
    of_night = rows["run_id"].map(index_of).to_numpy(dtype=np.int64)
    return {name: tuple(_of_nights(rows, of_night, len(nights), name)) for name in figures}


def _of_nights(rows: pd.DataFrame, of_night: np.ndarray, count: int, figure: str) -> list[float]:
    if figure == RATE:
        counts = (rows[name].to_numpy(dtype=float) for name in ("passed", "attempted"))
        return _over(*(np.bincount(of_night, part, count) for part in counts))
    groups = rows.groupby(_GROUP, sort=False).ngroup().to_numpy()
    shape = (int(groups.max(initial=-1)) + 1, count)
    cells, sums = np.zeros(shape), np.zeros(shape)
    weight, averages = (rows[name].to_numpy(dtype=float) for name in (f"n_{figure}", figure))
    is_mean = METRICS[figure].average == "mean"
    usable = (weight > 0) & (averages > 0)
    values = np.where(usable, averages if is_mean else np.log(np.where(usable, averages, 1.0)), 0.0)
    np.add.at(cells, (groups, of_night), np.where(usable, weight, 0.0))
    np.add.at(sums, (groups, of_night), np.where(usable, weight, 0.0) * values)
    newest = cells[:, -1:]
    weights = np.where((cells > 0) & (np.abs(cells - newest) <= _ALIKE * newest), newest, 0.0)
    level = np.divide(sums, cells, out=np.zeros(shape), where=cells > 0)
    then, now = ((weights * part).sum(axis=0) for part in (level, level[:, -1:]))
    if is_mean:
        return _over(then, now)
    total = weights.sum(axis=0)
    return [float(np.exp(value)) for value in _over(then - now, total)]


def _over(top: np.ndarray, below: np.ndarray) -> list[float]:
    """The ratios, NaN where the denominator is 0."""
    return [float(value) for value in np.divide(top, below, out=np.full(len(below), np.nan), where=below > 0)]
