"""Learn the noise of every cell, the spread of runs of the same code, from all stored runs.

The measurements of the same cells in many runs are held as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median_low
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.stats.averages import Labels, Mask, Numbers
from analysis.stats.run_noise import (
    EFFICIENCY,
    FEWEST_REPEATED,
    MEDIAN_EFFICIENCY,
    MOST_FROM_SIBLINGS,
    Prior,
    Tail,
    around_means,
    cells_with_gaps,
    common_drift,
    distances_from_before,
    distances_from_neighbours,
    fit_prior,
    fit_slopes,
    moderate,
    successive,
    sums,
    tail_of,
    two_modes,
)
from collector.metrics import METRICS
from db.connecting import Source
from db.queries.series import LOOK_BACK, ReadRun, Repeats, repeats
from db.queries.sides import Side

#: The columns that tell cells apart, except for the config. Cells of one program that agree in all of them share one noise.
_OF_CELL = ["model", "phase", "dtype", "device", "batch_size"]
#: Fewest changes of status of a flaky cell.
_TURNS = 3


class RepeatRows:
    """The measurements of `db.queries.series.Repeats`, oldest run first. Entry i of each array belongs to measurement i.

    `cells` are the cells' ids, and `cell` is the index of each row's cell in it. `runs` are the store's numbers of the runs that
    have rows, oldest first, and `run` is the index of each row's run in it. `branch` and `version` are labels from 0. A version
    is one commit under one program. `unit` is a label of the rows that share one noise: one model's cells of one program on one
    testbed, by the program that a cell has now. A cell whose program is not known is a unit of its own.
    """

    def __init__(self, repeats: Repeats) -> None:
        runs = repeats.runs[repeats.runs["run"].isin(repeats.rows["run"])]
        run: Labels = pd.Index(runs["run"]).get_indexer(repeats.rows["run"]).astype(np.int64)
        in_order = np.argsort(run, kind="stable")
        self._rows = repeats.rows.iloc[in_order]
        self.run = run[in_order]
        self.runs: Labels = runs["run"].to_numpy()
        self._runs = runs
        self.branch, commit, self._testbed = (
            pd.factorize(runs[name])[0][self.run] for name in ("branch", "commit", "testbed")
        )
        #: The night of each of `runs`, and of each row: a label from 0, in the order of the nights' first runs.
        self.night_of_run: Labels = pd.factorize(runs["night"])[0].astype(np.int64)
        self.night: Labels = self.night_of_run[self.run]
        program = pd.factorize(self._rows["program"])[0] + 1  # 0 where it is not known
        self.version = pd.factorize(commit * (len(self._rows) + 1) + program)[0]
        self.cells = pd.Index(repeats.cells["cell_id"])
        self.cell: Labels = pd.Index(repeats.cells["cell"]).get_indexer(self._rows["cell"]).astype(np.int64)
        self._cell_but_config = repeats.cells.groupby(_OF_CELL, sort=False).ngroup().to_numpy()
        self.passed: Mask = self._rows["passed"].to_numpy() == 1
        self._repeats: dict[tuple[bytes, tuple[int, int] | None], _Repeats] = {}

    @classmethod
    def behind(
        cls,
        source: Source,
        sides: Sequence[Side],
        metrics: Iterable[str],
        *,
        look_back: int = LOOK_BACK,
        read: ReadRun | None = None,
        with_untimed: bool = True,
        of_sides: Iterable[str] = (),
    ) -> RepeatRows:
        """Return the measurements that the store has of the cells of these sides, as `db.queries.series.repeats` reads them.

        Raise `KeyError` for a metric that does not exist.
        """
        further = sorted(of_sides)
        return cls(
            repeats(
                source,
                sides,
                sorted(metrics),
                look_back=look_back,
                read=read,
                with_untimed=with_untimed,
                of_sides=further,
            )
        )

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, metric: str) -> Numbers:
        """Return the metric as it was measured, NaN where it was not. Raise `KeyError` if the rows do not have it."""
        return self._rows[metric].to_numpy(dtype=np.float64)

    @cached_property
    def program(self) -> Labels:
        """Labels of the programs that the rows' cells have now."""
        # A commit that adds an option to Inductor changes every program, but not the noise. So all runs of a cell belong to the
        # program that it has now.
        by_cell = self._rows["program"].groupby([self.cell, self._testbed])
        program = by_cell.transform("last").to_numpy()
        # A cell whose program is not known is a program of its own.
        return pd.factorize(np.where(np.isnan(program), -1.0 - self.cell, program))[0]

    @cached_property
    def unit(self) -> Labels:
        """Labels of the rows that share one noise (see the class)."""
        same = np.ravel_multi_index(
            (self.program, self._cell_but_config[self.cell], self._testbed),
            (len(self) + 1, len(self.cells), len(self.runs)),
        )
        return pd.factorize(same)[0]

    @cached_property
    def _same_unit(self) -> pd.DataFrame:
        """The rows that share unit, run and replicate with another row, by their number: only these can be copies."""
        columns = {name: self._rows[name].to_numpy() for name in ("replicate", "started_at")}
        rows = pd.DataFrame({"unit": self.unit, "run": self.run, **columns})
        return rows[rows.duplicated(["unit", "run", "replicate"], keep=False)]

    def without_copies(self, usable: Mask, values: Numbers) -> Mask:
        """Return the usable rows without copies: cells of one program may share a measurement, which is then counted once."""
        rows = self._same_unit[usable[self._same_unit.index]]
        copies = rows.assign(value=values[rows.index]).duplicated()
        kept = usable.copy()
        kept[rows.index[copies]] = False
        return kept

    def repeats(self, kept: Mask, between: tuple[int, int] | None) -> _Repeats:
        """Return the repeats among the kept rows. Most metrics are measured in the same rows, so the groups are cached."""
        key = kept.tobytes(), between
        if key not in self._repeats:
            self._repeats[key] = _Repeats(self, np.flatnonzero(kept), between)
        return self._repeats[key]

    def of_side(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers, Numbers]:
        """Return for each of `cells` the mean ln of the metric over the runs of a side in which it passed, and two counts.

        The counts are the numbers of these runs and of their nights. Replicates of a run are averaged first. The mean is NaN and
        the counts are 0 where there is no such run. `keys` are the store's numbers of the side's runs.
        """
        values = self.values(metric)
        usable = np.flatnonzero(self._of_side(keys) & (values > 0))
        pairs, of_row = np.unique(self.cell[usable] * len(self.runs) + self.run[usable], return_inverse=True)
        by_run = np.bincount(of_row, np.log(values[usable])) / np.bincount(of_row)
        owner, count = pairs // max(1, len(self.runs)), len(self.cells)
        runs = np.bincount(owner, minlength=count).astype(np.float64)
        measured = np.unique(owner * len(self.runs) + self.night_of_run[pairs % max(1, len(self.runs))])
        nights = np.bincount(measured // max(1, len(self.runs)), minlength=count).astype(np.float64)
        with np.errstate(invalid="ignore"):
            return np.bincount(owner, by_run, count) / runs, runs, nights

    def of_night(self, night: str) -> list[int]:
        """Return the store's numbers of the runs of a night that have rows."""
        keys: list[int] = self._runs.loc[self._runs["night"] == night, "run"].tolist()
        return keys

    def modes(self, metric: str) -> dict[str, tuple[float, float]]:
        """Return both levels of each cell whose runs go to and fro between two levels (`two_modes`), by `cell_id`.

        The runs are in the order of `_places`: two commits measured in turn are no two modes.
        """
        values = self.values(metric)
        usable = np.flatnonzero(self.passed & (values > 0))
        usable = usable[np.isin(self.cell[usable], cells_with_gaps(np.log(values[usable]), self.cell[usable]))]
        usable = usable[np.lexsort((self._places()[self.run[usable]], self.cell[usable]))]
        starts = np.flatnonzero(np.diff(self.cell[usable], prepend=-1))
        found = {}
        for of_cell in np.split(usable, starts[1:]) if len(usable) else ():
            if levels := two_modes(np.log(values[of_cell])):
                found[str(self.cells[self.cell[of_cell[0]]])] = levels
        return found

    def extremes(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers]:
        """Return the least and the greatest value of each of `cells` in a side's measurements that passed; NaN for none."""
        usable, values = self._of_side(keys), self.values(metric)
        least, most = np.full((2, len(self.cells)), np.nan)
        np.fmin.at(least, self.cell[usable], values[usable])
        np.fmax.at(most, self.cell[usable], values[usable])
        return least, most

    def _of_side(self, keys: Iterable[int]) -> Mask:
        of_side: Mask = np.isin(self.runs, list(keys))[self.run] & self.passed
        return of_side

    def _places(self) -> Labels:
        """Return the place of each run in an order in which the runs of one commit of a branch stand together."""
        commit = self._runs.groupby(["branch", "commit"], sort=False).ngroup().to_numpy()
        places: Labels = np.empty(len(self.runs), dtype=np.int64)
        places[np.argsort(commit, kind="stable")] = np.arange(len(self.runs))
        return places

    def flaky(self) -> set[str]:
        """Return the ids of cells that broke, were fixed and broke again (or the other way round), last in their newest run.

        The runs are in the order of `_places`: measuring two commits in turn makes no cell flaky.
        """
        place = self._places()[self.run]
        pairs, of_row = np.unique(self.cell * max(1, len(self.runs)) + place, return_inverse=True)
        # A run failed if any of its replicates failed.
        failed = np.bincount(of_row, ~self.passed, len(pairs)) > 0
        cells = pairs // max(1, len(self.runs))
        turned = (cells[1:] == cells[:-1]) & (failed[1:] != failed[:-1])
        turns = np.bincount(cells[1:][turned], minlength=len(self.cells))
        is_last = np.append(cells[1:] != cells[:-1], True)[1:]
        last_turned = np.bincount(cells[1:][is_last & turned], minlength=len(self.cells)) > 0
        return set(self.cells[(turns >= _TURNS) & last_turned])


#: With at least this many commits of a branch, neighbouring nights count as repeats. With fewer, only runs of one commit do:
#: a release that is measured several times shows its own noise, and the next release is another program.
FEWEST_COMMITS = 10
#: If at least this many cells of a program have repeats, the program's cells are siblings of each other only. Device time under
#: max_autotune varies far more than under the default program, since each process chooses its kernels anew.
FEWEST_SIBLINGS = 20
#: The steps of a series from base to new are judged, so they do not define the size of usual steps, if there are at most this
#: many. With more steps between the sides, most of them are noise.
MOST_BETWEEN = 3
#: The part of the variance that the runs of a night have in common, assumed where no night has two runs.
UNKNOWN_PART = 0.5
#: The median of the square of a standard normal variable.
MEDIAN_OF_SQUARE = 0.4549
#: Smallest relative noise. A clock tick or a page of memory is about this large.
FLOOR = 0.001


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one metric. Entry i of each array belongs to `RepeatRows.cells[i]`, NaN where the cell has no such metric.

    `variance` is the variance of ln values between runs of different nights, `df` are its degrees of freedom, and `between` is
    the part of it that the runs of one night have in common. `tail` has the distances of runs from their neighbours. `prior` is
    the distribution over all cells (None where too few have repeats). `repeats` are the degrees of freedom of the repeats of
    all cells together. With a control, `variance` is the part that the control does not explain. `slope` is the change of ln of
    the metric per change of ln of the control. The variance of the slope is `variance` divided by `spread`.
    """

    variance: Numbers
    df: Numbers
    prior: Prior | None
    repeats: float
    slope: Numbers
    spread: Numbers
    between: Numbers
    tail: Tail

    @property
    def typical(self) -> float | None:
        """The median standard deviation of the cells; 0.01 is 1 %."""
        known = self.variance[np.isfinite(self.variance)]
        return float(np.sqrt(np.median(known))) if self.prior and known.size else None


def learn_noise(
    rows: RepeatRows,
    metric: str,
    control: str | None = None,
    common: Numbers | None = None,
    between: tuple[int, int] | None = None,
    assumed: float | None = None,
) -> Noise:
    """Learn the noise of a metric (docs/statistics.md, "Two sides").

    Repeats are runs of one cell on one testbed, or of cells that are two names for one program: runs of one commit and program,
    or of neighbouring nights where a branch has at least 10 commits. The few large steps between nights are clipped.

    A `control` is another metric of the same process. The part that it explains is removed first, cell by cell, and rows without
    it do not count. `common` is the result of `common_moves`, which is subtracted from both metrics. `between` has two indices of
    `rows.runs`: the last run of the earlier side and the first run of the later side. If at most `MOST_BETWEEN` steps lie between
    them, the limit at which steps are clipped is found without these steps: else an old spike, which makes two large steps, would
    make the judged step look usual. `assumed` is the noise before anything was repeated (`fit_prior`).
    """
    values, usable = _logs(rows, metric)
    beside = None
    if control is not None:
        beside, has_it = _logs(rows, control)
        usable &= has_it
    if common is not None:
        values = values - common
        beside = None if beside is None else beside - common
    repeats = rows.repeats(rows.without_copies(usable, values), between)
    own_variance, own_df, *fitted = _own(repeats, values, beside)
    prior = fit_prior(own_variance, own_df, assumed)
    left = values if beside is None else values - fitted[0][rows.unit] * beside
    program = np.zeros(len(own_df), dtype=np.int64)
    program[rows.unit] = rows.program
    # The unit of a cell on several testbeds is the one of its newest run.
    unit = np.full(len(rows.cells), len(own_df))
    unit[rows.cell[usable]] = rows.unit[usable]
    moderated = _with_siblings(own_variance, own_df, prior, program)
    of_units = (
        *repeats.with_nights(left, *moderated, in_turn=between is not None and between[0] > between[1]),
        *fitted,
    )
    variance, df, part, slope, spread = (np.append(of_unit, np.nan)[unit] for of_unit in of_units)
    tail = repeats.tail(left)
    tail = replace(tail, **{name: np.append(getattr(tail, name), np.nan)[unit] for name in ("scale", "apart")})
    return Noise(variance, df, prior, float(own_df.sum()), slope, spread, part, tail)


def common_moves(rows: RepeatRows, control: str) -> Numbers:
    """Return the common deviation of each row's run, in ln.

    It is the median, over the rows of the run, of the deviation of `control` from the median of its unit, and 0 for fewer than 20
    rows (`common_drift`).
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
    """Return ln of the metric (NaN where not usable), and a mask of the usable rows: they passed with a value above its floor."""
    values = rows.values(metric)
    usable = rows.passed & (values > METRICS[metric].floor) & np.isfinite(values)
    return np.log(values, where=usable, out=np.full(len(values), np.nan)), usable


def _own(repeats: _Repeats, values: Numbers, beside: Numbers | None) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return the noise of every unit from its own runs: variance, df, slope and spread."""
    df, y = repeats.df, repeats.deviations(values)
    slope, spread, squares = np.zeros(len(df)), np.full(len(df), np.inf), repeats.sums(y * y)
    if beside is not None:
        x = repeats.deviations(beside)
        # The products use the same clipped steps as the squares, so that they stay consistent.
        fitted = fit_slopes(repeats.sums(x * x), repeats.sums(x * y), squares)
        slope, spread, df = fitted.slope, fitted.spread, df - fitted.taken
        # The residuals are clipped on their own: a step that both metrics have may vanish in the residuals.
        squares = repeats.sums(repeats.deviations(values - slope[repeats.unit] * beside, beside) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.maximum(squares / df, FLOOR**2), df, slope, spread


def _with_siblings(variance: Numbers, df: Numbers, prior: Prior | None, program: Labels) -> tuple[Numbers, Numbers]:
    """Return variance and df of every unit, moderated by its siblings: the units of its program if enough, else all units."""
    moderated, freedom = moderate(variance, df, prior)
    for label in np.flatnonzero(np.bincount(program[df > 0]) >= FEWEST_SIBLINGS):
        of = program == label
        moderated[of], freedom[of] = moderate(variance[of], df[of], fit_prior(variance[of], df[of]))
    return moderated, freedom


class _RunsInTime(NamedTuple):
    """Runs in the order of `_Repeats._in_time`; `rows` are their measurements, and `of_row` is the run of each row."""

    rows: Labels
    of_row: Labels
    series: Labels
    owner: Labels
    is_earlier: Mask


class _Repeats:
    """Repeats among the kept rows: runs of one commit in series with few commits, neighbouring nights in series with many."""

    def __init__(self, rows: RepeatRows, kept: Labels, between: tuple[int, int] | None) -> None:
        self._kept, self.unit, self._run = kept, rows.unit, rows.run[kept]
        self._count = int(rows.unit.max(initial=-1)) + 1
        branches, labels = int(rows.branch.max(initial=0)) + 1, int(rows.night.max(initial=0)) + 1
        series = rows.unit[kept] * branches + rows.branch[kept]
        # A night of a series. `nights` is sorted by series, then by night.
        nights, self._night_of_row, self._size = np.unique(
            series * labels + rows.night[kept], return_inverse=True, return_counts=True
        )
        versions = int(rows.version.max(initial=0)) + 1
        of_versions = np.unique(series * versions + rows.version[kept])
        length = np.bincount(of_versions // versions, minlength=self._count * branches)
        is_few = length[series] < FEWEST_COMMITS
        self._few = kept[is_few]
        _, self._groups = np.unique(series[is_few] * versions + rows.version[self._few], return_inverse=True)
        # Series of many commits, and the series of each of their nights.
        self._is_many = length[nights // labels] >= FEWEST_COMMITS
        self._series_of_all, self._unit_of_night = nights // labels, nights // labels // branches
        self._label = nights % labels
        self._version = np.zeros(len(nights), dtype=np.int64)
        self._version[self._night_of_row] = rows.version[kept]
        many = nights[self._is_many]
        self._series, self._series_of_night = np.unique(many // labels, return_inverse=True)
        self._night_of_run = rows.night_of_run
        self._last_earlier = None if between is None else between[0]
        self._between = None if between is None else tuple(rows.night_of_run[list(between)].tolist())
        self._judged = _judged(many % labels, self._series_of_night, self._between)
        is_step = self._series_of_night[1:] == self._series_of_night[:-1]
        of_steps = self._series[self._series_of_night[1:][is_step]] // branches
        self._owners = np.concatenate((rows.unit[self._few], of_steps))
        worth = 1 - 1 / np.bincount(self._groups)[self._groups]
        self.df = self.sums(np.concatenate((worth, np.full(len(of_steps), EFFICIENCY))))

    def deviations(self, values: Numbers, beside: Numbers | None = None) -> Numbers:
        """Return the deviations of repeats from the mean of their commit, or from the night before.

        `values` and `beside` have an entry per row. `beside` is passed on to `successive`.
        """
        by_night = successive(
            self._nights(values)[self._is_many],
            self._series_of_night,
            len(self._series),
            least=FLOOR,
            beside=None if beside is None else self._nights(beside)[self._is_many],
            judged=self._judged,
        )
        return np.concatenate((around_means(values[self._few], self._groups), by_night))

    def _nights(self, values: Numbers) -> Numbers:
        """Return the mean of each night of each series."""
        means: Numbers = np.bincount(self._night_of_row, values[self._kept]) / self._size
        return means

    def with_nights(
        self, values: Numbers, variance: Numbers, df: Numbers, *, in_turn: bool
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return variance and df of every unit between runs of different nights, and the part that the runs of a night share.

        `variance` is the variance of the means of nights where a series is long enough for them, else of repeats of a commit.
        If both sides were measured `in_turn`, they share the nights: `variance` and `df` stay as they are, and the part is 0.
        """
        if in_turn or not len(self._size):
            return variance, df, np.zeros(self._count)
        is_many = np.zeros(self._count, dtype=bool)
        is_many[self._unit_of_night[self._is_many]] = True
        within, within_df = self._within(values)
        # Runs of a night.
        of_unit = np.bincount(self._unit_of_night, minlength=self._count)
        size = np.maximum(np.bincount(self._unit_of_night, self._size, self._count), 1) / np.maximum(of_unit, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            whole = variance + np.where(within_df > 0, within, 0) * (1 - 1 / size)
            part = np.where(within_df > 0, np.clip(1 - within / whole, 0, 1), UNKNOWN_PART)
            ratio, ratio_df = self._nights_over_repeats(values, variance, is_many)
            beyond = (ratio - 1) * variance / size
            few = variance + beyond
            # Satterthwaite's degrees of freedom of a sum (Biometrics Bulletin 2, 1946).
            few_df = np.nan_to_num(few**2 / (variance**2 / df + (beyond**2 / ratio_df if ratio_df else 0)))
        return (
            np.where(is_many, whole, few),
            np.where(is_many, df, few_df),
            np.where(is_many, part, np.nan_to_num(beyond / few)),
        )

    @cached_property
    def _in_time(self) -> _RunsInTime:
        """The runs of each series without runs after the last run of the earlier side, in the order of time.

        The runs of a night stand together: else, of two sides measured in turn, each run would be apart from the next.
        """
        series = self._series_of_all[self._night_of_row]
        order = np.lexsort((self._run, self._night_of_row))
        if self._last_earlier is not None:
            order = order[self._run[order] <= self._last_earlier]
        series, run = series[order], self._run[order]
        is_first = (np.diff(series, prepend=-1) != 0) | (np.diff(run, prepend=-1) != 0)
        night = self._night_of_run[run[is_first]]
        is_earlier = np.zeros(len(night), dtype=bool) if self._between is None else night == self._between[0]
        rows = self._kept[order]
        return _RunsInTime(rows, np.cumsum(is_first) - 1, series[is_first], self.unit[rows[is_first]], is_earlier)

    def tail(self, values: Numbers) -> Tail:
        """Return the distances of runs from their neighbours in time, over the usual distance of their unit; arrays are by unit.

        Runs after the last run of the earlier side are left out, since they are judged. No run is apart because of a new level.
        """
        runs = self._in_time
        means = np.bincount(runs.of_row, values[runs.rows]) / np.bincount(runs.of_row)
        distance, known = distances_from_neighbours(means, runs.series)
        from_before = distances_from_before(means, runs.series, runs.is_earlier)
        has_it = np.isfinite(from_before)
        with np.errstate(invalid="ignore"):
            runs_of = np.bincount(runs.owner[has_it], minlength=self._count)
            apart = sums(from_before[has_it], runs.owner[has_it], self._count) / runs_of
        return replace(tail_of(distance[known], runs.owner[known], self._count), apart=apart)

    def _within(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Return for every unit the variance between the runs of a night, moderated, and the unit's own degrees of freedom."""
        deviations = around_means(values[self._kept], self._night_of_row)
        owners = self._unit_of_night[self._night_of_row]
        df = sums(1 - 1 / self._size[self._night_of_row], owners, self._count)
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.maximum(sums(deviations**2, owners, self._count) / df, FLOOR**2)
        return moderate(own, df, fit_prior(own, df))[0], df

    def _nights_over_repeats(self, values: Numbers, variance: Numbers, is_many: Mask) -> tuple[float, float]:
        """Return the variance of neighbouring nights over the variance that repeats explain, at least 1, and its df.

        The ratio is taken over all units with few commits together. Only steps between nights of one commit count if there are
        enough of them, since the code did not change there. Of nights of different commits each step counts by the median
        square of its units, so that a commit that changed a few units does not count. Of several such steps the lower median
        counts, so that a commit that changed most units does not count either. The common step of all units from one night to
        the next is subtracted, as it is no noise of the nights. The step that is judged counts only if there is no other step,
        or no other step of one commit, and then only with at least 20 units.
        """
        means, of = self._nights(values), self._unit_of_night
        is_step = (self._series_of_all[1:] == self._series_of_all[:-1]) & ~is_many[of[1:]]
        at = np.flatnonzero(is_step) + 1
        step = means[at] - means[at - 1]
        expected = variance[of[at]] * (1 / self._size[at] + 1 / self._size[at - 1])
        known = np.isfinite(step) & (expected > 0)
        at, step, expected = at[known], step[known], expected[known]
        judged = np.zeros(len(at), dtype=bool)
        if self._between is not None:
            judged = (self._label[at - 1] >= self._between[0]) & (self._label[at] <= self._between[1])
        same = self._version[at] == self._version[at - 1]
        choices = ((same & ~judged, FEWEST_REPEATED), (same & judged, FEWEST_SIBLINGS), (~judged, 1))
        counts = next((choice for choice, fewest in choices if choice.sum() >= fewest), judged)
        places = self._label[at]
        typical_of_step = []
        for place in np.unique(places[counts]).tolist():
            here = counts & (places == place)
            if judged[here].any() and here.sum() < FEWEST_SIBLINGS:
                counts &= ~here
            elif here.sum() >= FEWEST_REPEATED:
                step[here] = (step[here] - np.median(step[here])) * np.sqrt(here.sum() / (here.sum() - 1))
            if here.sum() >= FEWEST_SIBLINGS:
                typical_of_step.append(float(np.median(step[here] ** 2 / expected[here])))
        scores = step[counts] ** 2 / expected[counts]
        if not scores.size:
            return 1.0, 0.0
        if scores.size < FEWEST_REPEATED:
            return max(1.0, float(np.mean(scores))), float(scores.size)
        typical = median_low(typical_of_step) if typical_of_step else float(np.median(scores))
        return max(1.0, typical / MEDIAN_OF_SQUARE), min(MEDIAN_EFFICIENCY * scores.size, MOST_FROM_SIBLINGS)

    def sums(self, of_deviations: Numbers) -> Numbers:
        """Return the sums per unit of values computed from `deviations`. The sum of squares over `df` is the variance."""
        return sums(of_deviations, self._owners, self._count)


def _judged(nights: Labels, series: Labels, between: tuple[int, ...] | None) -> Mask:
    """Return whether each step from one night to the next is judged: in a series with at most `MOST_BETWEEN` such steps.

    `between` has the night of the last run of the earlier side and the night of the first run of the later side.
    """
    within: Mask = series[1:] == series[:-1]
    if between is None:
        return np.zeros_like(within)
    judged: Mask = within & (nights[:-1] >= between[0]) & (nights[1:] <= between[1])
    few = np.bincount(series[1:][judged], minlength=int(series.max(initial=0)) + 1) <= MOST_BETWEEN
    return judged & few[series[1:]]
