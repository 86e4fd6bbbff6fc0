"""The rows of `db.queries.repeats.repeats` as columns of numbers, so that four metrics are judged without naming a cell twice.

A side's comparison looks at fifty thousand rows; what tells them apart (cell, program, run, ...) is the same for every metric
and is numbered once here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import Lock
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlalchemy import Connection, Engine

from analysis.stats.labels import Labels, numbered, places
from collector.vocabulary import Status
from db.connecting import Source, connected
from db.queries.remembered import State, state_of
from db.queries.repeats import rows_of_runs, runs_behind
from db.queries.sides import Side

T = TypeVar("T")
Numbers: TypeAlias = "npt.NDArray[np.float64]"
Mask: TypeAlias = "npt.NDArray[np.bool_]"

#: What tells cells apart but for their config: cells of one program that agree in all of it have one noise.
_OF_CELL = ("model", "phase", "dtype", "device", "batch_size")
#: Runs whose rows are kept, those that were asked for last: 0.2 MB each with 1,800 cells.
_MOST_RUNS = 160
#: So many turns make a cell flaky.
_TURNS = 3


class _Numbering:
    """A number for each name, the same for as long as the process lives: names are hashes and mean one thing everywhere."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._lock = Lock()
        self.names: list[Any] = []

    def of(self, names: Iterable[Any]) -> Labels:
        """The numbers of these names."""
        with self._lock:
            for name in names:
                if name not in self._numbers:
                    self._numbers[name] = len(self.names)
                    self.names.append(name)
        return np.array([self._numbers[name] for name in names], dtype=np.int64)


_CELLS, _APART_FROM_CONFIG = _Numbering(), _Numbering()


@dataclass(frozen=True, slots=True)
class _RunRows:
    """What one run measured; entry i of each array is of one measurement. `cell` and `apart` are of the numberings above."""

    run: int
    branch: str
    commit: int
    testbed: int
    cell: Labels
    apart: Labels
    columns: dict[str, npt.NDArray[Any]]

    def only(self, cells: Labels) -> _RunRows:
        """The rows of these cells."""
        kept = np.isin(self.cell, cells)
        if kept.all():
            return self
        columns = {name: values[kept] for name, values in self.columns.items()}
        return _RunRows(self.run, self.branch, self.commit, self.testbed, self.cell[kept], self.apart[kept], columns)


def _by_run(rows: pd.DataFrame) -> list[_RunRows]:
    """The rows of `db.queries.repeats.repeats` run by run."""
    places, cell_ids = pd.factorize(rows["cell_id"])
    first = np.zeros(len(cell_ids), dtype=np.int64)
    first[places[::-1]] = np.arange(len(rows))[::-1]
    told = [rows[name].iloc[first].tolist() for name in _OF_CELL]
    cell, apart = (
        found[places] for found in (_CELLS.of(list(cell_ids)), _APART_FROM_CONFIG.of(list(zip(*told, strict=True))))
    )
    columns = {name: rows[name].to_numpy() for name in rows.columns if name not in ("cell_id", "status", *_OF_CELL)}
    columns["program"] = rows["program"].to_numpy(dtype=np.float64, na_value=np.nan)
    columns["passed"] = (rows["status"] == Status.PASS.value).to_numpy(dtype=bool)
    of_run = {name: columns.pop(name) for name in ("run", "branch", "commit", "testbed")}
    bounds = [0, *(np.flatnonzero(np.diff(of_run["run"])) + 1).tolist(), len(rows)]
    return [
        _RunRows(
            int(of_run["run"][start]),
            str(of_run["branch"][start]),
            int(of_run["commit"][start]),
            int(of_run["testbed"][start]),
            cell[start:end].copy(),
            apart[start:end].copy(),
            # Copies, so that a run that is kept does not keep those that were read with it.
            {name: values[start:end].copy() for name, values in columns.items()},
        )
        for start, end in pairwise(bounds)
        if end > start
    ]


