"""How one model or one suite went from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import case, select

from collector.metrics import METRICS
from db.connecting import Query, Source, connected, frame, framed
from db.queries.cell_names import CELL_COLUMNS, cell_names
from db.queries.code import is_untimed
from db.queries.filters import EVERYTHING, CellFilter
from db.runs import is_measured
from db.schema import (
    GEOMEANS,
    HISTORY_METRICS,
    MEANS,
    Commit,
    ConfigRow,
    Planned,
    Program,
    Run,
    Testbed,
    measurements,
    summaries,
)

#: The metrics that a suite's history has an average of.
SUITE_METRICS = (*GEOMEANS, *MEANS)
_RUN = ("run_id", "branch", "started_at", "attempt", "label", "commit", "testbed_id")
_OF_CELL = tuple(name for name in CELL_COLUMNS if name not in ("suite", "model"))
_COUNTS = ("planned", "measured", "passed", "failed", "not_applicable")


def model_history(source: Source, suite: str, model: str, *, metrics: Sequence[str] = HISTORY_METRICS) -> pd.DataFrame:
    """All cells of a model over all runs that planned or measured them, oldest run first.

    Columns: run_id, branch, started_at (UTC), attempt, label, commit, testbed_id; cell_id, phase, dtype, device,
    batch_size, config, config_id; replicate, status, program_id and the metrics (NaN where not measured, and where a cell
    was not timed again, since its code is known). A run that planned a cell and has no measurement of it has a row without
    status and replicate. Raises `KeyError` for a metric that does not exist.
    """
    wanted = list(dict.fromkeys(METRICS[name].name for name in metrics))
    row = measurements.c
    values = (case((is_untimed(), None), else_=row[name]).label(name) for name in wanted)
    columns = (row.cell, row.run, row.replicate, row.status, row.program, *values)
    with connected(source) as conn:
        names = cell_names(conn, CellFilter(suites=(suite,), models=(model,)))
        of_model = names.index.tolist()
        rows: list[Sequence[Any]] = [*conn.execute(select(*columns).where(row.cell.in_(of_model))).all()]
        absent = (None,) * (len(columns) - 2)
        planned = select(Planned.cell, Planned.run).where(Planned.cell.in_(of_model))
        rows += [(*place, *absent) for place in conn.execute(planned)]
        runs = frame(conn, _runs_query(None))
        programs = frame(conn, select(Program.id.label("program"), Program.program_id))
    # Names are joined here: a query would fetch each of them once a row.
    table = framed(rows, columns).merge(runs.assign(place=range(len(runs))), on="run")
    table = table.merge(names, left_on="cell", right_index=True).merge(programs, on="program", how="left")
    table = table.sort_values(["place", "cell_id", "replicate"], ignore_index=True)
    return _dated(table)[[*_RUN, *_OF_CELL, "replicate", "status", "program_id", *wanted]].astype(
        {"replicate": "Int64"}
    )


def suite_history(source: Source, *, filters: CellFilter = EVERYTHING, branch: str | None = None) -> pd.DataFrame:
    """Every group's figures over all runs, oldest run first, then by name, from the summaries (models cannot be filtered).

    Columns: those that name the run (see `model_history`), suite, phase, dtype, device, config, config_id, the counts
    planned, measured, missing, passed, failed, not_applicable, attempted (measured less not applicable), pass_rate (passed
    over attempted, 0 to 1), and of each metric of
    `SUITE_METRICS` its average (geometric means of `GEOMEANS`, means of `MEANS`, NaN where no cell has it) and the count
    `n_<metric>`. Raises `ValueError` where the filter names models.
    """
    if filters.models:
        raise ValueError("a suite's history is kept for all its models together")
    averages = (*(f"n_{name}" for name in SUITE_METRICS), *SUITE_METRICS)
    group = ("suite", "phase", "dtype", "device", *_COUNTS, *averages)
    query = select(summaries.c.run, ConfigRow.name.label("config"), ConfigRow.config_id)
    query = query.add_columns(*(summaries.c[name] for name in group))
    query = query.join(ConfigRow, ConfigRow.id == summaries.c.config).where(*filters.of_summaries())
    with connected(source) as conn:
        table, runs = frame(conn, query), frame(conn, _runs_query(branch))
    table = table.merge(runs.assign(place=range(len(runs))), on="run")
    order = ["place", "suite", "phase", "dtype", "device", "config", "config_id"]
    table = table.sort_values(order, ignore_index=True)
    attempted = table["measured"] - table["not_applicable"]
    table = _dated(table).assign(
        missing=table["planned"] - table["measured"],
        attempted=attempted,
        pass_rate=table["passed"] / attempted.astype(np.float64).where(attempted > 0),
    )
    return table[[*_RUN, *group, "config", "config_id", "missing", "attempted", "pass_rate"]]


def _runs_query(branch: str | None) -> Query:
    """Runs (of a branch) that measured, in the order of their start."""
    columns = (Run.id.label("run"), Run.run_id, Run.branch, Run.started_at, Run.attempt, Run.label)
    query = select(*columns, Commit.sha.label("commit"), Testbed.testbed_id)
    query = query.join(Commit, Run.commit == Commit.id).join(Testbed, Run.testbed == Testbed.id)
    of_branch = [] if branch is None else [Run.branch == branch]
    return query.where(is_measured(), *of_branch).order_by(Run.started_at, Run.run_id)


def _dated(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `started_at` in UTC."""
    return rows.assign(started_at=pd.to_datetime(rows["started_at"], unit="s", utc=True))
