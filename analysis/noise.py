"""How far two runs of the same code lie apart, learned from the runs that the store holds: the noise of every cell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.repeated import Mask, Numbers, RepeatRows
from analysis.stats.covariates import fit_slopes
from analysis.stats.labels import Labels, numbered, places
from analysis.stats.repeats import successive, within
from analysis.stats.shrinkage import Prior, fit_prior, moderate

#: Nights of a branch from which on neighbouring ones tell the noise; below, only runs of one commit do.
FEWEST_NIGHTS = 10
#: What siblings say is worth at most this many of a cell's own runs, however alike they seem: some cells have two states
#: (the peak memory of speech_transformer is one of two values that lie 2.7 % apart), which siblings know nothing of.
MOST_FROM_SIBLINGS = 10.0
#: Two runs of one code never agree better than this (relative): what a clock tick and a page of memory are worth.
FLOOR = 0.001


@dataclass(frozen=True, slots=True)
class Noise:
    """Of one metric: per cell the variance of ln values from run to run, and the degrees of freedom behind it.

    `prior` is what the cells have in common (None where too few of them have repeats), `repeats` how many degrees of
    freedom the repeats of all cells had together. Learned beside a control, the variance is of what the control does not
    explain: `slope` is by how much ln of the metric moves with ln of the control, `spread` what the slope's own variance is
    `variance` divided by.
    """

    variance: pd.Series
    df: pd.Series
    prior: Prior | None
    repeats: float
    slope: pd.Series
    spread: pd.Series

    @property
    def typical(self) -> float | None:
        """The standard deviation that a cell without repeats of its own is taken to have; 0.01 is one per cent."""
        return None if self.prior is None else float(np.sqrt(self.prior.variance))


def learn_noise(rows: pd.DataFrame | RepeatRows, metric: str, control: str | None = None) -> Noise:
    """The noise of a metric from the rows of `db.repeats.repeats`, indexed by cell_id.

    Repeats are what ran one **program** of one model on one testbed and
    - at one commit, in several runs or processes (so cells that are two names for one program are each other's A/A), or
    - from 10 nights of a branch on, on neighbouring nights: most commits change nothing, and a few steps are cut off.

    What a cell's own repeats say is shrunk towards what those of its siblings say (`analysis.stats.shrinkage`). With a
    `control`, another metric of the same process, what it explains is taken away first (`analysis.stats.covariates`), cell
    by cell; rows without it do not count.
    """
    known = rows if isinstance(rows, RepeatRows) else RepeatRows.of(rows)
    values, usable = _logs(known, metric)
    beside = None
    if control is not None:
        beside, has_it = _logs(known, control)
        usable &= has_it
    own = _own(_repeats(known, usable, values), values, beside)
    prior = fit_prior(own.variance, own.df)
    if prior is not None:
        prior = replace(prior, df=min(prior.df, MOST_FROM_SIBLINGS))
    # Of a cell that changed its program the newest one counts.
    unit_of = np.full(len(known.cells), -1)
    unit_of[known.cell[usable]] = known.unit[usable]
    has = np.flatnonzero(unit_of >= 0)
    # One index for all metrics that the same cells have, so that it is looked through once for them.
    units, cells = unit_of[has], known.worked_out(("cells", has.tobytes()), lambda: known.cells[has])
    shrunk, total = moderate(own.variance[units], own.df[units], prior)
    found = (pd.Series(values, cells) for values in (shrunk, total, own.slope[units], own.spread[units]))
    variance, df, slope, spread = found
    return Noise(variance, df, prior, float(own.df.sum()), slope, spread)


def _logs(rows: RepeatRows, metric: str) -> tuple[Numbers, Mask]:
    """ln of the metric where it can be used, and where that is."""
    found = rows.values(metric)
    usable = rows.passed & (found > 0) & np.isfinite(found)
    return np.log(found, where=usable, out=np.full(len(found), np.nan)), usable


@dataclass(frozen=True, slots=True)
class _Own:
    """What every unit's own runs say."""

    variance: Numbers
    df: Numbers
    slope: Numbers
    spread: Numbers


def _repeats(rows: RepeatRows, usable: Mask, values: Numbers) -> _Repeats:
    """Which of the usable rows repeat which: the same for all metrics that the same rows have, so worked out once for them."""
    kept = rows.without_copies(usable, values)
    return rows.worked_out(("repeats", kept.tobytes()), lambda: _Repeats(rows, np.flatnonzero(kept)))


def _own(repeats: _Repeats, values: Numbers, beside: Numbers | None) -> _Own:
    squares, df = repeats.squares(values)
    slope, spread = np.zeros(len(df)), np.full(len(df), np.inf)
    if beside is not None:
        of_control = repeats.squares(beside)[0]
        # Sums of products by way of sums of squares: 2 xy = (x + y)² - x² - y².
        products = (repeats.squares(values + beside)[0] - of_control - squares) / 2
        fitted = fit_slopes(of_control, products, squares)
        slope, spread, squares, df = fitted.slope, fitted.spread, fitted.left, df - fitted.taken
    with np.errstate(invalid="ignore", divide="ignore"):
        return _Own(np.maximum(squares / df, FLOOR**2), df, slope, spread)


class _Repeats:
    """Which of the usable rows repeat which: those of few nights by commit, those of many night by night."""

    def __init__(self, rows: RepeatRows, kept: Labels) -> None:
        self._count = count = int(rows.unit.max(initial=-1)) + 1
        self._kept = kept
        self._branches = branches = int(rows.branch.max(initial=0)) + 1
        series = rows.unit[kept] * branches + rows.branch[kept]
        # A night is what one run has of a series; they come out in the order of series and runs.
        nights, self._of_row = places(series * len(rows.runs) + rows.run[kept])
        of_night = nights // max(1, len(rows.runs))
        length = np.bincount(of_night, minlength=count * branches)
        is_few = length[series] < FEWEST_NIGHTS
        self._few = kept[is_few]
        self._is_many = length[of_night] >= FEWEST_NIGHTS
        self._groups = numbered([series[is_few], rows.commit[self._few]])
        self._owners = rows.unit[self._few]
        self._size = np.bincount(self._of_row, minlength=len(nights))
        # Series of many nights, and of each of their nights the place of its series among them.
        self._series, self._of_night = places(of_night[self._is_many])

    def squares(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """By unit, the sum of squares between repeats and its degrees of freedom; `values` has an entry for every row."""
        within_commits = within(values[self._few], self._groups, self._owners, self._count)
        means = np.bincount(self._of_row, values[self._kept], len(self._size)) / self._size
        by_night = self._night_by_night(means[self._is_many])
        squares, df = (a + b for a, b in zip(within_commits, by_night, strict=True))
        return squares, df

    def _night_by_night(self, means: Numbers) -> tuple[Numbers, Numbers]:
        """`means` night by night, one series after the other; a series is unit x branch."""
        found = successive(means, self._of_night, len(self._series), least=FLOOR)
        owners = self._series // self._branches
        squares, df = (np.bincount(owners, part, self._count).astype(np.float64) for part in found)
        return squares, df
