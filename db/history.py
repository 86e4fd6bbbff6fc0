"""How one cell, one model or one suite went from run to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, bindparam, select, text

from collector.metrics import METRICS
from db.cell_names import CellNames, Mask, cell_names
from db.columns import Column, Rows, coded, fetched, floats, moments_of, picked, turned, whole
from db.connecting import Source, connected
from db.filters import EVERYTHING, CellFilter
from db.remembered import Remembered, State, state_of
from db.schema import HISTORY_METRICS, Commit, ConfigRow, Planned, Program, Run, Summary, Testbed, measurements

_RUN = ("run_id", "branch", "started_at", "attempt", "label", "commit", "testbed_id")
_NO_TEXT = ("started_at", "attempt")
_OF_CELL = ("cell_id", "phase", "dtype", "device", "batch_size", "config", "config_id")
_OF_ROW = ("cell", "run", "replicate", "status", "program")
_GEOMEANS = ("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "compression")
#: What a suite's summary rows have an average of.
SUITE_METRICS = (*_GEOMEANS, "compile_cold_s")
_COUNTS = ("planned", "measured", "passed", "failed", "not_applicable")
_GROUP = ("suite", "phase", "dtype", "device")

Numbers = NDArray[np.int64]


def cell_history(
    source: Source, cell_id: str, *, branch: str | None = None, metrics: Sequence[str] = HISTORY_METRICS
) -> pd.DataFrame:
    """One cell over all runs that planned or measured it, oldest run first.

    Columns: run_id, branch, commit, started_at (UTC), attempt, label, testbed_id, replicate, status, program_id and the
    metrics asked for (NaN where not measured). A run that planned the cell and has no measurement of it has a row
    without status and replicate. SQLite reads the default metrics from an index alone.

    Raises:
        KeyError: a metric that does not exist.
    """
    with connected(source) as conn:
        state = state_of(conn)
        names = cell_names(conn, state)
        chosen = np.asarray(names.columns["cell_id"] == cell_id)
        return _history(conn, names, chosen, (), _runs(conn, state, branch), metrics)


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
        return _history(conn, names, chosen, _OF_CELL, _runs(conn, state, branch), metrics)


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
    names = [
        *("run", "config", *_GROUP, *_COUNTS),
        *(f"{part}_{name}" for name in SUITE_METRICS if name in metrics for part in ("n", _sum_of(name))),
    ]
    query = select(*(getattr(Summary, name) for name in names)).where(*_summary_conditions(filters))
    with connected(source) as conn:
        found = dict(zip(names, turned(fetched(conn, query), len(names)), strict=True))
        runs, configs = _runs(conn, state_of(conn), branch), _configs(conn)
    return _averages(found, runs, configs)


def _summary_conditions(filters: CellFilter) -> list[ColumnElement[bool]]:
    axes: list[tuple[Any, tuple[str, ...]]] = [
        (Summary.suite, filters.suites),
        (Summary.phase, filters.phases),
        (Summary.dtype, filters.dtypes),
        (Summary.device, filters.devices),
    ]
    found = [column.in_(wanted) for column, wanted in axes if wanted]
    if filters.configs:
        found.append(Summary.config.in_(select(ConfigRow.id).where(*CellFilter(configs=filters.configs).conditions())))
    return found


def _averages(found: Mapping[str, Column], runs: _Runs, configs: dict[int, tuple[str, str]]) -> pd.DataFrame:
    """Sums into averages, in the order of runs, suites and configs. A group without values gets NaN, never 0."""
    of_run = runs.places(whole(found["run"]))
    keys = sorted(configs, key=configs.__getitem__)
    of_config = _places(keys, whole(found["config"]))
    ranked = {name: _ranked(found[name]) for name in _GROUP}
    suite, *others = (ranks for _, ranks in ranked.values())
    order = np.lexsort((*others, of_config, suite, of_run))
    order = order[of_run[order] >= 0]
    counts = {name: whole(values)[order] for name, values in found.items() if name in _COUNTS or name.startswith("n_")}
    columns: dict[str, Any] = {
        **{name: values.take(of_run[order]) for name, values in runs.columns.items()},
        **{name: picked(texts, ranks[order]) for name, (texts, ranks) in ranked.items()},
        **counts,
        **{
            name: picked([configs[key][place] for key in keys], of_config[order])
            for place, name in enumerate(("config", "config_id"))
        },
    }
    for name in SUITE_METRICS:
        if f"n_{name}" in counts:
            mean = _over(floats(found[f"{_sum_of(name)}_{name}"])[order], counts[f"n_{name}"])
            columns[name] = np.exp(mean) if name in _GEOMEANS else mean
    columns["missing"] = counts["planned"] - counts["measured"]
    columns["pass_rate"] = _over(counts["passed"], counts["planned"] - counts["not_applicable"])
    return pd.DataFrame(columns, copy=False)


def _sum_of(metric: str) -> str:
    return "ln" if metric in _GEOMEANS else "sum"


def _over(sums: NDArray[Any], counts: Numbers) -> NDArray[np.float64]:
    """Sums over counts; NaN where nothing was counted."""
    found: NDArray[np.float64] = sums / np.where(counts > 0, counts, np.nan)
    return found


def _ranked(values: Column) -> tuple[list[str], Numbers]:
    """The texts in their order, and the rank of each value."""
    listed = values.tolist()
    texts = sorted(set(listed))
    place = {value: rank for rank, value in enumerate(texts)}
    return texts, np.array(list(map(place.__getitem__, listed)), dtype=np.int64)


def _places(known: Sequence[int], keys: Numbers) -> Numbers:
    """Where each key stands among the known ones, -1 where it does not."""
    if not known:
        return np.full(len(keys), -1)
    order = np.argsort(whole(known))
    found = order[np.minimum(np.searchsorted(whole(known)[order], keys), len(known) - 1)]
    return np.where(whole(known)[found] == keys, found, -1)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs in the order of their start, then their name; entry i of each is of run `keys[i]`."""

    keys: list[int]
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
    return _Runs(list(keys), {name: named[name] for name in _RUN})


