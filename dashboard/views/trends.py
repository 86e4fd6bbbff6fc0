"""How the suites went from night to night on the branch of the new side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pandas as pd
import streamlit as st

from dashboard import palette, periods, pictures, states, trends, url
from dashboard.formats import count, moment, signed
from dashboard.markup import anchor, block, cell, legend, markdown, row, table, text
from dashboard.selection import Selection, current
from db.errors import nearest, one_line

_RULE = (
    "Averages over what passed in a night, not paired: lines connect nights with equally many models. Triangles mark new "
    "levels (ten nights are needed to see one). Compare judges cell by cell."
)
_STRETCH_RULE = "A point is the mean of its nights, of those with as many models as the newest of them."


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Trends", anchor=False)
    branch = selection.new.branches[0]
    history = _one_setting(trends.with_pass_rate(selection.data.suite_history(branch, selection.filters)))
    if history.empty:
        states.show("Nothing to show", f"No run of {branch} has figures under these filters. Widen them at the left.")
        return
    first, last, by, said = periods.read()
    _say(*said)
    night_of = {run.run_id: night.night for night in selection.data.nights() for run in night.runs}
    days = periods.days_of(history)
    # Years of nights as points are neither read nor drawn in time; of weeks and months there are few.
    usual = days if by in ("week", "month") else (trends.newest(history, night_of), days[1])
    metric, log, dates = _choices(history, first, last, by, usual)
    shown = periods.within(history, first or usual[0], last or usual[1])
    trend = trends.by_stretch(trends.by_night(shown, metric, night_of), metric, by)
    if trend.empty:
        when = "in this time " if first or last else ""
        states.show(
            "Nothing to show", f"{trends.title(metric)} was not measured on {branch} {when}under these filters."
        )
        return
    gallery = _draw(trend, metric, by, log=log, dates=dates)
    older = f" Older ones, from {days[0]} on, by another time." if not first and usual[0] > days[0] else ""
    shown_ones = count(trend["place"].nunique(), periods.STRETCHES[by])
    st.caption(f"{markdown(branch)}, {shown_ones}.{older} {_RULE} {_STRETCH_RULE if by else ''}")
    gallery.offer()


def _draw(trend: pd.DataFrame, metric: str, by: str, *, log: bool, dates: bool) -> pictures.Gallery:
    highlighted = _highlighted(trend)
    found = trends.steps(trend)
    st.html(block(legend(palette.series(), highlighted)))
    suites = list(dict.fromkeys(sorted(trend["suite"])))
    columns = st.columns(2 if len(suites) > 1 else 1)
    gallery = pictures.Gallery()
    for place, suite in enumerate(suites):
        drawn = trends.chart(trend, suite, metric, highlighted, found, log=log, dates=dates)
        alt_text = trends.said(trend, suite, metric, highlighted, found, periods.STRETCHES[by])
        gallery.show(columns[place % len(columns)], drawn, key=f"trend_{suite}", alt=alt_text)
    if found:
        st.html(block(_steps(found, metric)))
    return gallery


def _one_setting(history: pd.DataFrame) -> pd.DataFrame:
    """Averages of one phase, dtype and device: the one with most cells under the filters, or the chosen one."""
    if history.empty:
        return history
    keys = ["phase", "dtype", "device"]
    tally = history.groupby(keys)["planned"].sum().sort_values(ascending=False)
    options = {", ".join(map(str, setting)): setting for setting in tally.index}
    chosen = _known("setting", list(options), next(iter(options)))
    st.selectbox(
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


def _choices(
    history: pd.DataFrame, first: date | None, last: date | None, by: str, usual: tuple[date, date]
) -> tuple[str, bool, bool]:
    measured = [name for name in trends.FIGURES if (history[f"n_{name}"] > 0).any()] or list(trends.FIGURES[:1])
    metric = _known("metric", measured, measured[0])
    columns = st.columns([3, 3, 2, 1.5, 1.5], vertical_alignment="bottom")
    columns[0].selectbox(
        "Figure",
        measured,
        format_func=trends.title,
        key=url.bind("metric", metric),
        on_change=url.changed,
        args=("metric", measured[0]),
    )
    periods.pick(columns[1], first, last, usual)
    columns[2].selectbox(
        "A point is a",
        list(periods.STRETCHES),
        format_func=lambda key: periods.STRETCHES[key],
        key=url.bind("by", by),
        on_change=url.changed,
        args=("by",),
    )
    switches = {}
    for column, key, label in ((columns[3], "log", "log scale"), (columns[4], "dates", "by date")):
        switches[key] = column.toggle(label, key=url.bind(key, url.get(key) == "1"), on_change=_toggled, args=(key,))
    return metric, switches["log"], switches["dates"]


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


def _highlighted(trend: pd.DataFrame) -> list[str]:
    names = list(trend["config"].value_counts().index)
    asked = url.get_all("config")
    for name in asked:
        if name not in names:
            _say(f"The address asks for the config {one_line(name)!r}, which has no line here{nearest(name, names)}.")
    wanted = [name for name in asked if name in names][: trends.MOST] or names[: trends.MOST]
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
                cell(text(trends.value(metric, step.level_before)), "n"),
                cell(text(trends.value(metric, step.level_after)), "n"),
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
