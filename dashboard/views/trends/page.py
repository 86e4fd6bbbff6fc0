"""How the suites went from night to night, on the branch of the new side or on some beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pandas as pd
import streamlit as st

from dashboard import url
from dashboard.components import charts, code_host, empty_states
from dashboard.components.formats import ABSENT, count, moment, signed
from dashboard.components.markup import alert, anchor, draw, markdown, table
from dashboard.components.widgets import known, known_many, select, select_many, switch
from dashboard.selection import Selection, current
from dashboard.views.trends import levels, periods

_RULE = (
    "A point is an average over the models that passed. Points are not paired: a line breaks where the number of models "
    "changes. Triangles mark new levels, which take at least ten nights. Compare judges each cell. Drag a chart to move it. "
    "Zoom with Ctrl and the wheel. Double-click to reset. Click the legend to highlight a line."
)
_PERIOD_RULE = "Of a period, only nights with as many models as its newest night enter the mean."
_UNKNOWN = "The address asks for {key} '{wanted}', which is not among these{nearest}. {default} is shown."
_NO_BRANCH = "The address asks for the branch '{wanted}', of which there is no run{nearest}. No line is of it."
_NO_CONFIG = "The address asks for the config '{wanted}', which has no line here{nearest}."
_BRANCHES = len(charts.DASHES)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the pickers above the charts leave: the history of one setting, of some branches, from `first` to `last`."""

    history: pd.DataFrame
    branches: list[str]
    first: date
    last: date
    by: str
    night_of: dict[str, str]
    titles: dict[str, str]
    repos: dict[str, str]
    key: str


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Trends", anchor=False)
    runs = [(run, night.night) for night in selection.data.nights() for run in night.runs]
    branches = _branches(selection.new.branches[0], [run.branch for run, _ in runs])
    histories = {name: selection.data.suite_history(name, selection.filters) for name in branches}
    columns = st.columns([4, 3, 2])
    history = levels.joined({name: levels.with_pass_rate(found) for name, found in histories.items()})
    if history.empty:
        named = " or ".join(branches)
        empty_states.show(
            "Nothing to show", f"No run of {named} has figures under these filters. Widen them at the left."
        )
        return
    history, setting = _one_setting(history, columns[0])
    first, last, by, problems = periods.read()
    alert(*problems)
    night_of = {run.run_id: night for run, night in runs}
    days = periods.days_of(history)
    # Years of nights as points are neither read nor drawn in time; of weeks and months there are few.
    usual = days if by in ("week", "month") else (levels.newest(history, night_of), days[1])
    periods.pick(columns[1], first, last, usual)
    select("by", "A point is a", list(periods.PERIODS), by, names=periods.PERIODS, where=columns[2])
    key = "\n".join([selection.data.revision, repr(branches), repr(selection.filters.to_json()), setting])
    titles = {run.commit: run.commit_title or "" for run, _ in runs}
    repos = {run.commit: run.repo for run, _ in runs}
    shown = _Shown(history, branches, first or usual[0], last or usual[1], by, night_of, titles, repos, key)
    older = f" Older ones, from {days[0]} on, by another time." if not first and usual[0] > days[0] else ""
    _figures(shown, older, " in this time" if first or last else "")


def _figures(shown: _Shown, older: str, when: str) -> None:
    measured = [name for name in levels.FIGURES if (shown.history[f"n_{name}"] > 0).any()] or list(levels.FIGURES[:1])
    metric = known("metric", measured, measured[0], _UNKNOWN)
    columns = st.columns([3.4, 1.2, 1.2], vertical_alignment="bottom")
    select("metric", "Figure", measured, metric, default=measured[0], names=levels.title, where=columns[0])
    log, dates = switch("log", "log scale", where=columns[1]), switch("dates", "by date", where=columns[2])
    trend, steps = _trend(shown.history, shown.night_of, shown.key, metric, shown.first, shown.last, shown.by)
    title = levels.title(metric)
    if trend.empty:
        named = " or ".join(shown.branches)
        empty_states.show("Nothing to show", f"{title} was not measured on {named}{when} under these filters.")
        return
    for name in shown.branches:
        if not (trend["branch"] == name).any():
            alert(f"{name} has no {title} in this time under these filters: no line is of it.")
    highlighted = _highlighted(trend, shown.branches)
    figures = _charts(shown, trend, steps, metric, highlighted, log=log, dates=dates)
    charts.show(figures)
    tables = [_newest(trend, metric, highlighted)] if len(shown.branches) > 1 else []
    draw(*tables, *([_levels_table(steps, metric, shown)] if steps else []))
    points = count(trend["place"].nunique(), periods.PERIODS[shown.by])
    branches = ", ".join(markdown(name) for name in shown.branches)
    st.caption(f"{branches}, {points}.{older} {_RULE} {_PERIOD_RULE if shown.by else ''}")
    charts.offer(figures)


