"""The page of trends: the suites from night to night, on the branch of the new side or on some beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from analysis.elements import addresses, charts
from analysis.elements.wording import ABSENT, anchor, axis_of, count, moment, signed, table
from analysis.history import suite_levels
from dashboard import url, widgets
from dashboard.data import Data
from dashboard.url import Selection, current
from dashboard.widgets import (
    alert,
    draw,
    known,
    known_many,
    markdown,
    select,
    select_many,
    show_figures,
    switch,
    ways,
)
from db.queries.cells import CellFilter
from db.store_errors import one_line

_RULE = (
    "Points stand in the order of their commits. Each is an average over the models that passed. Models that come and go do "
    "not move a line: from point to point it changes as the models do that both have. Its fullest point is a plain average. "
    "The band is how far neighbours usually scatter (95 %). Triangles mark new levels, which take at least ten points. Compare "
    "judges each cell. Drag a chart to move it. Zoom with Ctrl and the wheel. Double-click to reset."
)
_PERIOD_RULE = "Of a period its newest night is shown."
_BRANCHES, _METRICS = len(charts.DASHES), 3
#: The time that a point of the charts stands for, by the address's value.
_POINTS = {"": "night", "day": "day", "week": "week", "month": "month"}


@dataclass(frozen=True, slots=True)
class _Shown:
    """The choices of the pickers above the charts: some branches under filters of one setting, from `first` to `last`."""

    data: Data
    branches: tuple[str, ...]
    filters: CellFilter
    first: date
    last: date
    by: str


def page(selection: Selection) -> None:
    """Draw the page."""
    widgets.title("Trends")
    data = selection.data
    branches = _branches(selection.new.branches[0], [run.branch for night in data.nights() for run in night.runs])
    columns = st.columns([4, 3, 2])
    history = data.trend_history(branches, selection.filters)
    if history.empty:
        sentence = f"No run of {' or '.join(branches)} has figures under these filters. Widen them at the left."
        widgets.show_nothing("Nothing to show", sentence)
        widgets.link_neighbours(selection.new, data.nights_with(selection.filters), "trends")
        return
    filters = replace(selection.filters, **_one_setting(history, columns[0]))
    history = data.trend_history(branches, filters)
    since, until, problems = _asked_days()
    alert(*problems)
    by = url.choice("by")
    days = history["started_at"].min().date(), history["started_at"].max().date()
    # Years of nights are too many points to read or draw in time; of weeks and months there are few.
    usual = days if by in ("week", "month") else (suite_levels.newest(history), days[1])
    first, last = _pick_days(columns[1], since, until, usual)
    select("by", "Group by", list(_POINTS), by, names=_POINTS, where=columns[2])
    older = f" Older ones, from {days[0]} on, by another time." if not since and usual[0] > days[0] else ""
    _figures(_Shown(data, branches, filters, first, last, by), older, " in this time" if since or until else "")


def _figures(shown: _Shown, older: str, when: str) -> None:
    history = shown.data.trend_history(shown.branches, shown.filters)
    measured = [name for name in suite_levels.FIGURES if suite_levels.is_measured(history, name)]
    metrics = (known_many("metric", measured) or measured[:1])[:_METRICS]
    columns = st.columns([3.4, 1.2, 1.2], vertical_alignment="bottom")
    names = {name: suite_levels.title(name) for name in measured}
    select_many(
        "metric", "Metrics", measured, metrics, names=names, most=_METRICS, default=measured[:1], where=columns[0]
    )
    log, dates = switch("log", "log scale", where=columns[1]), switch("dates", "by date", where=columns[2])
    trends = {
        metric: shown.data.trend(shown.branches, shown.filters, metric, shown.first, shown.last, shown.by)
        for metric in metrics
    }
    trends = {metric: found for metric, found in trends.items() if not found[0].empty}
    if not trends:
        words = f"{names[metrics[0]]} was not measured on {' or '.join(shown.branches)}{when} under these filters."
        widgets.show_nothing("Nothing to show", words)
        return
    trend = next(iter(trends.values()))[0]
    for metric, (lines, _) in trends.items():
        for name in shown.branches:
            if not (lines["branch"] == name).any():
                alert(f"{name} has no {names[metric]} in this time under these filters: no line is of it.")
    highlighted = _highlighted(trend, shown.branches)
    leading = st.container()
    first = trend.sort_values("place").drop_duplicates("night")
    nights = dict(zip(first["night"].astype(str), first["label"].astype(str), strict=True))
    figures, tables = [], []
    for metric, (lines, steps) in trends.items():
        figures += _charts(shown, lines, steps, metric, highlighted, log=log, dates=dates)
        tables += [_newest(lines, metric, highlighted)] if len(shown.branches) > 1 else []
        tables += [_levels_table(steps, metric, shown.branches)] if steps else []
    # The metrics of a suite beside each other.
    figures.sort(key=lambda figure: figure.key.rpartition(" ")[0])
    ways(leading, show_figures(figures), nights, partial(url.link, "compare"), "night")
    draw(*tables)
    points = count(trend["place"].nunique(), _POINTS[shown.by])
    branches = ", ".join(markdown(name) for name in shown.branches)
    st.caption(f"{branches}, {points}.{older}")
    with st.expander("How is this decided?"):
        st.caption(f"{_RULE} {_PERIOD_RULE if shown.by else ''}")


def _branches(own: str, listed: Sequence[str]) -> tuple[str, ...]:
    """Draw the picker of branches, where there are several, and return the picked ones: by default the new side's."""
    names = list(dict.fromkeys([own, *listed]))
    asked = known_many("branch", names)
    if len(asked) > _BRANCHES:
        alert(f"More than {_BRANCHES} branches are not told apart: the first {_BRANCHES} are shown.")
    chosen = asked[:_BRANCHES] or [own]
    if len(names) > 1:
        select_many("branch", "Branches", names, chosen, most=_BRANCHES, default=[own])
    return tuple(chosen)


