"""The overview's lists of cells: those that broke, those that changed most, those that did not pass, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.compare.transitions import Transition
from analysis.history.record import cell_of
from analysis.reports.permalinks import cell_query
from collector.metrics import METRICS
from collector.repro import repro_command
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import url
from dashboard.components import heading
from dashboard.components.changes import judged
from dashboard.components.formats import number
from dashboard.components.markup import anchor, change_cells, draw, joined, lines, span, status_tag, table
from dashboard.components.outcomes import CHANGED
from dashboard.data import Data
from db.queries import details

#: What names a cell, and why a side of it did not pass.
NAMES = ["suite", "model", "phase", "dtype", "device", "batch_size", "config"]
REASON = ("status", "stage", "exception", "message", "hint")
#: Rows of a list, rows of the changes, cells that broke with a line each, characters of a message: the model's page has all.
_ROWS, _CHANGES, _BROKEN, _MESSAGE = 40, 8, 5, 220
_MISSING = (Transition.MISSING, Transition.MISSING_IN_BOTH)

#: A row of the cells.
Record = Mapping[Any, Any]


def changes(cells: pd.DataFrame) -> None:
    """Draws the cells that regressed or improved most, by the metric that decided; nothing where there are none."""
    moved = cells[["outcome", "outcome_change"]][cells["outcome"].isin(CHANGED)]
    # r comes after i: what regressed is first.
    moved = moved.sort_values(["outcome", "outcome_change"], ascending=False)
    if moved.empty:
        return
    rows = [_change_row(record) for record in cells.loc[moved.index[:_CHANGES]].to_dict("records")]
    note = f"the first {_CHANGES} of {len(moved)}, what regressed first" if len(moved) > _CHANGES else ""
    head = ["cell", "metric", "base", "new", "change", "95 %", "verdict"]
    draw(table("Changed most", head, rows, note=note, numbers=range(2, 7)))


def broken(data: Data, cells: pd.DataFrame) -> None:
    """Draws the cells that broke, which are all of `cells`."""
    if cells.empty:
        return
    draw(Markup("<p><b>Broke: {}</b></p>").format(len(cells)))
    for record in cells.head(_BROKEN).to_dict("records"):
        _line(data, record)
    reasons("Broke as well", cells.iloc[_BROKEN:], "_new")


def _line(data: Data, record: Record) -> None:
    failure = {name: record[f"{name}_new"] for name in REASON}
    cell_id, run_id = str(record["cell_id"]), str(record["run_id_new"])
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(width="stretch"):
            draw(lines(named(record), status_tag(failure["status"]), reason(failure)))
        menu = st.popover("Log", icon=":material/article:", key=f"log_of_{cell_id}", on_change="rerun", width="content")
        if menu.open:
            log = details.evidence(data.engine, run_id, cell_id)[1]
            menu.code(log or "No log was stored.", language=None, wrap_lines=True, height="content")
        if command := _command(data, cell_id):
            heading.button(f"command_{cell_id}", "Copy command", "Copied.", text=command, title=command)


def _command(data: Data, cell_id: str) -> str:
    """The command that measures the cell again; empty where another version's request cannot be read."""
    cell = cell_of(data.engine, cell_id)
    if cell is None:
        return ""
    return repro_command(cell)


def lost(cells: pd.DataFrame) -> None:
    """Draws what sometimes passes and what is missing in new."""
    flaky = cells[cells["outcome"] != Transition.BROKE.value]
    _of_transition("Flaky: failed in some runs of one side", flaky, Transition.BROKE)
    _of_transition("Missing in new", cells, Transition.MISSING)


def remaining(cells: pd.DataFrame) -> None:
    """Draws the other cells that do not pass on both sides."""
    _of_transition("Still failing", cells, Transition.STILL_FAILING)
    _of_transition("Fixed (why it failed in base)", cells, Transition.FIXED, "_base")
    _of_transition("Not applicable", cells, Transition.NOT_APPLICABLE)
    _of_transition("Missing in both", cells, Transition.MISSING_IN_BOTH)
    not_passing = cells[cells["status_new"] != Status.PASS.value]
    _of_transition("Planned in new only, not passing", not_passing, Transition.ENTERED)


def alone(cells: pd.DataFrame) -> None:
    """Draws the cells of one side that do not pass."""
    status = cells["status"]
    unasked = status.isin([each.value for each in NOT_APPLICABLE])
    reasons("Failing", cells[status.notna() & ~unasked & (status != Status.PASS.value)], "")
    _missing("Missing", cells[status.isna()])
    reasons("Not applicable", cells[unasked], "")


def _of_transition(title: str, cells: pd.DataFrame, transition: Transition, side: str = "_new") -> None:
    rows = cells[cells["transition"] == transition.value]
    if transition in _MISSING:
        _missing(title, rows)
    else:
        reasons(title, rows, side)


def reasons(title: str, cells: pd.DataFrame, side: str) -> None:
    """A row per cell: its status on `side` ("", "_base" or "_new") and why."""
    if cells.empty:
        return
    rows = []
    for record in cells.head(_ROWS).to_dict("records"):
        failure = {name: record[f"{name}{side}"] for name in REASON}
        rows.append((named(record), status_tag(failure["status"]), reason(failure)))
    note = f"the first {_ROWS} of {len(cells)}" if len(cells) > _ROWS else ""
    draw(table(f"{title}: {len(cells)}", ["cell", "status", "reason"], rows, note=note))


def _missing(title: str, cells: pd.DataFrame) -> None:
    """Missing cells have no reason: a row per model, with the configs that are missing."""
    if cells.empty:
        return
    rows = []
    for _, of_model in cells[NAMES].groupby(NAMES[:-1], sort=False):
        records = of_model.to_dict("records")
        configs = joined(", ", (anchor(_model_link(record), record["config"]) for record in records))
        rows.append((lines(records[0]["model"], _where(records[0])), configs))
    note = "planned, and no measurement was stored" + (f"; the first {_ROWS} models" if len(rows) > _ROWS else "")
    draw(table(f"{title}: {len(cells)}", ["model", "configs"], rows[:_ROWS], note=note))


def _change_row(record: Record) -> tuple[Any, ...]:
    metric = record["outcome_metric"]
    values = [number(metric, record[f"{metric}_{side}"]) for side in ("base", "new")]
    return named(record), METRICS[metric].title, *values, *change_cells(judged(metric, record))


def named(record: Record) -> Markup:
    """A cell as a link to its page, and below it where it belongs."""
    name = joined(" ", [record["model"], span("soft", record["config"])])
    return lines(anchor(_model_link(record), name), _where(record))


def _where(record: Record) -> Markup:
    return span("soft", f"{record['suite']}, {record['phase']}, {record['dtype']}")


def _model_link(record: Record) -> str:
    return url.link("model", **cell_query(record))


def reason(failure: Record) -> Markup:
    """Why a cell did not pass, in a line or two; `failure` has `REASON`."""
    if not isinstance(failure["status"], str):
        return span("soft", "planned, and no measurement of it was stored")
    said = {name: value if isinstance(value, str) else "" for name, value in failure.items()}
    head = " in ".join(filter(None, (said["exception"], said["stage"])))
    message = said["message"] if said["message"] != said["exception"] else ""
    words = ": ".join(filter(None, (head, message)))
    words = words if len(words) <= _MESSAGE else f"{words[:_MESSAGE]}..."
    hint = span("soft", f"Hint: {said['hint']}") if said["hint"] else ""
    return lines(words, hint) or span("soft", "no reason was recorded")
