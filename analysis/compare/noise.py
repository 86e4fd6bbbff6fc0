"""Learns the noise of every cell: how far two runs of the same code lie apart, from the runs that the store holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.compare.repeats import Labels, Mask, Numbers, RepeatRows
from analysis.stats.covariates import fit_slopes
from analysis.stats.repeats import EFFICIENCY, around_means, common_drift, successive, sums
from analysis.stats.shrinkage import Prior, fit_prior, moderate

#: Nights of a branch from which on neighbouring ones tell the noise. Below, only runs of one commit do.
FEWEST_NIGHTS = 10
#: The noise of siblings is worth at most this many of a cell's own runs, however alike they seem: some cells have two states
#: that siblings do not have (the peak memory of speech_transformer is one of two values that lie 2.7 % apart).
MOST_FROM_SIBLINGS = 10.0
#: Steps of a long series from base to new that are what is judged, and say nothing about how large steps usually are. Of sides
#: that lie further apart most such steps are noise.
MOST_BETWEEN = 3
#: Two runs of one code never agree better than this (relative): a clock tick and a page of memory are that large.
FLOOR = 0.001


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one metric. Entry i of each array is of `RepeatRows.cells[i]`, NaN where the cell has no such metric.

    `variance` is that of ln values from run to run, `df` are its degrees of freedom. `prior` is what the cells have in common
    (None where too few of them have repeats), `repeats` are the degrees of freedom of the repeats of all cells together.
    With a control the variance is of what the control does not explain: `slope` is by how much ln of the metric moves with ln
    of the control, and the variance of the slope is `variance` divided by `spread`.
    """

    variance: Numbers
    df: Numbers
    prior: Prior | None
    repeats: float
    slope: Numbers
    spread: Numbers

    @property
    def typical(self) -> float | None:
        """The standard deviation that a cell without repeats of its own is taken to have; 0.01 is one per cent."""
        return None if self.prior is None else float(np.sqrt(self.prior.variance))


def learn_noise(
    rows: RepeatRows,
    metric: str,
    control: str | None = None,
    common: Numbers | None = None,
    between: tuple[int, int] | None = None,
) -> Noise:
    """Learns the noise of a metric.

    Repeats are runs of one **program** of one model on one testbed and
    - at one commit, in several runs or processes (so cells that are two names for one program are each other's A/A), or
    - from 10 nights of a branch on, on neighbouring nights: most commits change nothing, and a few steps are cut off.

    A cell's own repeats are shrunk towards those of its siblings (`analysis.stats.shrinkage`). With a `control`, another
    metric of the same process, what it explains is removed first (`analysis.stats.covariates`), cell by cell. Rows without it
    do not count. `common`, of `common_moves`, is removed from both, as it is from two sides.

    `between` are the places in `rows.runs` of the last run of the earlier side and of the first of the later one. Where at most
    `MOST_BETWEEN` steps of a long series lead from one to the other, they do not decide where steps are cut off: beside an
    old spike, which makes two large steps, a step that is judged by the noise would pass for usual.
    """
    values, usable = _logs(rows, metric)
    beside = None
    if control is not None:
        beside, has_it = _logs(rows, control)
        usable &= has_it
    if common is not None:
        values = values - common
        beside = None if beside is None else beside - common
    own = _own(_Repeats(rows, np.flatnonzero(rows.without_copies(usable, values)), between), values, beside)
    prior = fit_prior(own.variance, own.df)
    if prior is not None:
        prior = replace(prior, df=min(prior.df, MOST_FROM_SIBLINGS))
    # Of a cell that changed its program the newest one counts.
    unit = np.full(len(rows.cells), len(own.df))
    unit[rows.cell[usable]] = rows.unit[usable]
    of_units = (*moderate(own.variance, own.df, prior), own.slope, own.spread)
    variance, df, slope, spread = (np.append(of_unit, np.nan)[unit] for of_unit in of_units)
    return Noise(variance, df, prior, float(own.df.sum()), slope, spread)


def common_moves(rows: RepeatRows, control: str) -> Numbers:
    """By row, how far its run lies from the others in what all its cells have in common (of ln).

    This is `common_drift` for every run: the median over its cells of how far `control` is from the median of the cell's
    runs; 0 for fewer than 20 cells.
    """
    values, usable = _logs(rows, control)
    usual = pd.Series(values[usable]).groupby(rows.unit[usable]).transform("median").to_numpy()
    distance, runs = values[usable] - usual, rows.run[usable]
    moves = np.zeros(len(rows.runs))
    for run in np.unique(runs):
        moves[run] = common_drift(distance[runs == run])
    by_row: Numbers = moves[rows.run]
    return by_row


