"""How far two runs of the same code lie apart, learned from the runs that the store holds: the noise of every cell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.compare.repeated import Mask, Numbers, RepeatRows
from analysis.stats.covariates import fit_slopes
from analysis.stats.labels import Labels, numbered, places
from analysis.stats.repeats import EFFICIENCY, around_means, common_drift, successive, sums
from analysis.stats.shrinkage import Prior, fit_prior, moderate

#: Nights of a branch from which on neighbouring ones tell the noise; below, only runs of one commit do.
FEWEST_NIGHTS = 10
#: What siblings say is worth at most this many of a cell's own runs, however alike they seem: some cells have two states
#: (the peak memory of speech_transformer is one of two values that lie 2.7 % apart), which siblings know nothing of.
MOST_FROM_SIBLINGS = 10.0
#: Steps of a long series from base to new that are what is judged, and say nothing of how large steps usually are. Of sides
#: that lie further apart most such steps are noise.
MOST_BETWEEN = 3
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


def learn_noise(
    rows: pd.DataFrame | RepeatRows,
    metric: str,
    control: str | None = None,
    common: Numbers | None = None,
    between: tuple[int, int] | None = None,
) -> Noise:
    """The noise of a metric from the rows of `db.queries.repeats.repeats`, indexed by cell_id.

    Repeats are what ran one **program** of one model on one testbed and
    - at one commit, in several runs or processes (so cells that are two names for one program are each other's A/A), or
    - from 10 nights of a branch on, on neighbouring nights: most commits change nothing, and a few steps are cut off.

    What a cell's own repeats say is shrunk towards what those of its siblings say (`analysis.stats.shrinkage`). With a
    `control`, another metric of the same process, what it explains is taken away first (`analysis.stats.covariates`), cell
    by cell; rows without it do not count. `common`, of `common_moves`, is taken from both, as it is from two sides.

    `between` are the places in `rows.runs` of the last run of the earlier side and of the first of the later one. Where at most
    `MOST_BETWEEN` steps of a long series lead from one to the other, they have no say in where steps are cut off: beside
    an old spike, which makes two large steps, a step that is judged by the noise would pass for usual.
    """
    known = rows if isinstance(rows, RepeatRows) else RepeatRows.of(rows)
    values, usable = _logs(known, metric)
    beside = None
    if control is not None:
        beside, has_it = _logs(known, control)
        usable &= has_it
    if common is not None:
        values = values - common
        beside = None if beside is None else beside - common
    own = _own(_repeats(known, usable, values, between), values, beside)
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


def common_moves(rows: RepeatRows, control: str) -> Numbers:
    """By row, how far its run lies from the others in what all its cells have in common (of ln).

    What `common_drift` is of two sides, told of every run: the median over its cells of how far `control` is from the median
    of the cell's runs; 0 for fewer than 20 cells.
    """
    values, usable = _logs(rows, control)
    usual = pd.Series(values[usable]).groupby(rows.unit[usable]).transform("median").to_numpy()
    off, runs = values[usable] - usual, rows.run[usable]
    found = np.zeros(len(rows.runs))
    for run in np.unique(runs):
        found[run] = common_drift(off[runs == run])
    of_row: Numbers = found[rows.run]
    return of_row


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


def _repeats(rows: RepeatRows, usable: Mask, values: Numbers, between: tuple[int, int] | None) -> _Repeats:
    """Which of the usable rows repeat which: the same for all metrics that the same rows have, so worked out once for them."""
    kept = rows.without_copies(usable, values)
    return rows.worked_out(("repeats", between, kept.tobytes()), lambda: _Repeats(rows, np.flatnonzero(kept), between))


def _own(repeats: _Repeats, values: Numbers, beside: Numbers | None) -> _Own:
    df, y = repeats.df, repeats.deviations(values)
    slope, spread, squares = np.zeros(len(df)), np.full(len(df), np.inf), repeats.sums(y * y)
    if beside is not None:
        x = repeats.deviations(beside)
        # Products of the same steps, cut off as they are: no sum of them can be more than their squares allow.
        fitted = fit_slopes(repeats.sums(x * x), repeats.sums(x * y), squares)
        slope, spread, df = fitted.slope, fitted.spread, df - fitted.taken
        # What is left is cut off anew: where steps of both are, there need not be one of what is left.
        squares = repeats.sums(repeats.deviations(values - slope[repeats.unit] * beside, beside) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _Own(np.maximum(squares / df, FLOOR**2), df, slope, spread)


class _Repeats:
    """Which of the usable rows repeat which: those of few nights by commit, those of many night by night."""

    def __init__(self, rows: RepeatRows, kept: Labels, between: tuple[int, int] | None) -> None:
        count = int(rows.unit.max(initial=-1)) + 1
        self._kept = kept
        branches = int(rows.branch.max(initial=0)) + 1
        series = rows.unit[kept] * branches + rows.branch[kept]
        # A night is what one run has of a series; they come out in the order of series and runs.
        nights, self._of_row = places(series * len(rows.runs) + rows.run[kept])
        of_night = nights // max(1, len(rows.runs))
        length = np.bincount(of_night, minlength=count * branches)
        is_few = length[series] < FEWEST_NIGHTS
        self._few = kept[is_few]
        self._is_many = length[of_night] >= FEWEST_NIGHTS
        self._groups = numbered([series[is_few], rows.commit[self._few]])
        self._size = np.bincount(self._of_row, minlength=len(nights))
        # Series of many nights, and of each of their nights the place of its series among them.
        self._series, self._of_night = places(of_night[self._is_many])
        self.unit, self._count = rows.unit, count
        self._judged = _judged(nights[self._is_many] % max(1, len(rows.runs)), self._of_night, between)
        owners = self._series[self._of_night[1:][self._of_night[1:] == self._of_night[:-1]]] // branches
        self._owners = np.concatenate((rows.unit[self._few], owners))
        worth = 1 - 1 / np.bincount(self._groups)[self._groups]
        self.df = sums(np.concatenate((worth, np.full(len(owners), EFFICIENCY))), self._owners, count)

    def deviations(self, values: Numbers, beside: Numbers | None = None) -> Numbers:
        """How far repeats lie apart: from the mean of their commit, or from the night before. `values` and `beside` are by
        row; for the latter see `successive`."""
        nights = self._nights(values)
        other = None if beside is None else self._nights(beside)
        count = len(self._series)
        by_night = successive(nights, self._of_night, count, least=FLOOR, beside=other, judged=self._judged)
        return np.concatenate((around_means(values[self._few], self._groups), by_night))

    def _nights(self, values: Numbers) -> Numbers:
        """The means of the nights of long series."""
        means: Numbers = np.bincount(self._of_row, values[self._kept], len(self._size)) / self._size
        return means[self._is_many]

    def sums(self, of_deviations: Numbers) -> Numbers:
        """What was made of `deviations`, added up by unit; squares over `df` are a variance."""
        return sums(of_deviations, self._owners, self._count)


def _judged(runs: Labels, series: Labels, between: tuple[int, int] | None) -> Mask:
    """Which steps from one night to the next of its series are judged; `runs` are the nights' places in `rows.runs`."""
    within: Mask = series[1:] == series[:-1]
    if between is None:
        return np.zeros_like(within)
    judged: Mask = within & (runs[:-1] >= between[0]) & (runs[1:] <= between[1])
    few = np.bincount(series[1:][judged], minlength=int(series.max(initial=0)) + 1) <= MOST_BETWEEN
    return judged & few[series[1:]]
