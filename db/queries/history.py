"""How one cell, one model or one suite went from run to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from collector.metrics import METRICS
from db.connecting import Source, connected
from db.packing.packed import STATUSES, Records, measured_of_models
from db.packing.packed_sums import sums_of_runs
from db.queries.cell_names import CellNames, Mask, cell_names
from db.queries.columns import coded, fetched, floats, moments_of, picked, turned, whole
from db.queries.filters import EVERYTHING, CellFilter
from db.queries.remembered import Remembered, State, state_of
from db.schema import HISTORY_METRICS, Commit, Planned, Program, Run, Testbed

_RUN = ("run_id", "branch", "started_at", "attempt", "label", "commit", "testbed_id")
_NO_TEXT = ("started_at", "attempt")
_OF_CELL = ("cell_id", "phase", "dtype", "device", "batch_size", "config", "config_id")
_OF_ROW = ("cell", "run", "replicate", "status", "program")
_GEOMEANS = ("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "compression")
#: What a suite's summary rows have an average of.
SUITE_METRICS = (*_GEOMEANS, "compile_cold_s")
_COUNTS = ("planned", "measured", "passed", "failed", "not_applicable")
_GROUP = ("suite", "phase", "dtype", "device")
_CONFIG = ("config", "config_id")
#: By what groups are put in order.
_IN_ORDER = ("suite", "config", "config_id", "device", "dtype", "phase")
#: What a row has where a run planned a cell and did not measure it; NaN for a metric.
_NOTHING = {"replicate": -1, "status": -1, "program": 0}

_GAPS = select(Planned.cell, Planned.run).where(Planned.cell.in_(bindparam("cells", expanding=True)))

Numbers = NDArray[np.int64]


def cell_history(
    source: Source, cell_id: str, *, branch: str | None = None, metrics: Sequence[str] = HISTORY_METRICS
) -> pd.DataFrame:
    """One cell over all runs that planned or measured it, oldest run first.

    Columns: run_id, branch, commit, started_at (UTC), attempt, label, testbed_id, replicate, status, program_id and the
    metrics asked for (NaN where not measured). A run that planned the cell and has no measurement of it has a row
    without status and replicate. The default metrics are read from fewer bytes than others, which is quicker.

    Raises:
        KeyError: a metric that does not exist.
    """
    with connected(source) as conn:
        state = state_of(conn)
        names = cell_names(conn, state)
        chosen = np.asarray(names.columns["cell_id"] == cell_id)
        return _history(conn, state, names, chosen, (), _runs(conn, state, branch), metrics)


def model_history(
    source: Source,
    suite: str,
    model: str,
    *,
    filters: CellFilter = EVERYTHING,
    branch: str | None = None,
    metrics: Sequence[str] = HISTORY_METRICS,
) -> pd.DataFrame:
    """All cells of a model over all runs, oldest run first: the columns of `cell_history`, and what tells cells apart.

    That is: cell_id, phase, dtype, device, batch_size, config, config_id.
    """
    with connected(source) as conn:
        state = state_of(conn)
        names = cell_names(conn, state)
        chosen = names.chosen(filters) & names.chosen(CellFilter(suites=(suite,), models=(model,)))
        return _history(conn, state, names, chosen, _OF_CELL, _runs(conn, state, branch), metrics)


def suite_history(
    source: Source,
    *,
    filters: CellFilter = EVERYTHING,
    branch: str | None = None,
    metrics: Sequence[str] = SUITE_METRICS,
) -> pd.DataFrame:
    """Every group's figures over all runs, oldest run first, from the summary rows alone (models cannot be filtered).

    Columns: those that name the run (see `cell_history`), suite, phase, dtype, device, config, config_id, the counts
    planned, measured, missing, passed, failed, not_applicable, pass_rate (0 to 1), the geomeans speedup,
    device_speedup, compiled_ms, compiled_kernel_ms and compression, the mean compile_cold_s, and an `n_` column of each;
    of these averages only those that `metrics` names.

    Raises:
        ValueError: the filter names models, or a metric has no summary.
    """
    if unknown := set(metrics) - set(SUITE_METRICS):
        raise ValueError(f"no summary is kept of {', '.join(sorted(unknown))}")
    if filters.models:
        raise ValueError("a suite's history is kept for all its models together")
    wanted_sums = [
        *_COUNTS,
        *(f"{part}_{name}" for name in SUITE_METRICS if name in metrics for part in ("n", _sum_of(name))),
    ]
    with connected(source) as conn:
        state = state_of(conn)
        found, names, runs = sums_of_runs(conn, wanted_sums), cell_names(conn, state), _runs(conn, state, branch)
        if not names.has(int(found["cell"].max(initial=0))):
            names = cell_names(conn)  # stored since: a writer's connection sees what others commit
    of_cell, of_run = names.at(found["cell"]), runs.places(found["run"])
    wanted = np.flatnonzero(names.chosen(filters)[of_cell] & (of_run >= 0))
    groups, of_group = _groups(names, of_cell[wanted])
    order = np.lexsort((of_group, of_run[wanted]))
    return _averages(
        {name: values[wanted[order]] for name, values in found.items()},
        {name: values.take(of_run[wanted[order]]) for name, values in runs.columns.items()},
        {name: picked(texts, of_group[order]) for name, texts in groups.items()},
        metrics,
    )


def _groups(names: CellNames, of_cell: Numbers) -> tuple[dict[str, list[str]], Numbers]:
    """What cells are summed by, an entry a group in their order, and to which of them each of these cells belongs."""
    cells, places = np.unique(of_cell, return_inverse=True)
    named = {name: np.asarray(names.columns[name].take(cells)).tolist() for name in (*_GROUP, *_CONFIG)}
    spelled = list(zip(*(named[name] for name in _IN_ORDER), strict=True))
    listed = sorted(set(spelled))
    rank = {group: place for place, group in enumerate(listed)}
    texts = {name: [group[place] for group in listed] for place, name in enumerate(_IN_ORDER)}
    return texts, np.array([rank[group] for group in spelled], dtype=np.int64)[places]


def _averages(
    found: Mapping[str, NDArray[Any]], of_run: Mapping[str, Any], of_group: Mapping[str, Any], metrics: Sequence[str]
) -> pd.DataFrame:
    """Sums into averages. A group without values gets NaN, never 0."""
    averaged = [name for name in SUITE_METRICS if name in metrics]
    columns: dict[str, Any] = {
        **of_run,
        **{name: of_group[name] for name in _GROUP},
        **{name: found[name] for name in _COUNTS},
        **{f"n_{name}": found[f"n_{name}"] for name in averaged},
        **{name: of_group[name] for name in _CONFIG},
    }
    for name in averaged:
        mean = _over(found[f"{_sum_of(name)}_{name}"], found[f"n_{name}"])
        columns[name] = np.exp(mean) if name in _GEOMEANS else mean
    columns["missing"] = found["planned"] - found["measured"]
    columns["pass_rate"] = _over(found["passed"], found["planned"] - found["not_applicable"])
    return pd.DataFrame(columns, copy=False)


def _sum_of(metric: str) -> str:
    return "ln" if metric in _GEOMEANS else "sum"


def _over(sums: NDArray[Any], counts: Numbers) -> NDArray[np.float64]:
    """Sums over counts; NaN where nothing was counted."""
    found: NDArray[np.float64] = sums / np.where(counts > 0, counts, np.nan)
    return found


def _places(known: Numbers, keys: Numbers) -> Numbers:
    """Where each key stands among the known ones, -1 where it does not."""
    if not len(known):
        return np.full(len(keys), -1)
    order = np.argsort(known)
    found = order[np.minimum(np.searchsorted(known, keys, sorter=order), len(known) - 1)]
    return np.where(known[found] == keys, found, -1)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs in the order of their start, then their name; entry i of each is of run `keys[i]`."""

    keys: Numbers
    columns: dict[str, Any]

    def places(self, keys: Numbers) -> Numbers:
        """Where these runs are, -1 for others."""
        return _places(self.keys, keys)


