"""The time that trends show, as the address says, with a sentence for what is odd in it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import url
from db.errors import one_line


def read() -> tuple[date | None, date | None, list[str]]:
    """First and last day (UTC, both in), and what cannot be read of them."""
    problems: list[str] = []
    first, last = (_day(key, problems) for key in ("since", "until"))
    if first and last and first > last:
        problems.append(f"The address asks for {first} to {last}, which ends before it begins. It is turned round.")
        first, last = last, first
    return first, last, problems


def _day(key: str, problems: list[str]) -> date | None:
    wanted = url.get(key)
    if not wanted:
        return None
    try:
        return date.fromisoformat(wanted)
    except ValueError:
        problems.append(
            f"The address asks for {key} {one_line(wanted)!r}, which is no date such as 2026-11-21. It is not applied."
        )
        return None


def pick(where: Any, first: date | None, last: date | None, days: tuple[date, date]) -> tuple[date, date]:
    """Draws the choice of days and returns them; `days`, shown where nothing is asked for, are no entry in the address."""
    shown = (first or days[0], last or days[1])
    st.session_state[url.widget("days")] = shown
    where.date_input("Time (UTC)", key=url.widget("days"), format="YYYY-MM-DD", on_change=_picked, args=days)
    return shown


def _picked(first: date, last: date) -> None:
    chosen = st.session_state[url.widget("days")]
    # With the first day alone the choice is half made.
    if isinstance(chosen, tuple) and len(chosen) == 2:
        url.put("since", None if chosen[0] == first else chosen[0].isoformat())
        url.put("until", None if chosen[1] == last else chosen[1].isoformat())


def within(history: pd.DataFrame, first: date, last: date) -> pd.DataFrame:
    """The rows of runs that started on these days."""
    end = pd.Timestamp(last, tz="UTC") + pd.Timedelta(days=1)
    return history[history["started_at"].between(pd.Timestamp(first, tz="UTC"), end, inclusive="left")]
