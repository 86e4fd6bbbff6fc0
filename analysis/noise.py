"""How far two runs of the same code lie apart, learned from the runs that the store holds: the noise of every cell."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.stats.repeats import successive, within
from analysis.stats.shrinkage import Prior, fit_prior, moderate
from collector.vocabulary import Status

#: Nights of a branch from which on neighbouring ones tell the noise; below, only runs of one commit do.
FEWEST_NIGHTS = 10
#: What siblings say is worth at most this many of a cell's own runs, however alike they seem: some cells have two states
#: (the peak memory of speech_transformer is one of two values that lie 2.7 % apart), which siblings know nothing of.
MOST_FROM_SIBLINGS = 10.0
#: Two runs of one code never agree better than this (relative): what a clock tick and a page of memory are worth.
FLOOR = 0.001

Numbers: TypeAlias = "npt.NDArray[np.float64]"

_UNIT = ("model", "phase", "dtype", "device", "batch_size", "testbed")


@dataclass(frozen=True, slots=True)
class Noise:
    """Of one metric: per cell the variance of ln values from run to run, and the degrees of freedom behind it.

    `prior` is what the cells have in common (None where too few of them have repeats), `repeats` how many degrees of
    freedom the repeats of all cells had together.
    """

    variance: pd.Series
    df: pd.Series
    prior: Prior | None
    repeats: float

    @property
    def typical(self) -> float | None:
        """The standard deviation that a cell without repeats of its own is taken to have; 0.01 is one per cent."""
        return None if self.prior is None else float(np.sqrt(self.prior.variance))


def learn_noise(rows: pd.DataFrame, metric: str) -> Noise:
    """The noise of a metric from the rows of `db.repeats.repeats`, indexed by cell_id.

    Repeats are what ran one **program** of one model on one testbed and
    - at one commit, in several runs or processes (so cells that are two names for one program are each other's A/A), or
    - from 10 nights of a branch on, on neighbouring nights: most commits change nothing, and a few steps are cut off.

    What a cell's own repeats say is shrunk towards what those of its siblings say (`analysis.stats.shrinkage`).
    """
    passing = rows["status"] == Status.PASS.value
    usable = rows[passing & (rows[metric] > 0) & np.isfinite(rows[metric])]
    usable = usable.assign(value=np.log(usable[metric]), unit=_units(usable))
    variance, df = _own(usable)
    prior = fit_prior(variance, df)
    if prior is not None:
        prior = replace(prior, df=min(prior.df, MOST_FROM_SIBLINGS))
    of_cell = usable.drop_duplicates("cell_id", keep="last").set_index("cell_id")["unit"]
    shrunk, total = moderate(variance[of_cell], df[of_cell], prior)
    return Noise(pd.Series(shrunk, of_cell.index), pd.Series(total, of_cell.index), prior, float(df.sum()))


def _own(rows: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """Variance and degrees of freedom of every unit, from its own runs alone."""
    # Cells that share a program may share its measurement, too: a copy is no repeat.
    rows = rows.drop_duplicates(["unit", "run", "started_at", "replicate", "value"])
    count = int(rows["unit"].max()) + 1 if len(rows) else 0
    of_branch = rows.groupby(["unit", "branch"], sort=False)
    is_series = (of_branch["run"].transform("nunique") >= FEWEST_NIGHTS).to_numpy()
    few, many = rows[~is_series], rows[is_series]
    groups = few.groupby(["unit", "branch", "commit"], sort=False).ngroup()
    within_commits = within(few["value"].to_numpy(), groups.to_numpy(), few["unit"].to_numpy(), count)
    squares, df = (a + b for a, b in zip(within_commits, _night_by_night(many, count), strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.maximum(squares / df, FLOOR**2), df


def _night_by_night(rows: pd.DataFrame, count: int) -> tuple[Numbers, Numbers]:
    nights = rows.groupby(["unit", "branch", "run"], sort=False)["value"].mean().reset_index()
    series = nights.groupby(["unit", "branch"], sort=False).ngroup().to_numpy()
    order = np.argsort(series, kind="stable")
    owners = np.zeros(series.max() + 1 if len(series) else 0, dtype=np.int64)
    owners[series] = nights["unit"].to_numpy()
    found = successive(nights["value"].to_numpy()[order], series[order], len(owners), least=FLOOR)
    squares, df = (np.bincount(owners, part, count).astype(np.float64) for part in found)
    return squares, df


def _units(rows: pd.DataFrame) -> pd.Series:
    """What has one noise: a model's program on a testbed; where the program is not known, the cell."""
    program = rows["program"].where(rows["program"].notna(), rows["cell_id"]).astype(str)
    keys = pd.DataFrame({"program": program, **{name: rows[name] for name in _UNIT}})
    return keys.groupby(list(keys.columns), sort=False).ngroup()
