"""How the suites went from night to night on the branch of the new side."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard import palette, states, trends, url
from dashboard.formats import TITLES, count, moment, number, signed
from dashboard.markup import anchor, block, cell, legend, markdown, row, table, text
from dashboard.selection import Selection, current

_RULE = (
    "Averages over what passed in a night, not paired: lines connect nights with equally many models. Triangles mark new "
    "levels (ten nights are needed to see one). Compare judges cell by cell."
)


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Trends", anchor=False)
    branch = selection.new.branches[0]
    history = selection.data.suite_history(branch, selection.filters)
    history = _one_setting(history, selection)
    if history.empty:
        states.show("Nothing to show", f"No run of {branch} has figures under these filters. Widen them at the left.")
        return
    metric, log, dates = _choices(history)
    night_of = {run.run_id: night.night for night in selection.data.nights() for run in night.runs}
    trend = trends.by_night(history, metric, night_of)
    if trend.empty:
        states.show("Nothing to show", f"{TITLES[metric]} was not measured on {branch} under these filters.")
        return
    highlighted = _highlighted(trend)
    found = trends.steps(trend)
    st.html(block(legend(palette.series(), highlighted)))
    suites = list(dict.fromkeys(sorted(trend["suite"])))
    columns = st.columns(2 if len(suites) > 1 else 1)
    for place, suite in enumerate(suites):
        drawn = trends.chart(trend, suite, metric, highlighted, found, log=log, dates=dates)
        alt_text = trends.said(trend, suite, metric, highlighted, found)
        columns[place % len(columns)].altair_chart(drawn, key=f"trend_{suite}", alt=alt_text)
    st.caption(f"{markdown(branch)}, {count(trend['place'].nunique(), 'night')}. {_RULE}")
    if found:
        st.html(block(_steps(found, metric)))


def _one_setting(history: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    """Averages of one phase, dtype and device: the one with most cells under the filters, or the chosen one."""
    if history.empty:
        return history
    keys = ["phase", "dtype", "device"]
    tally = history.groupby(keys)["planned"].sum().sort_values(ascending=False)
    options = {", ".join(map(str, setting)): setting for setting in tally.index}
    wanted = url.get("setting")
    first = next(iter(options))
    chosen = wanted if wanted in options else first
    st.selectbox(
        "Phase, dtype, device",
        list(options),
        key=url.bind("setting", chosen),
        on_change=url.changed,
        args=("setting", first),
    )
    phase, dtype, device = options[chosen]
    kept: pd.DataFrame = history[
        (history["phase"] == phase) & (history["dtype"] == dtype) & (history["device"] == device)
    ]
    return kept


def _choices(history: pd.DataFrame) -> tuple[str, bool, bool]:
    measured = [name for name in trends.FIGURES if (history[f"n_{name}"] > 0).any()] or list(trends.FIGURES[:1])
    metric = url.get("metric") if url.get("metric") in measured else measured[0]
    columns = st.columns([3, 1, 1], vertical_alignment="bottom")
    columns[0].selectbox(
        "Figure",
        measured,
        format_func=lambda name: TITLES[name],
        key=url.bind("metric", metric),
        on_change=url.changed,
        args=("metric", measured[0]),
    )
    switches = {}
    for column, key, label in ((columns[1], "log", "log scale"), (columns[2], "dates", "by date")):
        switches[key] = column.toggle(label, key=url.bind(key, url.get(key) == "1"), on_change=_toggled, args=(key,))
    return metric, switches["log"], switches["dates"]


def _toggled(key: str) -> None:
    url.put(key, "1" if st.session_state[url.widget(key)] else None)


def _highlighted(trend: pd.DataFrame) -> list[str]:
    names = list(trend["config"].value_counts().index)
    wanted = [name for name in url.get_all("config") if name in names][: trends.MOST] or names[: trends.MOST]
    st.multiselect(
        "Highlighted configs",
        names,
        key=url.bind("config", wanted),
        on_change=url.changed,
        args=("config",),
        max_selections=trends.MOST,
    )
    return wanted


def _steps(found: Sequence[trends.Step], metric: str) -> str:
    rows = [
        row(
            text(f"{step.suite}, {step.config}"),
            [
                cell(text(number(metric, step.level_before)), "n"),
                cell(text(number(metric, step.level_after)), "n"),
                cell(text(signed(100 * (step.level_after / step.level_before - 1))), "n"),
                cell(_range(step)),
                cell(text("another number of models" if step.other_models else "")),
            ],
        )
        for step in found
    ]
    return table("New levels", ("suite, config", "before", "after", "change", "between", "note"), rows)


def _range(step: trends.Step) -> str:
    nights = url.link("compare", base=str(step.before["night"]), new=str(step.after["night"]))
    words = " and ".join(
        f"{moment(side['started_at'])} ({str(side['commit'])[:10]})" for side in (step.before, step.after)
    )
    return anchor(nights, text(words))


page(current())