def _one_setting(history: pd.DataFrame, where: st.delta_generator.DeltaGenerator) -> dict[str, tuple[str]]:
    """Draw the picker of one phase, dtype and device, and return them as filters: by default the setting with most cells."""
    axes = ["phase", "dtype", "device"]
    planned = history.groupby(axes)["planned"].sum().sort_values(ascending=False)
    options = {", ".join(names): names for names in planned.index}
    first = next(iter(options))
    chosen = known("setting", options, first)
    select("setting", "Phase, dtype, device", list(options), chosen, default=first, where=where)
    return {f"{axis}s": (name,) for axis, name in zip(axes, options[chosen], strict=True)}


def _highlighted(trend: pd.DataFrame, branches: Sequence[str]) -> list[str]:
    """Draw the picker of configs, and return their lines, which get a colour: as many as can be told apart."""
    most = charts.MOST_LINES // len(branches)
    names = [str(name) for name in trend["config"].value_counts().index]
    asked = known_many("config", names)
    if len(asked) > most:
        alert(f"The address asks for {len(asked)} configs; {most} have lines of their own here, the first of them.")
    configs = asked[:most] or names[:most]
    select_many("config", "Highlighted configs", names, configs, most=most)
    shown: set[str] = set(trend["line"])
    lines = [f"{config}, {branch}" for config in configs for branch in branches] if len(branches) > 1 else configs
    return [line for line in lines if line in shown]


def _charts(
    shown: _Shown,
    trend: pd.DataFrame,
    steps: Sequence[suite_levels.Step],
    metric: str,
    highlighted: Sequence[str],
    *,
    log: bool,
    dates: bool,
) -> list[charts.Figure]:
    """Return a chart for each suite."""
    labels = list(trend.drop_duplicates("place").sort_values("place")["label"])
    size, head = axis_of(metric, suite_levels.title(metric), "%" if metric == suite_levels.RATE else "")
    figures = []
    for suite, rows in trend.groupby("suite"):
        triangles = suite_levels.triangles(steps, str(suite), highlighted, size)
        chart = charts.lines(
            rows.assign(value=rows["value"] / size),
            suite_levels.facts(rows),
            labels,
            highlighted,
            title=f"{suite}: {head}",
            pick="night",
            colors=widgets.colors(),
            levels=triangles,
            branches=shown.branches,
            dates=dates,
            log=log,
        )
        over = f"{suite_levels.title(metric)} of {suite} over {count(rows['place'].nunique(), _POINTS[shown.by])}"
        words = f"{over}: {charts.from_to(rows, highlighted)}; {count(len(triangles), 'new level')}"
        figures.append(charts.Figure(f"trend of {suite} {metric}", chart, words, picks=True))
    return figures


def _newest(trend: pd.DataFrame, metric: str, highlighted: Sequence[str]) -> str:
    """Return a table of the lines that the charts show of several branches: each line's first and newest value."""
    shown = trend[trend["line"].isin(list(highlighted))].sort_values("place", kind="stable")
    rows = []
    for (suite, config, branch), line in shown.groupby(["suite", "config", "branch"]):
        first, last = line.iloc[0], line.iloc[-1]
        change = signed(100 * (last["value"] / first["value"] - 1)) if first["value"] > 0 else ABSENT
        ends = (first["text"], last["text"], change, f"{last['models']:,}", moment(last["started_at"]))
        rows.append((f"{suite}, {config}", branch, *ends))
    heads = ("suite, config", "branch", "first", "newest", "change", "models", "measured (UTC)")
    note = f"{suite_levels.title(metric)}"
    return table("Highlighted lines", heads, rows, note=note, numbers=range(2, 7))


def _levels_table(steps: Sequence[suite_levels.Step], metric: str, branches: Sequence[str]) -> str:
    rows = [
        (
            f"{step.suite}, {step.line}",
            suite_levels.value(metric, step.level_before),
            suite_levels.value(metric, step.level_after),
            signed(100 * (step.level_after / step.level_before - 1)),
            _nights(step),
            _commits(step),
        )
        for step in steps
    ]
    what = "suite, config, branch" if len(branches) > 1 else "suite, config"
    heads = (what, "before", "after", "change", "between", "commits")
    return table("New levels", heads, rows, note=suite_levels.title(metric), of=metric, numbers=range(1, 4))


def _nights(step: suite_levels.Step) -> str:
    """Return the times of the nights around a new level, with a link to their comparison."""
    link = url.link("compare", base=str(step.before["night"]), new=str(step.after["night"]))
    return anchor(link, " and ".join(moment(side["started_at"]) for side in (step.before, step.after)))


def _commits(step: suite_levels.Step) -> str:
    """Return the commits that a new level can come from."""
    repo = str(step.before["repo"]) if step.before["repo"] == step.after["repo"] else ""
    return addresses.commits(repo, str(step.before["commit"]), str(step.after["commit"]))


def _asked_days() -> tuple[date | None, date | None, list[str]]:
    """Return the first and last day that the address asks for (UTC, both in), and sentences on days that cannot be read."""
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


def _pick_days(where: Any, first: date | None, last: date | None, days: tuple[date, date]) -> tuple[date, date]:
    """Draw the choice of days and return them; `days`, shown where nothing is asked for, are no entry in the address."""
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


page(current())