_KNOWN_RUNS: Remembered[_Runs] = Remembered()


def _runs(conn: Connection, state: State, branch: str | None) -> _Runs:
    return _KNOWN_RUNS.get(conn, state, branch, lambda conn: _read_runs(conn, branch))


def _read_runs(conn: Connection, branch: str | None) -> _Runs:
    columns = (Run.run_id, Run.branch, Run.started_at, Run.attempt, Run.label, Commit.sha, Testbed.testbed_id)
    query = select(Run.id, *columns).join(Commit, Run.commit == Commit.id).join(Testbed, Run.testbed == Testbed.id)
    rows = fetched(conn, query.where(*([] if branch is None else [Run.branch == branch])))
    rows.sort(key=lambda row: (row[3], row[1]))
    keys, *found = turned(rows, 1 + len(columns))
    named: dict[str, Any] = {
        name: coded(values) for name, values in zip(_RUN, found, strict=True) if name not in _NO_TEXT
    }
    numbers = dict(zip(_RUN, found, strict=True))
    named |= {"started_at": moments_of(floats(numbers["started_at"])), "attempt": whole(numbers["attempt"])}
    return _Runs(whole(keys), {name: named[name] for name in _RUN})


def _history(
    conn: Connection,
    state: State,
    names: CellNames,
    chosen: Mask,
    columns: Sequence[str],
    runs: _Runs,
    metrics: Sequence[str],
) -> pd.DataFrame:
    """Measured rows, and a row without status for every run that planned a cell and has no measurement of it."""
    wanted = list(dict.fromkeys(METRICS[name].name for name in metrics))
    gaps = fetched(conn, _GAPS, {"cells": names.keys[chosen].tolist()})
    found = _with_gaps(_measured(conn, names, chosen, wanted), gaps)
    of_run, of_cell = runs.places(found["run"]), names.at(found["cell"])
    # As the names of cells are sorted; -1 stands for a run that planned the cell only.
    by_name = np.zeros(len(names.keys), dtype=np.int64)
    by_name[chosen] = np.argsort(np.argsort(np.asarray(names.columns["cell_id"][chosen])))
    order = np.lexsort((found["replicate"], by_name[of_cell], of_run))
    order = order[of_run[order] >= 0]
    in_order = {name: values[order] for name, values in found.items()}
    return pd.DataFrame(
        {
            **{name: values.take(of_run[order]) for name, values in runs.columns.items()},
            **{name: names.columns[name].take(of_cell[order]) for name in columns},
            "replicate": pd.arrays.IntegerArray(in_order["replicate"], in_order["replicate"] < 0),
            "status": picked(STATUSES, in_order["status"]),
            "program_id": _programs(conn, state, in_order["program"]),
            **{name: in_order[name] for name in wanted},
        },
        copy=False,
    )


