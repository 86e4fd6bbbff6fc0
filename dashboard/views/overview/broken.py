"""What broke, a line each: the reason, the end of the log, and the command that measures the cell again."""

from __future__ import annotations

import pandas as pd
import streamlit as st
from markupsafe import Markup

from collector.repro import repro_command
from dashboard.components import copying
from dashboard.components.markup import draw, lines, status_tag
from dashboard.data import Data
from dashboard.views.overview import lists
from db.queries import details

#: Cells with a line each; the table of reasons has the others.
_LINES = 5


def show(data: Data, cells: pd.DataFrame) -> None:
    """Draws the cells that broke, which are all of `cells`."""
    if cells.empty:
        return
    records = cells.head(_LINES)[[*lists.NAMES, "cell_id", "run_id_new", *(f"{name}_new" for name in lists.REASON)]]
    draw(Markup("<p><b>Broke: {}</b></p>").format(len(cells)))
    for record in records.to_dict("records"):
        _line(data, record)
    lists.reasons("Broke as well", cells.iloc[_LINES:], "_new")


def _line(data: Data, record: lists.Record) -> None:
    failure = {name: record[f"{name}_new"] for name in lists.REASON}
    cell_id, run_id = str(record["cell_id"]), str(record["run_id_new"])
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(width="stretch"):
            draw(lines(lists.named(record), status_tag(failure["status"]), lists.reason(failure)))
        menu = st.popover("Log", icon=":material/article:", key=f"log_of_{cell_id}", on_change="rerun", width="content")
        if menu.open:
            log = details.evidence(data.engine, run_id, cell_id)[1]
            menu.code(log or "No log was stored.", language=None, wrap_lines=True, height="content")
        if command := _command(data, cell_id):
            copying.button(f"command_{cell_id}", "Copy command", "Copied.", text=command, title=command)


def _command(data: Data, cell_id: str) -> str:
    """The command that measures the cell again; empty where another version's request cannot be read."""
    info = details.cell(data.engine, cell_id)
    try:
        cell = info.as_cell() if info else None
    except (ValueError, TypeError):
        return ""
    if cell is None:
        return ""
    return repro_command(cell, details.own_models_of(data.engine, {(cell.suite, cell.model)}).get(cell.model))
