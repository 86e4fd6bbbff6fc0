"""The overview's lists of cells: those that broke, those that changed most, those that did not pass, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import streamlit as st
from markupsafe import Markup

from analysis.compare.cell_comparison import CHANGES, CellComparison, Outcome, Transition
from analysis.compare.comparison import Comparison
from analysis.elements.addresses import cell_query
from analysis.elements.listings import change_table, named, reason, where
from analysis.elements.markup import anchor, joined, lines, status_tag, table
from analysis.history.regression_record import cell_of
from analysis.rerun import stored_repro
from dashboard import url
from dashboard.components import widgets
from dashboard.components.drawing import draw
from dashboard.data import Data
from db.queries import details
from db.queries.cells import CellName
from db.queries.side_rows import CellState

#: Rows of a list, rows of the changes, cells that broke with a line each: the model's page has all.
_ROWS, _CHANGES, _BROKEN = 40, 8, 5

#: A cell and one of its sides.
Named = tuple[CellName, CellState]


def changes(comparison: Comparison) -> None:
    """Draws what regressed or improved most, by the metric that tells each best; nothing where there is none."""
    found = comparison.ranked_findings(CHANGES)
    if not found:
        return
    note = f"the first {_CHANGES} of {len(found)}, what regressed first" if len(found) > _CHANGES else ""
    draw(change_table("Changed most", found[:_CHANGES], url.link, note))


def broken(data: Data, cells: Sequence[CellComparison]) -> None:
    """Draws the cells that broke, which are all of `cells`."""
    if not cells:
        return
    draw(Markup("<p><b>Broke: {}</b></p>").format(len(cells)))
    for one in cells[:_BROKEN]:
        _line(data, one)
    reasons("Broke as well", [(one.cell, one.new) for one in cells[_BROKEN:]])


def _line(data: Data, one: CellComparison) -> None:
    cell_id, run_id = one.cell.cell_id, str(one.new.run_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(width="stretch"):
            draw(lines(named(one.cell, url.link), status_tag(one.new.status), reason(one.new)))
        menu = st.popover("Log", icon=":material/article:", key=f"log_of_{cell_id}", on_change="rerun", width="content")
        if menu.open:
            log = details.evidence(data.engine, run_id, cell_id)[1]
            menu.code(log or "No log was stored.", language=None, wrap_lines=True, height="content")
        if command := _command(data, cell_id, run_id):
            widgets.button(f"command_{cell_id}", "Copy command", "Copied.", text=command, title=command)


def _command(data: Data, cell_id: str, run_id: str) -> str:
    """The command that measures the cell again; empty where another version's request cannot be read."""
    with data.engine.connect() as conn:
        cell = cell_of(conn, cell_id)
        return stored_repro(conn, cell, run_id) if cell else ""


def lost(comparison: Comparison) -> None:
    """Draws what sometimes passes and what is missing in new."""
    flaky = [one for one in comparison.of(Outcome.FLAKY) if one.transition is Transition.BROKE]
    reasons("Flaky: failed in some runs of one side", [(one.cell, one.new) for one in flaky])
    _missing("Missing in new", [one.cell for one in comparison.of(Outcome.MISSING)])


def remaining(comparison: Comparison) -> None:
    """Draws the other cells that do not pass on both sides."""

    def of(transition: Transition) -> list[CellComparison]:
        return [one for one in comparison.cells if one.transition is transition]

    reasons("Still failing", [(one.cell, one.new) for one in of(Transition.STILL_FAILING)])
    reasons("Fixed (why it failed in base)", [(one.cell, one.base) for one in of(Transition.FIXED)])
    reasons("Not applicable", [(one.cell, one.new) for one in of(Transition.NOT_APPLICABLE)])
    _missing("Missing in both", [one.cell for one in of(Transition.MISSING_IN_BOTH)])
    entered = [(one.cell, one.new) for one in of(Transition.ENTERED) if not one.new.passes]
    reasons("Planned in new only, not passing", entered)


def alone(cells: Iterable[CellState]) -> None:
    """Draws the cells of one side that do not pass."""
    rows = [(state.cell, state) for state in cells if state.cell and not state.passes]
    measured = [row for row in rows if row[1].status is not None]
    reasons("Failing", [row for row in measured if not row[1].is_not_applicable])
    _missing("Missing", [cell for cell, state in rows if state.status is None])
    reasons("Not applicable", [row for row in measured if row[1].is_not_applicable])


def reasons(title: str, cells: Sequence[Named]) -> None:
    """A row per cell: its status and why."""
    if not cells:
        return
    rows = [(named(cell, url.link), status_tag(state.status), reason(state)) for cell, state in cells[:_ROWS]]
    note = f"the first {_ROWS} of {len(cells)}" if len(cells) > _ROWS else ""
    draw(table(f"{title}: {len(cells)}", ["cell", "status", "reason"], rows, note=note))


def _missing(title: str, cells: Sequence[CellName]) -> None:
    """Missing cells have no reason: a row per model, with the configs that are missing."""
    if not cells:
        return
    rows = []
    for _, of_model in groupby(cells, key=lambda cell: cell.axes):
        names = list(of_model)
        configs = joined(", ", (anchor(url.link("model", **cell_query(cell)), cell.config) for cell in names))
        rows.append((lines(names[0].model, where(names[0])), configs))
    note = "planned, and no measurement was stored" + (f"; the first {_ROWS} models" if len(rows) > _ROWS else "")
    draw(table(f"{title}: {len(cells)}", ["model", "configs"], rows[:_ROWS], note=note))
