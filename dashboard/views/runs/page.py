"""What was measured when, what should have been, and how much of it there is."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from analysis.present import noise_line
from dashboard.components import empty_states, heading
from dashboard.components.formats import count
from dashboard.components.markup import alert, draw, paragraph
from dashboard.selection import Selection, current
from dashboard.views.runs.night_rows import coverage_table, nights_table, silent_days
from db.queries.side_rows import CellState

#: Nights and silent days that are shown; older ones are counted.
_NIGHTS, _DAYS = 60, 14


def page(selection: Selection) -> None:
    """Draws the page."""
    heading.title("Runs")
    nights = selection.data.nights()
    draw(nights_table(nights[:_NIGHTS]))
    if len(nights) > _NIGHTS:
        st.caption(f"The newest {_NIGHTS} of {count(len(nights), 'night')}; `inductor-watch runs` lists all.")
    branch = selection.new.branches[0]
    if silent := silent_days(nights, branch, datetime.now(UTC).date()):
        days = ", ".join(day.isoformat() for day in silent[:_DAYS]) + (", ..." if len(silent) > _DAYS else "")
        alert(f"No night of {branch} on {count(len(silent), 'day')} on which one was due: {days}.")
    st.header("Coverage of new", anchor=False)
    cells = selection.data.summary(selection.fixed_new, selection.filters).cells
    if not cells:
        empty_states.show("Nothing to show", f"{selection.new.title} has no cell under these filters.")
        empty_states.neighbours(selection.new, selection.data.nights_with(selection.filters), "runs")
    by_setting: dict[tuple[str, str, str], list[CellState]] = {}
    for state in cells:
        if state.cell:
            by_setting.setdefault((state.cell.phase, state.cell.dtype, state.cell.device), []).append(state)
    for (phase, dtype, device), states in sorted(by_setting.items()):
        draw(coverage_table(states, f"{phase.capitalize()}, {dtype}, {device}"))
    if selection.pair is not None:
        st.header("Noise", anchor=False)
        draw(paragraph("", noise_line(selection.data.comparison(selection.pair))))


page(current())
