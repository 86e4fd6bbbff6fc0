"""The figures of a branch over its last nights, all groups of cells together: what today's figure is to be seen beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pandas as pd

from analysis.figures import FIGURES
from db.runs import NightInfo
from db.sides import Side

#: Nights that are looked back on.
NIGHTS = 30
#: Passed over asked; all other figures are averages of `analysis.figures.FIGURES`.
RATE = "pass_rate"


@dataclass(frozen=True, slots=True)
class Recent:
    """Entry i of each is of one night, the oldest first; `values` holds NaN where a night has nothing of a figure.

    A pass rate is 0 to 1, an average in the metric's unit, over all cells that passed that night: not paired.
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
    """The figures over these nights, from `db.history.suite_history` of the branch, on the side's machines.

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
    """Sums over the groups of a night, as the groups themselves are sums over their cells."""
    if figure == RATE:
        asked = (rows["planned"] - rows["not_applicable"]).to_numpy(dtype=float)
        top, weight = rows["passed"].to_numpy(dtype=float), np.where(rows["measured"] > 0, asked, 0.0)
    else:
        weight = rows[f"n_{figure}"].to_numpy(dtype=float)
        found = rows[figure].to_numpy(dtype=float)
        with np.errstate(invalid="ignore", divide="ignore"):
            top = weight * (found if FIGURES[figure] == "mean" else np.log(found))
        top = np.where(weight > 0, top, 0.0)
    sums, weights = (np.bincount(of_night, part, count) for part in (top, weight))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(weights > 0, sums / weights, np.nan)
    is_ratio = figure == RATE or FIGURES[figure] == "mean"
    return [float(value) for value in (mean if is_ratio else np.exp(mean))]
