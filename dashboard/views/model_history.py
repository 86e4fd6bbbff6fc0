"""The model page's history: every metric over the runs of one testbed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st
from markupsafe import Markup

from collector.metrics import METRICS
from dashboard import url
from dashboard.components import charts
from dashboard.components.markup import anchor, draw, joined, paragraph
from dashboard.components.widgets import switch, ways
from dashboard.components.wording import axis_of, count, moment, number
from dashboard.data import Data
from dashboard.selection import Selection
from dashboard.views.model_choice import Choice

_METRICS = (
    *("compiled_kernel_ms", "compiled_ms", "eager_ms"),
    *("device_speedup", "speedup", "compile_cold_s", "compiled_peak_bytes"),
)
#: Runs that are drawn unless all are asked for, and charts that are drawn before the fold.
_NEWEST, _FIRST = 120, 2


@dataclass(frozen=True, slots=True)
class Runs:
    """The history in time, as charts take it: its rows, the labels of the places, and where base and new are."""

    rows: pd.DataFrame
    labels: Sequence[str]
    configs: Sequence[str]
    sides: Mapping[str, int]

    def metric(self, metric: str) -> charts.Figure:
        """The chart of a metric."""
        title = METRICS[metric].title
        size, head = axis_of(metric, title)
        rows = self.rows.dropna(subset=[metric])
        texts = [number(metric, value) for value in rows[metric]]
        rows = rows.assign(value=rows[metric] / size, text=texts)
        facts = rows.drop_duplicates("place").set_index("place")[["started", "commit", "run"]]
        chart = charts.lines(rows, facts, self.labels, self.configs, title=head, pick="run", sides=self.sides)
        words = f"{title} over {count(rows['place'].nunique(), 'run')}: {charts.from_to(rows, self.configs)}"
        return charts.Figure(f"history_{metric}", chart, words, picks=True)

    def worst(self, metric: str, link: Callable[..., str]) -> Markup:
        """A sentence with the worst value of a metric, which leads to its run."""
        rows = self.rows.dropna(subset=[metric])
        row = rows.sort_values(metric, ascending=METRICS[metric].better == "higher", kind="stable").iloc[0]
        words = f"{number(metric, row[metric])}, {row['config']}, {row['started']} UTC"
        return joined(" ", [f"Worst {METRICS[metric].title}:", anchor(link(base="", new=row["run"]), words)])

    def statuses(self) -> charts.Figure:
        """The chart of how each run ended."""
        columns = ["place", "config", "status", "started", "commit", "run"]
        tally = self.rows["status"].fillna("missing").value_counts()
        words = "How each run ended: " + ", ".join(f"{number_of} {status}" for status, number_of in tally.items())
        chart = charts.statuses(self.rows[columns], self.labels, self.configs, self.sides)
        return charts.Figure("history_status", chart, words)


def show(selection: Selection, choice: Choice, decided: str = "") -> None:
    """Draws the section; `decided` names the metric that the verdict hangs on, which comes first."""
    st.header("History", anchor=False)
    chosen = choice.history[choice.history["config"].isin(choice.configs)]
    # Of a night on several GPUs only the one on which this model was.
    mine = chosen[chosen["run_id"].isin(selection.new.run_ids)]
    testbeds = set(mine["testbed_id"].unique()) or {run.testbed_id for run in selection.new.runs}
    here = chosen[chosen["testbed_id"].isin(testbeds)].drop_duplicates(["run_id", "config"], keep="last")
    runs = here["run_id"].nunique()
    elsewhere = chosen["run_id"].nunique() - runs
    left_out = f" {count(elsewhere, 'run')} on other testbeds left out." if elsewhere else ""
    if runs < 2:
        st.caption(f"{count(runs, 'run')} of this on new's testbed: a history needs two.{left_out}")
        return
    if runs > _NEWEST and not switch("runs", f"Show all {runs:,} runs", "all"):
        here = newest(here)
    sides = {"base": selection.base, "new": selection.new}
    marks = {name: side.run_ids for name, side in sides.items() if side}
    of = runs_of(selection.data, here, choice.configs, marks)
    shown = f"The newest {len(of.labels)} of {count(runs, 'run')}" if len(of.labels) < runs else count(runs, "run")
    hidden = [name for name in ("base", "new") if name not in of.sides and getattr(selection, name) is not None]
    unmarked = f" Not among them: {' and '.join(hidden)}." if hidden and len(of.labels) < runs else ""
    band = "The band is how far neighbours usually scatter (95 %)."
    st.caption(f"{shown} on new's testbed, in the order of their commits.{unmarked}{left_out} {band}")
    drawn = [name for name in dict.fromkeys((decided, *_METRICS)) if name in here and here[name].notna().any()]
    leading = st.container()
    charts.show([of.statuses()])
    picked = charts.show([of.metric(name) for name in drawn[:_FIRST]])
    if rest := drawn[_FIRST:]:
        titles = ", ".join(METRICS[name].title for name in rest)
        fold = st.expander(f"History of {titles}", key="history", on_change="rerun")
        if fold.open:
            with fold:
                picked += charts.show([of.metric(name) for name in rest])
    link = partial(url.link, "model", **choice.query)
    ways(leading, picked, dict(zip(of.rows["run"].unique(), of.labels, strict=True)), link, "run")
    if drawn:
        with leading:
            draw(paragraph("iw-ways", of.worst(drawn[0], link)))


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the newest runs."""
    in_time = rows.drop_duplicates("run_id").sort_values(["started_at", "run_id"])
    return rows[rows["run_id"].isin(in_time["run_id"].iloc[-_NEWEST:])]


def runs_of(data: Data, rows: pd.DataFrame, configs: Sequence[str], marks: Mapping[str, Collection[str]]) -> Runs:
    """The runs of `rows` in the order of their commits; `marks` are names of runs that have a rule, by its label."""
    ran = set(rows["run_id"])
    labels = {run_id: label for run_id, label in data.places().items() if run_id in ran}
    places = {run_id: place for place, run_id in enumerate(labels)}
    history = rows.assign(
        place=rows["run_id"].map(places),
        date=rows["started_at"],
        started=[moment(when) for when in rows["started_at"]],
        commit=rows["commit"].astype(str).str[:10],
        run=rows["run_id"],
        line=rows["config"],
    ).sort_values("place", kind="stable")
    marked: dict[str, int] = {}
    for name, runs in marks.items():
        of_side = [places[run] for run in runs if run in places]
        marked |= {name: of_side[0]} if of_side else {}
    return Runs(history, list(labels.values()), configs, marked)