def _measured(conn: Connection, names: CellNames, chosen: Mask, metrics: Sequence[str]) -> Records:
    """The measurements of these cells in all runs, in any order: `_OF_ROW` and the metrics."""
    found = measured_of_models(conn, sorted(set(names.models[chosen].tolist())), metrics)
    # One more place, for cells that were stored since the names were read: nobody asked for them.
    is_asked = np.zeros(len(names.places) + 1, dtype=bool)
    is_asked[names.keys[chosen]] = True
    own = is_asked[np.minimum(found["cell"], len(names.places))]
    return {name: found[name] if own.all() else found[name][own] for name in (*_OF_ROW, *metrics)}


def _with_gaps(rows: Records, gaps: Sequence[tuple[int, int]]) -> Records:
    """The columns, and the runs behind them that planned a cell and did not measure it, which have nothing else."""
    if not gaps:
        return rows
    cells, runs = zip(*gaps, strict=True)
    known = {"cell": cells, "run": runs}
    of_gaps = {name: known.get(name, [_NOTHING.get(name, np.nan)] * len(gaps)) for name in rows}
    return {name: np.append(values, of_gaps[name]).astype(values.dtype) for name, values in rows.items()}


_KNOWN_PROGRAMS: Remembered[dict[int, str]] = Remembered()


def _programs(conn: Connection, state: State, keys: Numbers) -> Any:
    used = set(np.unique(keys).tolist()) - {0}
    names = _KNOWN_PROGRAMS.get(conn, state, None, _read_programs)
    if not names.keys() >= used:
        names = _read_programs(conn)  # stored since: a writer's connection sees what it has not committed
    known = sorted(used & names.keys())
    return picked([names[key] for key in known], _places(np.array(known, dtype=np.int64), keys))


def _read_programs(conn: Connection) -> dict[int, str]:
    return dict(fetched(conn, select(Program.id, Program.program_id)))