def _logs(rows: RepeatRows, metric: str) -> tuple[Numbers, Mask]:
    """ln of the metric where it can be used, and where that is."""
    values = rows.values(metric)
    usable = rows.passed & (values > 0) & np.isfinite(values)
    return np.log(values, where=usable, out=np.full(len(values), np.nan)), usable


@dataclass(frozen=True, slots=True)
class _Own:
    """The noise of every unit by its own runs."""

    variance: Numbers
    df: Numbers
    slope: Numbers
    spread: Numbers


def _own(repeats: _Repeats, values: Numbers, beside: Numbers | None) -> _Own:
    df, y = repeats.df, repeats.deviations(values)
    slope, spread, squares = np.zeros(len(df)), np.full(len(df), np.inf), repeats.sums(y * y)
    if beside is not None:
        x = repeats.deviations(beside)
        # Products of the same steps, cut off as they are: no sum of them can be more than their squares allow.
        fitted = fit_slopes(repeats.sums(x * x), repeats.sums(x * y), squares)
        slope, spread, df = fitted.slope, fitted.spread, df - fitted.taken
        # What is left is cut off again: where both have steps, what is left need not have one.
        squares = repeats.sums(repeats.deviations(values - slope[repeats.unit] * beside, beside) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _Own(np.maximum(squares / df, FLOOR**2), df, slope, spread)


class _Repeats:
    """Which of the kept rows repeat which: those of few nights by commit, those of many night by night."""

    def __init__(self, rows: RepeatRows, kept: Labels, between: tuple[int, int] | None) -> None:
        self._kept, self.unit = kept, rows.unit
        self._count = int(rows.unit.max(initial=-1)) + 1
        branches, runs = int(rows.branch.max(initial=0)) + 1, max(1, len(rows.runs))
        series = rows.unit[kept] * branches + rows.branch[kept]
        # A night is one run of a series. Nights come out in the order of series and runs.
        nights, self._night_of_row = np.unique(series * runs + rows.run[kept], return_inverse=True)
        length = np.bincount(nights // runs, minlength=self._count * branches)
        is_few = length[series] < FEWEST_NIGHTS
        self._few = kept[is_few]
        commits = int(rows.commit.max(initial=0)) + 1
        _, self._groups = np.unique(series[is_few] * commits + rows.commit[self._few], return_inverse=True)
        # Series of many nights, and the series of each of their nights.
        self._is_many = length[nights // runs] >= FEWEST_NIGHTS
        many = nights[self._is_many]
        self._series, self._series_of_night = np.unique(many // runs, return_inverse=True)
        self._judged = _judged(many % runs, self._series_of_night, between)
        is_step = self._series_of_night[1:] == self._series_of_night[:-1]
        of_steps = self._series[self._series_of_night[1:][is_step]] // branches
        self._owners = np.concatenate((rows.unit[self._few], of_steps))
        worth = 1 - 1 / np.bincount(self._groups)[self._groups]
        self.df = self.sums(np.concatenate((worth, np.full(len(of_steps), EFFICIENCY))))

    def deviations(self, values: Numbers, beside: Numbers | None = None) -> Numbers:
        """How far repeats lie apart: from the mean of their commit, or from the night before. `values` and `beside` are by
        row; for the latter see `successive`."""
        by_night = successive(
            self._nights(values),
            self._series_of_night,
            len(self._series),
            least=FLOOR,
            beside=None if beside is None else self._nights(beside),
            judged=self._judged,
        )
        return np.concatenate((around_means(values[self._few], self._groups), by_night))

    def _nights(self, values: Numbers) -> Numbers:
        """The means of the nights of long series."""
        means = np.bincount(self._night_of_row, values[self._kept]) / np.bincount(self._night_of_row)
        return np.asarray(means[self._is_many])

    def sums(self, of_deviations: Numbers) -> Numbers:
        """What was computed from `deviations`, added up by unit. Squares over `df` are a variance."""
        return sums(of_deviations, self._owners, self._count)


def _judged(runs: Labels, series: Labels, between: tuple[int, int] | None) -> Mask:
    """Which steps from one night to the next of its series are judged; `runs` are the nights' places in `rows.runs`."""
    within: Mask = series[1:] == series[:-1]
    if between is None:
        return np.zeros_like(within)
    judged: Mask = within & (runs[:-1] >= between[0]) & (runs[1:] <= between[1])
    few = np.bincount(series[1:][judged], minlength=int(series.max(initial=0)) + 1) <= MOST_BETWEEN
    return judged & few[series[1:]]