class _Kept:
    """The rows of runs by engine, until the database changes; of many those that were asked for last."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Engine, tuple[State, OrderedDict[Any, _RunRows | None]]] = WeakKeyDictionary()
        self._lock = Lock()

    def get(self, conn: Connection, runs: Sequence[int], metrics: tuple[str, ...]) -> list[_RunRows]:
        """The rows of these runs, in their order; what is not known is read at once."""
        # A caller's own connection may see what it has not committed: nobody else may be told of that.
        if not conn.get_execution_options().get("opened_here"):
            return _by_run(rows_of_runs(conn, runs, metrics))
        state = state_of(conn)
        with self._lock:
            known = self._known.get(conn.engine)
            of_run = dict(known[1]) if known is not None and known[0] == state else {}
        if unknown := [run for run in runs if (run, metrics) not in of_run]:
            read = {rows.run: rows for rows in _by_run(rows_of_runs(conn, unknown, metrics))}
            of_run |= {(run, metrics): read.get(run) for run in unknown}
        self._keep(conn.engine, state, {(run, metrics): of_run[run, metrics] for run in runs})
        return [rows for run in runs if (rows := of_run[run, metrics]) is not None]

    def _keep(self, engine: Engine, state: State, asked: dict[Any, _RunRows | None]) -> None:
        with self._lock:
            known = self._known.get(engine)
            if known is None or known[0] != state:
                known = self._known[engine] = (state, OrderedDict())
            for key, rows in asked.items():
                known[1][key] = rows
                known[1].move_to_end(key)
            while len(known[1]) > _MOST_RUNS:
                known[1].popitem(last=False)


_KEPT = _Kept()


class RepeatRows:
    """Rows of `db.queries.repeats.repeats`, oldest run first. Entry i of each array is of row i; labels count from 0.

    `cells` are the cells' ids, `cell` the place of each row's cell among them; likewise `run` with `runs` (the database's
    numbers, oldest first), `branch` and `commit`. `unit` numbers what has one noise: a model's program on a testbed, and
    where the program is not known, the cell.
    """

    def __init__(self, runs: Sequence[_RunRows]) -> None:
        numbers, self.cell = places(_joined([rows.cell for rows in runs]))
        self.cells = pd.Index([_CELLS.names[number] for number in numbers.tolist()], dtype=object)
        self.runs: Labels = np.array([rows.run for rows in runs], dtype=np.int64)
        size = [len(rows.cell) for rows in runs]
        self.run: Labels = np.repeat(np.arange(len(runs)), size)
        self.branch, self.commit, self._testbed = (
            (
                np.repeat(pd.factorize(np.array(named, dtype=object))[0].astype(np.int64), size)
                for named in zip(*((rows.branch, rows.commit, rows.testbed) for rows in runs), strict=True)
            )
            if runs
            else (np.empty(0, dtype=np.int64),) * 3
        )
        self._apart: Labels = _joined([rows.apart for rows in runs])
        names = runs[0].columns if runs else ()
        self._columns = {name: np.concatenate([rows.columns[name] for rows in runs]) for name in names}
        self.passed: Mask = self._columns.get("passed", np.empty(0, dtype=bool))
        self._worked_out: dict[Hashable, Any] = {}

    @classmethod
    def of(cls, rows: pd.DataFrame) -> RepeatRows:
        """From the rows as the database gives them."""
        return cls(_by_run(rows))

    @classmethod
    def behind(cls, source: Source, sides: Sequence[Side], metrics: Collection[str]) -> RepeatRows:
        """`of` what `db.queries.repeats.repeats` gives for these sides; runs that were read before are not read again.

        Raises:
            KeyError: a metric that does not exist.
        """
        with connected(source) as conn:
            runs = _KEPT.get(conn, runs_behind(conn, sides), tuple(sorted(metrics)))
        own = {key for side in sides for key in side.keys}
        wanted = np.unique(_joined([rows.cell for rows in runs if rows.run in own]))
        return cls([rows for each in runs if len((rows := each.only(wanted)).cell)])

    def __len__(self) -> int:
        return len(self.cell)

    def values(self, metric: str) -> Numbers:
        """The metric as it was measured, NaN where it was not. Raises `KeyError` if the rows do not have it."""
        return self._columns[metric].astype(np.float64, copy=False) if len(self) else np.empty(0)

    def worked_out(self, key: Hashable, work: Callable[[], T]) -> T:
        """What `work` makes of these rows, once for each key."""
        if key not in self._worked_out:
            self._worked_out[key] = work()
        found: T = self._worked_out[key]
        return found

    @cached_property
    def unit(self) -> Labels:
        """See the class."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        program, count = self._columns["program"], len(self.cells)
        # A cell whose program is not known is a program of its own, and comes before all that are known.
        programs = np.where(np.isfinite(program), program + count, count - 1.0 - self.cell).astype(np.int64)
        return numbered([programs, self._apart, self._testbed])

    @cached_property
    def may_be_copies(self) -> Mask:
        """Rows that share unit, run and replicate with another: cells of one program may share its measurement, too."""
        if not len(self):
            return np.zeros(0, dtype=bool)
        keys = numbered([self.unit, self.run, self._columns["replicate"]])
        found: Mask = np.bincount(keys)[keys] > 1
        return found

    def without_copies(self, usable: Mask, values: Numbers) -> Mask:
        """Of the usable rows those that are a measurement of their own: a copy is no repeat, the first of several counts."""
        asked = np.flatnonzero(usable & self.may_be_copies)
        if not len(asked):
            return usable
        told = {"unit": self.unit, "run": self.run, "value": values}
        told |= {name: self._columns[name] for name in ("started_at", "replicate")}
        is_copy = pd.DataFrame({name: found[asked] for name, found in told.items()}).duplicated().to_numpy()
        kept = usable.copy()
        kept[asked[is_copy]] = False
        return kept

    def of_side(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers]:
        """Of every cell of `cells` the mean ln value over the side's runs in which it passed, and how many those are.

        Replicates of a run are averaged first; NaN and 0 where there is none. `keys` are the database's numbers of the runs.
        """
        values, own = self.values(metric), self._passed_in(frozenset(keys))
        usable = own[values[own] > 0]
        pairs, of_row = places(self.cell[usable] * len(self.runs) + self.run[usable])
        of_run = _means(np.log(values[usable]), of_row, len(pairs))
        cells = pairs // max(1, len(self.runs))
        return _means(of_run, cells, len(self.cells)), np.bincount(cells, minlength=len(self.cells)).astype(float)

    def extremes(self, keys: Iterable[int], metric: str) -> tuple[Numbers, Numbers]:
        """Of every cell of `cells` the least and the greatest value of the side's measurements that passed; NaN for none."""
        values, own = self.values(metric), self._passed_in(frozenset(keys))
        usable = own[np.isfinite(values[own])]
        least, most = np.full(len(self.cells), np.inf), np.full(len(self.cells), -np.inf)
        np.minimum.at(least, self.cell[usable], values[usable])
        np.maximum.at(most, self.cell[usable], values[usable])
        return np.where(np.isfinite(least), least, np.nan), np.where(np.isfinite(most), most, np.nan)

    def _passed_in(self, keys: frozenset[int]) -> Labels:
        """The rows of these runs that passed: few of all, and looked at for every metric."""
        return self.worked_out(
            ("passed in", keys), lambda: np.flatnonzero(np.isin(self.runs, list(keys))[self.run] & self.passed)
        )

    def flaky(self) -> set[str]:
        """Cells that broke, were fixed and broke again (or the other way), and have not ended the same way twice since."""
        pairs, of_row = places(self.cell * max(1, len(self.runs)) + self.run)
        # A run in which any replicate failed is one that failed.
        failed = np.bincount(of_row, ~self.passed, len(pairs)) > 0
        cells = pairs // max(1, len(self.runs))
        turned = (cells[1:] == cells[:-1]) & (failed[1:] != failed[:-1])
        turns = np.bincount(cells[1:][turned], minlength=len(self.cells))
        last = np.zeros(len(self.cells), dtype=bool)
        is_last = np.append(cells[1:] != cells[:-1], True)[1:] if len(cells) > 1 else np.zeros(0, dtype=bool)
        last[cells[1:][is_last & turned]] = True
        return set(self.cells[(turns >= _TURNS) & last])


def _means(values: Numbers, owners: Labels, count: int) -> Numbers:
    size = np.bincount(owners, minlength=count)
    with np.errstate(invalid="ignore"):
        found: Numbers = np.bincount(owners, values, count) / size
    return found


def _joined(parts: Sequence[Labels]) -> Labels:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
