"""The page of runs: the nights, the days on which one was due and none started, and the share of planned cells measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from statistics import median

import streamlit as st
from markupsafe import Markup

from analysis.compare.suite_groups import Counts
from analysis.elements import addresses
from analysis.elements.wording import ABSENT, Cell, anchor, count, joined, lines, moment, paragraph, share, span, table
from analysis.present import noise_line
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import url, widgets
from dashboard.url import Selection, current
from dashboard.widgets import alert, draw
from db.nights import NightInfo
from db.queries.side_rows import CellState

_UNASKED = [status.value for status in NOT_APPLICABLE]
#: The fewest days with nights, and the largest median of days between them, that show that a night is due each day.
_FEWEST, _DAILY = 4, 1.5


def nights_table(nights: Sequence[NightInfo]) -> Markup:
    """Return a table with a row a night, newest first; the counts are of cells."""
    head = ("started (UTC)", "branch@commit", "measured on", "completion")
    counts = ("duration", "planned", "measured", "passing", "failed", "missing")
    note = "passing and failed leave out the measured cells that do not apply here"
    return table("Nights", (*head, *counts), [_night_row(night) for night in nights], note=note, numbers=range(4, 10))


def _night_row(night: NightInfo) -> list[str]:
    newest, statuses = night.runs[0], night.statuses
    planned, measured = (sum(getattr(run, name) for run in night.runs) for name in ("planned", "measured"))
    passing = statuses.get(Status.PASS.value, 0)
    failed = sum(number for status, number in statuses.items() if status not in (Status.PASS.value, *_UNASKED))
    started = anchor(url.link("", new=night.night, base=""), moment(night.started_at))
    return [
        lines(started, span("soft", newest.label) if newest.label else ""),
        joined("@", [newest.branch, addresses.commit(newest.repo, newest.commit)]),
        night.place or ABSENT,
        _ended(night),
        _took(night),
        *(f"{number:,}" for number in (planned, measured, passing)),
        span("tag fail", f"{failed:,}") if failed else "0",
        span("tag missing", f"{night.missing:,}") if night.missing else "0",
    ]


def _took(night: NightInfo) -> str:
    ends = [run.finished_at for run in night.runs]
    if any(end is None for end in ends):
        return ABSENT
    minutes = (max(end for end in ends if end) - min(run.started_at for run in night.runs)).total_seconds() / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min"


def _ended(night: NightInfo) -> Markup:
    cut = sum(run.finished_at is None for run in night.runs)
    resumed = max(run.attempt for run in night.runs) - 1
    whole = span("tag fail", f"{cut} of {len(night.runs)} runs cut off or still running") if cut else "complete"
    return joined(", ", [whole, f"resumed {count(resumed, 'time')}" if resumed > 0 else ""])


def silent_days(nights: Iterable[NightInfo], branch: str, today: date) -> list[date]:
    """Return the days on which a night of a branch was due and none started, newest first, up to the day before `today`.

    A night is due each day if nights started on at least 4 days, and the median of the days from one to the next is at most 1.5.
    """
    days = sorted({night.started_at.date() for night in nights if night.runs[0].branch == branch})
    gaps = [(later - earlier).days for earlier, later in pairwise(days)]
    if len(days) < _FEWEST or median(gaps) > _DAILY:
        return []
    span_days = max(0, (today - timedelta(days=1) - days[0]).days)
    due = {days[0] + timedelta(days=number) for number in range(span_days + 1)}
    return sorted(due - set(days), reverse=True)


def coverage_table(states: Sequence[CellState], caption: str) -> Markup:
    """Return a table of config x suite: how many of the planned cells were measured, how many failed and are missing."""
    groups: dict[tuple[str, str], list[CellState]] = {}
    for state in states:
        if state.cell:
            groups.setdefault((state.cell.config, state.cell.suite), []).append(state)
    suites = sorted({suite for _, suite in groups})
    configs = dict.fromkeys(config for config, _ in groups)
    rows = [(config, *(_coverage_cell(groups.get((config, suite), [])) for suite in suites)) for config in configs]
    return table(caption, ("config", *suites), rows, note="measured of planned", numbers=range(1, 1 + len(suites)))


def _coverage_cell(states: Sequence[CellState]) -> Cell | str:
    if not states:
        return Cell("not planned", "unplanned n")
    of = Counts.of(states)
    measured = f"{of.measured:,} of {of.planned:,} ({share(of.measured, of.planned)})"
    tags = (
        *(("tag fail", of.failed, "failed"), ("tag missing", of.missing, "missing")),
        ("tag", of.not_applicable, "not applicable"),
    )
    return lines(measured, *(span(css, f"{number:,} {word}") for css, number, word in tags if number))


#: Nights and silent days that are shown; older ones are counted.
_NIGHTS, _DAYS = 60, 14


def page(selection: Selection) -> None:
    """Draw the page."""
    widgets.title("Runs")
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
        widgets.show_nothing("Nothing to show", f"{selection.new.title} has no cell under these filters.")
        widgets.link_neighbours(selection.new, selection.data.nights_with(selection.filters), "runs")
    by_setting: dict[tuple[str, str, str], list[CellState]] = {}
    for state in cells:
        if state.cell:
            by_setting.setdefault((state.cell.phase, state.cell.dtype, state.cell.device), []).append(state)
    for (phase, dtype, device), states in sorted(by_setting.items()):
        draw(coverage_table(states, f"{phase.capitalize()}, {dtype}, {device}"))
    if selection.pair is not None:
        st.header("Noise", anchor=False)
        draw(paragraph("", noise_line(selection.data.comparison(selection.pair))))


if __name__ == "__main__":  # as Streamlit runs a page; other modules import parts of it
    page(current())
