"""The figures of a branch over its last nights, held against the newest: what today's figure is to be seen beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pandas as pd

from analysis.compare.results import FIGURES
from db.queries.sides import Side
from db.runs import NightInfo

#: Nights that are looked back on.
NIGHTS = 30
#: Passed over asked; all other figures are averages of `analysis.compare.results.FIGURES`.
RATE = "pass_rate"
#: A group of cells (suite x config x setting) counts where as many were averaged as in the newest night, give or take this
#: part: an average over other models tells of the models.
_ALIKE = 0.05
_GROUP = ["suite", "phase", "dtype", "device", "config_id"]


@dataclass(frozen=True, slots=True)
class Recent:
    """Entry i of each is of one night, the oldest first; `values` holds NaN where a night has nothing of a figure.

    A pass rate is 0 to 1. An average is its ratio to that of the newest night, over the groups of cells that are alike in both.
    """

    nights: tuple[str, ...]
    started_at: tuple[datetime, ...]
    values: Mapping[str, tuple[float, ...]]


def nights_up_to(nights: Sequence[NightInfo], side: Side, count: int = NIGHTS) -> list[NightInfo]:
    """Of all nights (newest first) the last ones of the side's branch and machines up to the side, oldest first."""
    testbeds, branch = {run.testbed_id for run in side.runs}, side.branches[0]
    last = max(run.started_at for run in side.runs)
    found = [
        night
        for night in nights
        if night.started_at <= last and any(run.branch == branch and run.testbed_id in testbeds for run in night.runs)
    ]
    return found[:count][::-1]


def recent(history: pd.DataFrame, nights: Sequence[NightInfo], side: Side, figures: Sequence[str]) -> Recent:
    """The figures over these nights, from `db.queries.history.suite_history` of the branch, on the side's machines.

    Raises:
        KeyError: `history` does not have a figure.
    """
    testbeds = {run.testbed_id for run in side.runs}
    night_of = {run.run_id: night.night for night in nights for run in night.runs if run.testbed_id in testbeds}
    rows = history[history["run_id"].isin(night_of.keys())]
    places = {night.night: place for place, night in enumerate(nights)}
    of_night = np.array([places[night_of[run]] for run in rows["run_id"].tolist()], dtype=np.int64)
    values = {name: tuple(_of_nights(rows, of_night, len(nights), name)) for name in figures}
    return Recent(tuple(night.night for night in nights), tuple(night.started_at for night in nights), values)


def _of_nights(rows: pd.DataFrame, of_night: np.ndarray, count: int, figure: str) -> list[float]:
    if figure == RATE:
        asked = (rows["planned"] - rows["not_applicable"]).to_numpy(dtype=float)
        weight = np.where(rows["measured"] > 0, asked, 0.0)
        passed, all_asked = (
            np.bincount(of_night, part, count) for part in (rows["passed"].to_numpy(dtype=float), weight)
        )
        return _over(np.where(all_asked > 0, passed, 0.0), all_asked)
    groups = rows.groupby(_GROUP, sort=False).ngroup().to_numpy()
    shape = (int(groups.max(initial=-1)) + 1, count)
    cells, sums = np.zeros(shape), np.zeros(shape)
    weight, found = (rows[name].to_numpy(dtype=float) for name in (f"n_{figure}", figure))
    is_mean = FIGURES[figure] == "mean"
    usable = (weight > 0) & (found > 0)
    values = np.where(usable, found if is_mean else np.log(np.where(usable, found, 1.0)), 0.0)
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
    """The ratios, NaN where there is nothing below."""
    return [float(value) for value in np.divide(top, below, out=np.full(len(below), np.nan), where=below > 0)]
