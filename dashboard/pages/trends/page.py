"""How the suites went from night to night, on the branch of the new side or on some beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import url
from dashboard.components import code_host, palette, pictures
from dashboard.components import empty_states as states
from dashboard.components.formats import ABSENT, count, moment, signed
from dashboard.components.markup import anchor, block, cell, legend, line_legend, markdown, row, table, text
from dashboard.pages.trends import levels as trends
from dashboard.pages.trends import periods
from dashboard.pages.trends import plots as trend_plots
from dashboard.selection import Selection, current
from db.errors import nearest, one_line

_RULE = (
    "Averages over what passed in a night, not paired: lines connect nights with equally many models. Triangles mark new "
    "levels (ten nights are needed to see one). Compare judges cell by cell."
)
_STRETCH_RULE = "A point is the mean of its nights, of those with as many models as the newest of them."


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the pickers above the charts leave: the history of one setting, of some branches, in a stretch of time."""

    history: pd.DataFrame
    branches: list[str]
    first: date | None
    last: date | None
    by: str
    usual: tuple[date, date]
    begins: date
    night_of: dict[str, str]
    key: str


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Trends", anchor=False)
    branches = _branches(selection)
    named = " or ".join(branches)
    found = {name: trends.with_pass_rate(selection.data.suite_history(name, selection.filters)) for name in branches}
    columns = st.columns([4, 3, 2])
    history = _one_setting(trends.joined(found), columns[0])
    if history.empty:
        states.show("Nothing to show", f"No run of {named} has figures under these filters. Widen them at the left.")
        return
    first, last, by, said = periods.read()
    _say(*said)
    night_of = {run.run_id: night.night for night in selection.data.nights() for run in night.runs}
    days = periods.days_of(history)
    # Years of nights as points are neither read nor drawn in time; of weeks and months there are few.
    usual = days if by in ("week", "month") else (trends.newest(history, night_of), days[1])
    periods.pick(columns[1], first, last, usual)
    columns[2].selectbox(
        "A point is a",
        list(periods.STRETCHES),
        format_func=lambda key: periods.STRETCHES[key],
        key=url.bind("by", by),
        on_change=url.changed,
        args=("by",),
    )
    setting = history.iloc[0][["phase", "dtype", "device"]].tolist()
    key = "\n".join([selection.data.revision, repr(branches), repr(selection.filters.to_json()), repr(setting)])
    shown = _Shown(history, branches, first, last, by, usual, days[0], night_of, key)

    _figures(selection, shown)


def _figures(selection: Selection, of: _Shown) -> None:
    metric, look = _choices(of.history)
    trend, steps = _trend(
        of.history, of.night_of, of.key, metric, of.first or of.usual[0], of.last or of.usual[1], of.by
    )
    named = " or ".join(of.branches)
    if trend.empty:
        when = "in this time " if of.first or of.last else ""
        states.show("Nothing to show", f"{trends.title(metric)} was not measured on {named} {when}under these filters.")
        return
    for name in of.branches:
        if not (trend["branch"] == name).any():
            _say(f"{name} has no {trends.title(metric)} in this time under these filters: no line is of it.")
    gallery = _draw(selection, trend, steps, metric, of, look)
    older = f" Older ones, from {of.begins} on, by another time." if not of.first and of.usual[0] > of.begins else ""
    shown_ones = count(trend["place"].nunique(), periods.STRETCHES[of.by])
    listed = ", ".join(markdown(name) for name in of.branches)
    st.caption(f"{listed}, {shown_ones}.{older} {_RULE} {_STRETCH_RULE if of.by else ''}")
    gallery.offer()


@st.cache_resource(show_spinner=False, max_entries=12)
def _trend(
    _history: pd.DataFrame, _night_of: dict[str, str], key: str, metric: str, first: date, last: date, by: str
) -> tuple[pd.DataFrame, list[trends.Step]]:
    """A figure of a history, which `key` names, over time, and where it went to new levels: shared by all, not to be changed."""
    shown = periods.within(_history, first, last)
    trend = trends.by_stretch(trends.by_night(shown, metric, _night_of), metric, by)
    return trend, ([] if trend.empty else trends.steps(trend, metric))


