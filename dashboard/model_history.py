"""The model page's history: every metric over the runs of one testbed."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard import charts, palette
from dashboard.formats import TITLES, count, number
from dashboard.markup import block, legend
from dashboard.model_choice import Choice
from dashboard.selection import Selection

_METRICS = (
    *("compiled_kernel_ms", "compiled_ms", "eager_ms"),
    *("device_speedup", "speedup", "compile_cold_s", "compiled_peak_bytes"),
)


def show(selection: Selection, choice: Choice) -> None:
    """Draws the section."""
    st.header("History", anchor=False)
    chosen = choice.history[choice.history["config"].isin(choice.configs)]
    # Of a night on several GPUs: the one on which this model was.
    mine = chosen[chosen["run_id"].isin(selection.new.run_ids)]
    testbeds = set(mine["testbed_id"]) or {run.testbed_id for run in selection.new.runs}
    here = chosen[chosen["testbed_id"].isin(testbeds)]
    here = here.drop_duplicates(["run_id", "config"], keep="last")
    runs = here["run_id"].nunique()
    elsewhere = chosen["run_id"].nunique() - runs
    left_out = f" {count(elsewhere, 'run')} on other testbeds left out." if elsewhere else ""
    if runs < 2:
        st.caption(f"{count(runs, 'run')} of this on new's testbed: a history needs two.{left_out}")
        return
    history, labels = charts.run_axis(here)
    marked = _places(selection, history)
    st.caption(f"{count(runs, 'run')} on new's testbed, oldest first, evenly spaced.{left_out}")
    lane = charts.status_chart(history, labels, choice.configs, marked)
    st.altair_chart(lane, key="history_status", alt=_said_statuses(history))
    if len(choice.configs) > 1:
        st.html(block(legend(palette.series(), choice.configs)))
    columns = st.columns(2)
    drawn = [metric for metric in _METRICS if history[metric].notna().any()]
    for place, metric in enumerate(drawn):
        chart = charts.metric_chart(history, metric, labels, choice.configs, marked)
        columns[place % 2].altair_chart(chart, key=f"history_{metric}", alt=_said(history, metric))


def _places(selection: Selection, history: pd.DataFrame) -> dict[str, int]:
    places = dict(zip(history["run_id"], history["n"], strict=True))
    sides = {"base": selection.base, "new": selection.new}
    return {
        name: int(place)
        for name, side in sides.items()
        if side is not None
        and (place := next((places[run] for run in side.run_ids if run in places), None)) is not None
    }


def _said(history: pd.DataFrame, metric: str) -> str:
    """The chart in words: where each config began and where it is now."""
    parts = []
    for config, rows in history.dropna(subset=[metric]).groupby("config", sort=False):
        values = rows.sort_values("n")[metric]
        parts.append(f"{config} from {number(metric, values.iloc[0])} to {number(metric, values.iloc[-1])}")
    return f"{TITLES[metric]} over {count(history['n'].nunique(), 'run')}: {'; '.join(parts)}"


def _said_statuses(history: pd.DataFrame) -> str:
    tally = history["status"].fillna("missing").value_counts()
    return "How each run ended: " + ", ".join(f"{number_of} {status}" for status, number_of in tally.items())
