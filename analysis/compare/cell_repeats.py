"""The measurements of the same cells in many runs, as arrays: what the noise is learned from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.stats.averages import Labels, Mask, Numbers
from analysis.stats.run_noise import two_modes
from db.connecting import Source
from db.queries.series import LOOK_BACK, ReadRun, Repeats, repeats
from db.queries.sides import Side

#: What tells cells apart but for their config. Cells of one program that agree in all of it have one noise.
_OF_CELL = ["model", "phase", "dtype", "device", "batch_size"]
#: A cell whose status changed so many times is flaky.
_TURNS = 3


class RepeatRows:
    """The measurements of `db.queries.series.Repeats`, oldest run first. Entry i of each array is of measurement i.

    `cells` are the cells' ids, and `cell` is the index of each row's cell in it. `runs` are the store's numbers of the runs that
    have rows, oldest first, and `run` is the index in it. `branch` and `version` are labels from 0, `version` of a commit under
    one program. `unit` is a label of what has one noise: the program that a model's cell has now, on a testbed, or the cell
    where the program is not known.
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
    ) -> RepeatRows:
        """What the store holds about the cells of these sides, as `db.queries.series.repeats` reads it.

        Raises `KeyError` for a metric that does not exist.
        """
        wanted = sorted(metrics)
        return cls(repeats(source, sides, wanted, look_back=look_back, read=read, with_untimed=with_untimed))

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, metric: str) -> Numbers:
        """The metric as it was measured, NaN where it was not. Raises `KeyError` if the rows do not have it."""
        return self._rows[metric].to_numpy(dtype=np.float64)

    @cached_property
    def program(self) -> Labels:
        """A label of the program that each row's cell has now."""
        # A commit that adds an option to Inductor makes every program a new one, and no noise a new one. So all runs of a cell
        # are of the program that it has now.
        by_cell = self._rows["program"].groupby([self.cell, self._testbed])
        program = by_cell.transform("last").to_numpy()
        # A cell whose program is not known is a program of its own.
        return pd.factorize(np.where(np.isnan(program), -1.0 - self.cell, program))[0]

    @cached_property
    def unit(self) -> Labels:
        """See the class."""
        same = np.ravel_multi_index(
            (self.program, self._cell_but_config[self.cell], self._testbed),
            (len(self) + 1, len(self.cells), len(self.runs)),
        )
        return pd.factorize(same)[0]

    @cached_property
    def _same_unit(self) -> pd.DataFrame:
        """The rows that share unit, run and replicate with another, by their number: only these can be copies."""
        columns = {name: self._rows[name].to_numpy() for name in ("replicate", "started_at")}
        rows = pd.DataFrame({"unit": self.unit, "run": self.run, **columns})
        return rows[rows.duplicated(["unit", "run", "replicate"], keep=False)]

    def without_copies(self, usable: Mask, values: Numbers) -> Mask:
        """The usable rows without copies: cells of one program may share its measurement, which is then counted once."""
        rows = self._same_unit[usable[self._same_unit.index]]
        copies = rows.assign(value=values[rows.index]).duplicated()
        kept = usable.copy()
        kept[rows.index[copies]] = False
        return kept

    def of_side(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers, Numbers]:
        """Return of each of `cells` the mean ln of the metric over the runs of a side in which it passed, and two counts.

        The counts are of these runs and of their nights. Replicates of a run are averaged first. NaN and 0 where there is none.
        `keys` are the store's numbers of the runs.
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
        """The store's numbers of the runs of a night that have rows."""
        keys: list[int] = self._runs.loc[self._runs["night"] == night, "run"].tolist()
        return keys

    def modes(self, metric: str) -> dict[str, tuple[float, float]]:
        """Return the levels of each cell whose runs go to and fro between two (`two_modes`), by `cell_id`."""
        values = self.values(metric)
        usable = np.flatnonzero(self.passed & (values > 0))
        usable = usable[np.argsort(self.cell[usable], kind="stable")]
        starts = np.flatnonzero(np.diff(self.cell[usable], prepend=-1))
        found = {}
        for of_cell in np.split(usable, starts[1:]) if len(usable) else ():
            if levels := two_modes(np.log(values[of_cell])):
                found[str(self.cells[self.cell[of_cell[0]]])] = levels
        return found

    def extremes(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers]:
        """The least and the greatest value of each of `cells` in a side's measurements that passed; NaN for none."""
        usable, values = self._of_side(keys), self.values(metric)
        least, most = np.full((2, len(self.cells)), np.nan)
        np.fmin.at(least, self.cell[usable], values[usable])
        np.fmax.at(most, self.cell[usable], values[usable])
        return least, most

    def _of_side(self, keys: Iterable[int]) -> Mask:
        of_side: Mask = np.isin(self.runs, list(keys))[self.run] & self.passed
        return of_side

    def flaky(self) -> set[str]:
        """Cells that broke, were fixed and broke again (or the other way), and have not ended the same way twice since.

        Runs of one commit of a branch follow each other here: two commits that are measured in turn are not flaky.
        """
        commit = self._runs.groupby(["branch", "commit"], sort=False).ngroup().to_numpy()
        place = np.empty(len(self.runs), dtype=np.int64)
        place[np.argsort(commit, kind="stable")] = np.arange(len(self.runs))
        pairs, of_row = np.unique(self.cell * max(1, len(self.runs)) + place[self.run], return_inverse=True)
        # A run in which any replicate failed is one that failed.
        failed = np.bincount(of_row, ~self.passed, len(pairs)) > 0
        cells = pairs // max(1, len(self.runs))
        turned = (cells[1:] == cells[:-1]) & (failed[1:] != failed[:-1])
        turns = np.bincount(cells[1:][turned], minlength=len(self.cells))
        is_last = np.append(cells[1:] != cells[:-1], True)[1:]
        last_turned = np.bincount(cells[1:][is_last & turned], minlength=len(self.cells)) > 0
        return set(self.cells[(turns >= _TURNS) & last_turned])