def _branches(selection: Selection) -> list[str]:
    """Draws the choice of branches, where there are several; that of the new side where the address names none."""
    own = selection.new.branches[0]
    listed = dict.fromkeys([own, *(run.branch for night in selection.data.nights() for run in night.runs)])
    wanted = url.get_all("branch")
    for name in wanted:
        if name not in listed:
            asked = f"The address asks for the branch {one_line(name)!r}, of which there is no run"
            _say(f"{asked}{nearest(name, listed)}. No line is of it.")
    known = [name for name in wanted if name in listed]
    if len(known) > trends.BRANCHES:
        _say(f"More than {trends.BRANCHES} branches are not told apart: the first {trends.BRANCHES} are shown.")
    chosen = known[: trends.BRANCHES] or [own]
    if len(listed) > 1:
        st.multiselect(
            "Branches",
            list(listed),
            key=url.bind("branch", chosen),
            on_change=_picked_branches,
            args=(own,),
            max_selections=trends.BRANCHES,
        )
    return chosen


def _picked_branches(own: str) -> None:
    chosen = st.session_state[url.widget("branch")]
    url.put("branch", None if chosen == [own] else chosen)


def _draw(
    selection: Selection, trend: pd.DataFrame, found: list[trends.Step], metric: str, of: _Shown, look: _Look
) -> pictures.Gallery:
    branches, by = of.branches, of.by
    configs = _highlighted(trend, branches)
    lines = trend.drop_duplicates("line").set_index("line")
    several = len(branches) > 1
    named = [f"{config}, {branch}" for config in configs for branch in branches] if several else configs
    highlighted = [name for name in named if name in lines.index]
    titles = {run.commit: run.commit_title or "" for night in selection.data.nights() for run in night.runs}
    gallery = pictures.Gallery(interactive=look.interactive)
    at = trend_plots.times(trend, dates=look.dates)
    for suite in dict.fromkeys(sorted(trend["suite"])):
        said = trends.said(trend, suite, metric, highlighted, found, periods.STRETCHES[by])
        args = (trend, suite, metric, highlighted, found)
        gallery.add(
            f"trend_{suite}",
            said,
            partial(trends.chart, *args, dates=look.dates, branches=branches, titles=titles, log=look.log),
            partial(trend_plots.chart, *args, at, said=said, branches=branches, titles=titles, log=look.log),
        )
    gallery.draw(_legend(lines, highlighted, branches) if several else legend(palette.series(), highlighted))
    tables = [_newest(trend, metric, highlighted)] if several else []
    tables += [_steps(selection, found, metric, several)] if found else []
    if tables:
        st.html(block(*tables))
    return gallery


def _legend(lines: pd.DataFrame, highlighted: Sequence[str], branches: Sequence[str]) -> str:
    dashes = dict(zip(branches, trends.DASHES, strict=False))
    return line_legend(
        [
            (color, dashes[lines["branch"][name]], name)
            for color, name in zip(palette.series(), highlighted, strict=False)
        ]
    )


def _newest(trend: pd.DataFrame, metric: str, highlighted: Sequence[str]) -> str:
    """What the charts show of several branches, as a table: each line's first and newest value."""
    shown = trend[trend["line"].isin(list(highlighted))].sort_values("place", kind="stable")
    rows = []
    for (suite, config, branch), found in shown.groupby(["suite", "config", "branch"]):
        first, last = found.iloc[0], found.iloc[-1]
        change = signed(100 * (last["value"] / first["value"] - 1)) if first["value"] > 0 else ABSENT
        values = [cell(text(trends.value(metric, side["value"])), "n") for side in (first, last)]
        rows.append(
            row(
                text(f"{suite}, {config}"),
                [
                    cell(text(branch)),
                    *values,
                    cell(text(change), "n"),
                    cell(text(f"{last['models']:,}"), "n"),
                    cell(text(moment(last["started_at"])), "n"),
                ],
            )
        )
    heads = ("suite, config", "branch", "first", "newest", "change", "models", "measured (UTC)")
    return table("Highlighted lines", heads, rows, note=f"{trends.title(metric)}; averages are not paired", numbers=2)


def _one_setting(history: pd.DataFrame, where: Any) -> pd.DataFrame:
    """Averages of one phase, dtype and device: the one with most cells under the filters, or the chosen one."""
    if history.empty:
        return history
    keys = ["phase", "dtype", "device"]
    tally = history.groupby(keys)["planned"].sum().sort_values(ascending=False)
    options = {", ".join(map(str, setting)): setting for setting in tally.index}
    chosen = _known("setting", list(options), next(iter(options)))
    where.selectbox(
        "Phase, dtype, device",
        list(options),
        key=url.bind("setting", chosen),
        on_change=url.changed,
        args=("setting", next(iter(options))),
    )
    phase, dtype, device = options[chosen]
    kept: pd.DataFrame = history[
        (history["phase"] == phase) & (history["dtype"] == dtype) & (history["device"] == device)
    ]
    return kept


