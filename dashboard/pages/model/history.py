"""The model page's history: every metric over the runs of one testbed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import url
from dashboard.components import palette
from dashboard.components.formats import TITLES, count, number
from dashboard.components.markup import legend
from dashboard.components.pictures import Gallery, interactive
from dashboard.pages.model import charts
from dashboard.pages.model import plots as model_plots
from dashboard.pages.model.choice import Choice
from dashboard.selection import Selection

_METRICS = (
    *("compiled_kernel_ms", "compiled_ms", "eager_ms"),
    *("device_speedup", "speedup", "compile_cold_s", "compiled_peak_bytes"),
)
#: Runs that are drawn unless all are asked for, and charts that are drawn before more are.
_NEWEST, _AT_ONCE = 120, 2


def show(selection: Selection, choice: Choice, gallery: Gallery, decided: str = "") -> None:
    """Draws the section; `decided` names the metric that the verdict hangs on, which is drawn first."""
    st.header("History", anchor=False)
    chosen = choice.history[choice.history["config"].isin(choice.configs)]
    # Of a night on several GPUs: the one on which this model was.
    mine = chosen[chosen["run_id"].isin(selection.new.run_ids)]
    testbeds = set(mine["testbed_id"].unique()) or {run.testbed_id for run in selection.new.runs}
    here = chosen[chosen["testbed_id"].isin(testbeds)]
    here = here.drop_duplicates(["run_id", "config"], keep="last")
    runs = here["run_id"].nunique()
    elsewhere = chosen["run_id"].nunique() - runs
    left_out = f" {count(elsewhere, 'run')} on other testbeds left out." if elsewhere else ""
    if runs < 2:
        st.caption(f"{count(runs, 'run')} of this on new's testbed: a history needs two.{left_out}")
        return
    with st.container(horizontal=True):
        if runs > _NEWEST and not _everything(runs):
            here = _newest(here)
        gallery.interactive = interactive(st)
    history, labels = charts.run_axis(here)
    marked = _places(selection, history)
    shown = f"The newest {len(labels)} of {count(runs, 'run')}" if len(labels) < runs else count(runs, "run")
    hidden = [name for name in ("base", "new") if name not in marked and getattr(selection, name) is not None]
    unmarked = f" Not among them: {' and '.join(hidden)}." if hidden and len(labels) < runs else ""
    st.caption(f"{shown} on new's testbed, oldest first, evenly spaced.{unmarked}{left_out}")
    of = _Runs(history, labels, choice.configs, marked)
    said = _said_statuses(history)
    gallery.add(
        "history_status", said, of.ends, lambda: model_plots.ends(history, said, len(labels), of.configs, marked)
    )
    gallery.draw(columns=1)
    drawn = [metric for metric in dict.fromkeys((decided, *_METRICS)) if _is_measured(history, metric)]
    head = legend(palette.series(), choice.configs) if len(choice.configs) > 1 else ""
    of.draw(gallery, drawn[:_AT_ONCE], head)
    if rest := drawn[_AT_ONCE:]:
        # Those that few look at are drawn when they are asked for.
        fold = st.expander(f"History of {', '.join(TITLES[name] for name in rest)}", key="history", on_change="rerun")
        if fold.open:
            with fold:
                of.draw(gallery, rest, "")


@dataclass(frozen=True, slots=True)
class _Runs:
    """What the charts of a model's history are drawn from."""

    history: pd.DataFrame
    labels: Sequence[str]
    configs: Sequence[str]
    marked: Mapping[str, int]

    def ends(self) -> Any:
        """The chart of how each run ended, by Altair."""
        return charts.status_chart(self.history, self.labels, self.configs, self.marked)

    def draw(self, gallery: Gallery, metrics: Sequence[str], head: str) -> None:
        """Draws a chart a metric."""
        for metric in metrics:
            said = _said(self.history, metric)
            how = (self.labels, self.configs, self.marked)
            gallery.add(
                f"history_{metric}",
                said,
                partial(charts.metric_chart, self.history, metric, *how),
                partial(model_plots.metric, self.history, metric, said, *how),
            )
        gallery.draw(head)


def _is_measured(history: pd.DataFrame, metric: str) -> bool:
    return metric in history and bool(history[metric].notna().any())


def _everything(runs: int) -> bool:
    """Draws the switch between the newest runs and all of them."""
    wanted = url.get("runs") == "all"
    st.toggle(f"Show all {runs:,} runs", key=url.bind("runs", wanted), on_change=_switched)
    return wanted


def _switched() -> None:
    url.put("runs", "all" if st.session_state[url.widget("runs")] else None)


def _newest(rows: pd.DataFrame) -> pd.DataFrame:
    runs = rows.drop_duplicates("run_id").sort_values(["started_at", "run_id"])["run_id"]
    return rows[rows["run_id"].isin(runs.iloc[-_NEWEST:])]


def _places(selection: Selection, history: pd.DataFrame) -> dict[str, int]:
    once = history.drop_duplicates("run_id")
    places = dict(zip(once["run_id"], once["n"], strict=True))
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
