"""The measurements of the same cells in many runs, as arrays: what the noise is learned from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from collector.vocabulary import Status
from db.connecting import Source
from db.queries.repeats import repeats
from db.queries.sides import Side

Numbers: TypeAlias = "npt.NDArray[np.float64]"
Labels: TypeAlias = "npt.NDArray[np.int64]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"

#: What tells cells apart but for their config. Cells of one program that agree in all of it have one noise.
_OF_CELL = ("model", "phase", "dtype", "device", "batch_size")
#: A cell whose status changed so many times is flaky.
_TURNS = 3


class RepeatRows:
    """The rows of `db.queries.repeats.repeats`, oldest run first. Entry i of each array is of row i. Labels count from 0.

    `cells` are the cells' ids, `cell` is the place of each row's cell among them. `run` and `runs` (the database's numbers,
    oldest first), `branch` and `commit` likewise. `unit` numbers what has one noise: a model's program on a testbed, or the
    cell where the program is not known.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self._rows = rows
        self.cell, self.cells = _factorized(rows["cell_id"])
        self.run, runs = _factorized(rows["run"])
        self.runs: Labels = runs.to_numpy(dtype=np.int64)
        self.branch, _ = _factorized(rows["branch"])
        self.commit, _ = _factorized(rows["commit"])
        self.passed: Mask = (rows["status"] == Status.PASS.value).to_numpy(dtype=bool)

    @classmethod
    def behind(cls, source: Source, sides: Sequence[Side], metrics: Iterable[str]) -> RepeatRows:
        """What the store holds about the cells of these sides.

        Raises:
            KeyError: a metric that does not exist.
        """
        return cls(repeats(source, sides, sorted(metrics)))

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, metric: str) -> Numbers:
        """The metric as it was measured, NaN where it was not. Raises `KeyError` if the rows do not have it."""
        return self._rows[metric].to_numpy(dtype=np.float64)

    @cached_property
    def unit(self) -> Labels:
        """See the class."""
        # A cell whose program is not known is a program of its own.
        program = self._rows["program"].astype(float).fillna(pd.Series(-1.0 - self.cell, self._rows.index))
        numbered = self._rows.assign(program=program).groupby(["program", *_OF_CELL, "testbed"], sort=False).ngroup()
        return np.asarray(numbered, dtype=np.int64)

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

    def of_side(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers]:
        """The value of a side: of each of `cells` the mean ln of the metric over the runs in which it passed, and their number.

        Replicates of a run are averaged first. NaN and 0 where there is none. `keys` are the database's numbers of the runs.
        """
        values = self.values(metric)
        usable = np.flatnonzero(self._of_side(keys) & (values > 0))
        logs = pd.Series(np.log(values[usable]))
        by_run = logs.groupby([self.cell[usable], self.run[usable]]).mean().groupby(level=0).agg(["mean", "size"])
        by_run = by_run.reindex(range(len(self.cells)))
        return by_run["mean"].to_numpy(dtype=float), by_run["size"].fillna(0).to_numpy(dtype=float)

    def extremes(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers]:
        """The least and the greatest value of each of `cells` in a side's measurements that passed; NaN for none."""
        usable = self._of_side(keys)
        of_cell = pd.Series(self.values(metric)[usable]).groupby(self.cell[usable])
        least, most = (np.asarray(ends.reindex(range(len(self.cells)))) for ends in (of_cell.min(), of_cell.max()))
        return least, most

    def _of_side(self, keys: Iterable[int]) -> Mask:
        of_side: Mask = np.isin(self.runs, list(keys))[self.run] & self.passed
        return of_side

    def flaky(self) -> set[str]:
        """Cells that broke, were fixed and broke again (or the other way), and have not ended the same way twice since."""
        pairs, of_row = np.unique(self.cell * max(1, len(self.runs)) + self.run, return_inverse=True)
        # A run in which any replicate failed is one that failed.
        failed = np.bincount(of_row, ~self.passed, len(pairs)) > 0
        cells = pairs // max(1, len(self.runs))
        turned = (cells[1:] == cells[:-1]) & (failed[1:] != failed[:-1])
        turns = np.bincount(cells[1:][turned], minlength=len(self.cells))
        is_last = np.append(cells[1:] != cells[:-1], True)[1:]
        last_turned = np.bincount(cells[1:][is_last & turned], minlength=len(self.cells)) > 0
        return set(self.cells[(turns >= _TURNS) & last_turned])


def _factorized(values: pd.Series) -> tuple[Labels, pd.Index]:
    """Numbers in order of appearance, and what they stand for."""
    labels, names = pd.factorize(values)
    return labels.astype(np.int64), pd.Index(names)