@dataclass(frozen=True, slots=True)
class _Look:
    """How the charts are drawn."""

    log: bool
    dates: bool
    interactive: bool


def _choices(history: pd.DataFrame) -> tuple[str, _Look]:
    measured = [name for name in trends.FIGURES if (history[f"n_{name}"] > 0).any()] or list(trends.FIGURES[:1])
    metric = _known("metric", measured, measured[0])
    columns = st.columns([3.4, 1.2, 1.2, 1.4], vertical_alignment="bottom")
    columns[0].selectbox(
        "Figure",
        measured,
        format_func=trends.title,
        key=url.bind("metric", metric),
        on_change=url.changed,
        args=("metric", measured[0]),
    )
    switches = {}
    for column, key, label in ((columns[1], "log", "log scale"), (columns[2], "dates", "by date")):
        switches[key] = column.toggle(label, key=url.bind(key, url.get(key) == "1"), on_change=_toggled, args=(key,))
    return metric, _Look(switches["log"], switches["dates"], pictures.interactive(columns[3]))


def _known(key: str, names: Sequence[str], default: str) -> str:
    """What the address asks for; what is not there is said."""
    wanted = url.get(key)
    if wanted and wanted not in names:
        asked = f"The address asks for {key} {one_line(wanted)!r}"
        _say(f"{asked}, which is not among these{nearest(wanted, names)}. {default} is shown.")
    return wanted if wanted in names else default


def _say(*lines: str) -> None:
    for line in lines:
        st.html(f'<div class="iw iw-state" role="alert">{text(line)}</div>')


def _toggled(key: str) -> None:
    url.put(key, "1" if st.session_state[url.widget(key)] else None)


def _highlighted(trend: pd.DataFrame, branches: Sequence[str]) -> list[str]:
    """The configs whose lines have a colour: so many that there are not too many lines on all branches together."""
    most = trends.MOST // len(branches)
    names = list(trend["config"].value_counts().index)
    asked = url.get_all("config")
    for name in asked:
        if name not in names:
            _say(f"The address asks for the config {one_line(name)!r}, which has no line here{nearest(name, names)}.")
    known = [name for name in asked if name in names]
    if len(known) > most:
        _say(f"The address asks for {len(known)} configs; {most} have lines of their own here, the first of them.")
    wanted = known[:most] or names[:most]
    st.multiselect(
        "Highlighted configs",
        names,
        key=url.bind("config", wanted),
        on_change=url.changed,
        args=("config",),
        max_selections=most,
    )
    return wanted


def _steps(selection: Selection, found: Sequence[trends.Step], metric: str, several: bool) -> str:
    repo_of = {run.commit: run.repo for night in selection.data.nights() for run in night.runs}
    rows = [
        row(
            text(f"{step.suite}, {step.line}"),
            [
                cell(text(trends.value(metric, step.level_before)), "n"),
                cell(text(trends.value(metric, step.level_after)), "n"),
                cell(text(signed(100 * (step.level_after / step.level_before - 1))), "n"),
                cell(_range(step)),
                cell(_landed(step, repo_of)),
                cell(text("another number of models" if step.other_models else "")),
            ],
        )
        for step in found
    ]
    what = "suite, config, branch" if several else "suite, config"
    return table("New levels", (what, "before", "after", "change", "between", "commits", "note"), rows)


def _range(step: trends.Step) -> str:
    nights = url.link("compare", base=str(step.before["night"]), new=str(step.after["night"]))
    words = " and ".join(moment(side["started_at"]) for side in (step.before, step.after))
    return anchor(nights, text(words))


def _landed(step: trends.Step, repo_of: Mapping[str, str]) -> str:
    """The commits that a new level can come from, of the nights around it."""
    base, new = (str(side["commit"]) for side in (step.before, step.after))
    repos = {repo_of.get(sha, "") for sha in (base, new)}
    return code_host.commits(repos.pop() if len(repos) == 1 else "", base, new)


page(current())