def _configs(conn: Connection) -> dict[int, tuple[str, str]]:
    query = select(ConfigRow.id, ConfigRow.name, ConfigRow.config_id)
    return {key: (name, config_id) for key, name, config_id in fetched(conn, query)}


def _history(
    conn: Connection,
    names: CellNames,
    chosen: Mask,
    columns: Sequence[str],
    runs: _Runs,
    metrics: Sequence[str],
) -> pd.DataFrame:
    """Measured rows, and a row without status for every run that planned a cell and has no measurement of it."""
    wanted = list(dict.fromkeys(METRICS[name].name for name in metrics))
    keys = np.sort(names.keys[chosen])
    rows = _measured(conn, keys, wanted)
    rows += _gaps(conn, keys, len(wanted))
    found = dict(zip((*_OF_ROW, *wanted), turned(rows, len(_OF_ROW) + len(wanted)), strict=True))
    of_run, of_cell = runs.places(whole(found["run"])), names.at(found["cell"])
    # As the names of cells are sorted; -1 stands for a run that planned the cell only.
    replicates = whole([-1 if number is None else number for number in found["replicate"].tolist()])
    by_name = np.argsort(np.argsort(np.asarray(names.columns["cell_id"])))
    order = np.lexsort((replicates, by_name[of_cell], of_run))
    order = order[of_run[order] >= 0]
    of_chosen = names.of(of_cell[order])
    return pd.DataFrame(
        {
            **{name: values.take(of_run[order]) for name, values in runs.columns.items()},
            **{name: of_chosen[name] for name in columns},
            "replicate": pd.arrays.IntegerArray(replicates[order], replicates[order] < 0),
            "status": coded(found["status"]).take(order),
            "program_id": _programs(conn, found["program"]).take(order),
            **{name: floats(found[name])[order] for name in wanted},
        },
        copy=False,
    )


def _measured(conn: Connection, keys: Numbers, metrics: Sequence[str]) -> Rows:
    """`_OF_ROW` and the metrics of these cells in all runs, in any order."""
    if conn.dialect.name == "sqlite" and set(metrics) <= set(HISTORY_METRICS):
        columns = [measurements.c[name] for name in (*_OF_ROW, *metrics)]
        return fetched(conn, select(*columns).where(measurements.c.cell.in_(keys.tolist())))
    return _by_run(conn, keys, metrics)


def _by_run(conn: Connection, keys: Numbers, metrics: Sequence[str]) -> Rows:
    """The same run by run through the primary key: a model's cells lie side by side in each.

    Said in SQL's own words, since CROSS JOIN is how SQLite is told which table comes first.
    """
    if not len(keys):
        return []
    is_dense = keys[-1] - keys[0] < 2 * len(keys)
    which = "BETWEEN :first AND :last" if is_dense else "IN :cells"
    names = ", ".join(f"m.{name}" for name in (*_OF_ROW, *metrics))
    query = text(f"SELECT {names} FROM runs r CROSS JOIN measurements m WHERE m.run = r.id AND m.cell {which}")  # noqa: S608 -- our own words
    if is_dense:
        rows = fetched(conn, query.bindparams(first=int(keys[0]), last=int(keys[-1])))
        wanted = set(keys.tolist())
        return rows if len(wanted) == keys[-1] - keys[0] + 1 else [row for row in rows if row[0] in wanted]
    return fetched(conn, query.bindparams(bindparam("cells", keys.tolist(), expanding=True)))


def _gaps(conn: Connection, keys: Numbers, metrics: int) -> Rows:
    """The runs that planned a cell and did not measure it, as rows that have nothing else."""
    query = select(Planned.cell, Planned.run).where(Planned.cell.in_(keys.tolist()))
    return [(*row, *[None] * (len(_OF_ROW) - 2 + metrics)) for row in fetched(conn, query)]


def _programs(conn: Connection, column: Column) -> Any:
    keys = column.tolist()
    used = sorted(set(keys) - {None})
    names: dict[int, str] = dict(fetched(conn, select(Program.id, Program.program_id).where(Program.id.in_(used))))
    known = [key for key in used if key in names]
    return picked([names[key] for key in known], _places(known, whole([-1 if key is None else key for key in keys])))
