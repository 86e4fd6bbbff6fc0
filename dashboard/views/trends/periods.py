"""The period of time that trends show, and how it is cut: as the address says, with a sentence for what is odd in it."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from dashboard import url
from db.errors import nearest, one_line

#: How pandas calls the periods, and what a point of the chart then stands for.
PERIODS = {"": "night", "day": "day", "week": "week", "month": "month"}
_PANDAS = {"day": "D", "week": "W", "month": "M"}


def read() -> tuple[date | None, date | None, str, list[str]]:
    """First and last day (UTC, both in), the period (a key of `PERIODS`), and what cannot be read of all that."""
    problems: list[str] = []
    first, last = (_day(key, problems) for key in ("since", "until"))
    if first and last and first > last:
        problems.append(f"The address asks for {first} to {last}, which ends before it begins. It is turned round.")
        first, last = last, first
    by = url.get("by")
    if by not in PERIODS:
        problems.append(
            f"The address asks for a point a {one_line(by)!r}{nearest(by, filter(None, PERIODS))}. Nights are shown."
        )
        by = ""
    return first, last, by, problems


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


def pick(where: Any, first: date | None, last: date | None, days: tuple[date, date]) -> None:
    """Draws the choice of days; `days`, what is shown where nothing is asked for, are no entry in the address."""
    shown = (first or days[0], last or days[1])
    st.session_state[url.widget("days")] = shown
    where.date_input("Time (UTC)", key=url.widget("days"), format="YYYY-MM-DD", on_change=_picked, args=days)


def _picked(first: date, last: date) -> None:
    chosen = st.session_state[url.widget("days")]
    # With the first day alone the choice is half made.
    if isinstance(chosen, tuple) and len(chosen) == 2:
        url.put("since", None if chosen[0] == first else chosen[0].isoformat())
        url.put("until", None if chosen[1] == last else chosen[1].isoformat())


def days_of(history: pd.DataFrame) -> tuple[date, date]:
    """The first and the last day on which a run started."""
    started = history["started_at"]
    return started.min().date(), started.max().date()


def within(history: pd.DataFrame, first: date | None, last: date | None) -> pd.DataFrame:
    """The rows of runs that started on these days."""
    if not (first or last) or history.empty:
        return history
    started = pd.to_datetime(history["started_at"], utc=True)
    kept = pd.Series(True, index=history.index)
    if first:
        kept &= started >= pd.Timestamp(first, tz="UTC")
    if last:
        kept &= started < pd.Timestamp(last, tz="UTC") + pd.Timedelta(days=1)
    return history[kept]


def averaged(trend: pd.DataFrame, period: str, *, is_mean: bool) -> pd.DataFrame:
    """The nights of `dashboard.views.trends.levels.by_night` put together by period: the mean of their averages,
    geometric unless `is_mean`.

    Of each period those nights count that had as many models as its newest: averages over others are another thing. Every
    other column is the newest night's; `place`, `segment` and the order of the rows are left to the caller.
    """
    if not period:
        return trend
    moments = pd.to_datetime(trend["started_at"], utc=True).dt.tz_localize(None)
    rows = trend.assign(
        period=moments.dt.to_period(_PANDAS[period]).astype(str),
        value=trend["value"] if is_mean else np.log(trend["value"]),
    ).sort_values("started_at", kind="stable")
    of_period = [rows["period"], rows["suite"], rows["line"]]
    rows = rows[rows["models"] == rows["models"].groupby(of_period, sort=False).transform("last")]
    last = {name: "last" for name in rows.columns if name not in ("period", "suite", "line", "value")}
    found = rows.groupby(["period", "suite", "line"], sort=False).agg({"value": "mean", **last}).reset_index()
    return found.assign(value=found["value"] if is_mean else np.exp(found["value"]))