@st.cache_resource(show_spinner=False, max_entries=12)
def _trend(
    _history: pd.DataFrame, _night_of: dict[str, str], key: str, metric: str, first: date, last: date, by: str
) -> tuple[pd.DataFrame, list[levels.Step]]:
    """A figure of a history, which `key` names, over time, and where it went to new levels: shared by all, not to be changed."""
    within = periods.within(_history, first, last)
    trend = levels.by_period(levels.by_night(within, metric, _night_of), metric, by)
    return trend, ([] if trend.empty else levels.steps(trend, metric))


def _branches(own: str, listed: Sequence[str]) -> list[str]:
    """Draws the choice of branches, where there are several; that of the new side where the address names none."""
    names = list(dict.fromkeys([own, *listed]))
    asked = known_many("branch", names, _NO_BRANCH)
    if len(asked) > _BRANCHES:
        alert(f"More than {_BRANCHES} branches are not told apart: the first {_BRANCHES} are shown.")
    chosen = asked[:_BRANCHES] or [own]
    if len(names) > 1:
        select_many("branch", "Branches", names, chosen, most=_BRANCHES, default=[own])
    return chosen


def _one_setting(history: pd.DataFrame, where: st.delta_generator.DeltaGenerator) -> tuple[pd.DataFrame, str]:
    """Averages of one phase, dtype and device: the one with most cells under the filters, or the chosen one."""
    names = history["phase"] + ", " + history["dtype"] + ", " + history["device"]
    options = list(history.groupby(names)["planned"].sum().sort_values(ascending=False).index)
    chosen = known("setting", options, options[0], _UNKNOWN)
    select("setting", "Phase, dtype, device", options, chosen, default=options[0], where=where)
    return history[names == chosen], chosen


def _highlighted(trend: pd.DataFrame, branches: Sequence[str]) -> list[str]:
    """The lines with a colour: those of the picked configs, as many as can be told apart on all branches together."""
    most = charts.MOST_LINES // len(branches)
    names = [str(name) for name in trend["config"].value_counts().index]
    asked = known_many("config", names, _NO_CONFIG)
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
    steps: Sequence[levels.Step],
    metric: str,
    highlighted: Sequence[str],
    *,
    log: bool,
    dates: bool,
) -> list[charts.Figure]:
    starts = trend.drop_duplicates("place").sort_values("place")["started_at"]
    figures = []
    for suite in sorted(set(trend["suite"])):
        rows = levels.texts(trend[trend["suite"] == suite], metric)
        chart = charts.lines(
            rows,
            levels.facts(rows, shown.titles),
            charts.labels_of(starts),
            highlighted,
            title=f"{suite}: {levels.with_unit(metric)}",
            levels=levels.triangles(steps, suite, highlighted),
            branches=shown.branches,
            dates=dates,
            log=log,
        )
        words = levels.in_words(rows, suite, metric, highlighted, steps, periods.PERIODS[shown.by])
        figures.append(charts.Figure(f"trend_{suite}", chart, words))
    return figures


def _newest(trend: pd.DataFrame, metric: str, highlighted: Sequence[str]) -> str:
    """What the charts show of several branches, as a table: each line's first and newest value."""
    shown = trend[trend["line"].isin(list(highlighted))].sort_values("place", kind="stable")
    rows = []
    for (suite, config, branch), line in shown.groupby(["suite", "config", "branch"]):
        first, last = line.iloc[0], line.iloc[-1]
        change = signed(100 * (last["value"] / first["value"] - 1)) if first["value"] > 0 else ABSENT
        values = [levels.value(metric, side["value"]) for side in (first, last)]
        rows.append((f"{suite}, {config}", branch, *values, change, f"{last['models']:,}", moment(last["started_at"])))
    heads = ("suite, config", "branch", "first", "newest", "change", "models", "measured (UTC)")
    note = f"{levels.title(metric)}; averages are not paired"
    return table("Highlighted lines", heads, rows, note=note, numbers=range(2, 7))


def _levels_table(steps: Sequence[levels.Step], metric: str, shown: _Shown) -> str:
    rows = [
        (
            f"{step.suite}, {step.line}",
            levels.value(metric, step.level_before),
            levels.value(metric, step.level_after),
            signed(100 * (step.level_after / step.level_before - 1)),
            _nights(step),
            _commits(step, shown.repos),
            "another number of models" if step.other_models else "",
        )
        for step in steps
    ]
    what = "suite, config, branch" if len(shown.branches) > 1 else "suite, config"
    heads = (what, "before", "after", "change", "between", "commits", "note")
    return table("New levels", heads, rows, numbers=range(1, 4))


def _nights(step: levels.Step) -> str:
    """When the nights around a new level were, with the way to their comparison."""
    link = url.link("compare", base=str(step.before["night"]), new=str(step.after["night"]))
    return anchor(link, " and ".join(moment(side["started_at"]) for side in (step.before, step.after)))


def _commits(step: levels.Step, repos: Mapping[str, str]) -> str:
    """The commits that a new level can come from."""
    base, new = (str(side["commit"]) for side in (step.before, step.after))
    repo = repos.get(base, "")
    return code_host.commits(repo if repo == repos.get(new, "") else "", base, new)


page(current())
