"""The history of a record's cell, with its base and its onset marked."""

from __future__ import annotations

from functools import partial

import streamlit as st

from analysis.history.record import Record
from collector.vocabulary import Cell
from dashboard import url
from dashboard.components import charts
from dashboard.components.widgets import ways
from dashboard.data import Data
from dashboard.views.model.history import runs_of

#: Runs that are drawn before the onset, and from it on.
_AROUND = 60


def query(cell: Cell) -> dict[str, str]:
    """What the address of the model page has of a cell."""
    setting = f"{cell.phase.value},{cell.dtype},{cell.device},{cell.batch_size}"
    return {"model": f"{cell.suite}/{cell.model}", "setting": setting, "config": cell.config.name}


def show(data: Data, record: Record) -> None:
    """Draws the metric of the record, or how each run ended, over the runs around the onset."""
    info, cell = record.info, record.cell
    if cell is None:
        return
    rows = data.history(cell.suite, cell.model)
    of_record = {"cell_id": info.cell_id, "testbed_id": info.testbed_id, "branch": info.branch}
    for column, value in of_record.items():
        rows = rows[rows[column] == value]
    rows = rows.drop_duplicates("run_id", keep="last").sort_values(["started_at", "run_id"], ignore_index=True)
    onset = next(iter(rows.index[rows["run_id"] == info.onset_run]), len(rows))
    rows = rows.iloc[max(0, onset - _AROUND) : onset + _AROUND]
    if len(rows) < 2:
        return
    marks = {"base": [info.base_run or ""], "onset": [info.onset_run or ""]}
    runs = runs_of(data, rows, (cell.config.name,), marks)
    has_values = info.metric in rows and rows[info.metric].notna().any()
    leading = st.container()
    picked = charts.show([runs.metric(info.metric) if has_values else runs.statuses()])
    if has_values:
        labels = dict(zip(runs.rows["run"].unique(), runs.labels, strict=True))
        ways(leading, picked, labels, partial(url.link, "model", **query(cell)), "run")
