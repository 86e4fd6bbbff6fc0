"""Charts of one model: how it went from run to run, and how the samples of one measurement lie."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collector.metrics import METRICS
from dashboard.components import palette
from dashboard.components.drawing import alt, layered
from dashboard.components.formats import TITLES, moment

#: Of more runs than this the marks are small, so that they do not hide one another.
FEW = 60
#: Labels of an axis at most; those that find no room are left out.
_TICKS = 12
#: Pixels of a whole chart, title and axis included, and of a lane in one.
_HEIGHT, _LANE, _AROUND = 205, 26, 90


def run_axis(history: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The history with a column `n`, the run's place in time, and a label for each place. Runs are evenly spaced."""
    runs = history.drop_duplicates("run_id").sort_values(["started_at", "run_id"])
    places = {run_id: place for place, run_id in enumerate(runs["run_id"])}
    return history.assign(n=history["run_id"].map(places)), [f"{when:%m-%d %H:%M}" for when in runs["started_at"]]


def metric_chart(
    history: pd.DataFrame, metric: str, labels: Sequence[str], configs: Sequence[str], marked: Mapping[str, int]
) -> alt.LayerChart:
    """One metric over runs, a line per config; `marked` names places (base, new) that get a rule."""
    unit = METRICS[metric].unit
    title = metric_title(metric)
    values = history.dropna(subset=[metric]).assign(
        value=lambda rows: rows[metric] / (1e9 if unit == "B" else 1),
        when=lambda rows: rows["started_at"].map(moment),
        commit=lambda rows: rows["commit"].astype(str).str[:10],
    )
    lines = (
        alt.Chart(values[["n", "value", "config", "when", "commit", "run_id"]])
        .mark_line(point=alt.OverlayMarkDef(size=42 if len(labels) <= FEW else 12, filled=True), strokeWidth=1.6)
        .encode(
            x=places_axis("n", labels),
            y=alt.Y(
                "value:Q", title=None, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=4, format="~g")
            ),
            color=_color(configs),
            tooltip=[
                alt.Tooltip("config:N"),
                alt.Tooltip("value:Q", title=title, format=",.4~g"),
                alt.Tooltip("when:N", title="started (UTC)"),
                alt.Tooltip("commit:N"),
                alt.Tooltip("run_id:N", title="run"),
            ],
        )
    )
    return layered(_rules(marked, labels), lines, height=_HEIGHT, title=title)


def metric_title(metric: str) -> str:
    """What the chart of a metric is called, with the unit of its axis."""
    unit = METRICS[metric].unit
    return f"{TITLES[metric]}{' [GB]' if unit == 'B' else f' [{unit}]' if unit else ''}"


def status_chart(
    history: pd.DataFrame, labels: Sequence[str], configs: Sequence[str], marked: Mapping[str, int]
) -> alt.LayerChart:
    """A lane per config and a mark per run: a dot for a pass, a cross for a failure, a ring for a missing cell."""
    kinds = ["pass", "failed", "missing", "unavailable or skipped"]
    data = history.assign(
        outcome=[kind(status) for status in history["status"]],
        status=history["status"].fillna("missing"),
        when=history["started_at"].map(moment),
    )
    marks = (
        alt.Chart(data[["n", "config", "outcome", "status", "when", "run_id"]])
        .mark_point(size=70, strokeWidth=2)
        .encode(
            x=places_axis("n", labels),
            y=alt.Y("config:N", title=None, sort=list(configs), axis=alt.Axis(labelLimit=220, grid=True)),
            shape=alt.Shape(
                "outcome:N",
                title=None,
                scale=alt.Scale(domain=kinds, range=["circle", "cross", "square", "triangle-up"]),
                legend=alt.Legend(orient="top", symbolStrokeWidth=1.5, columns=2),
            ),
            color=alt.condition("datum.outcome == 'failed'", alt.value(palette.bad()), alt.value(palette.NEUTRAL)),
            tooltip=[
                alt.Tooltip("config:N"),
                alt.Tooltip("status:N"),
                alt.Tooltip("when:N", title="started (UTC)"),
                alt.Tooltip("run_id:N", title="run"),
            ],
        )
    )
    height = _LANE * max(len(configs), 1) + _AROUND + 58  # the legend
    return layered(_rules(marked, labels), marks, height=height, title="how each run ended")


def sample_chart(samples: Mapping[str, NDArray[np.float64]], kind: str, roles: Sequence[str]) -> alt.LayerChart:
    """Every sample as a thin tick and the median as a thick one, a lane per side; in milliseconds by side."""
    rows = [
        {"side": side, "ms": float(value), "median": float(np.median(values))}
        for side, values in samples.items()
        for value in values
    ]
    names = list(samples)
    colors = alt.Color(
        "side:N", legend=None, scale=alt.Scale(domain=names, range=[palette.sides()[role] for role in roles])
    )
    lane = alt.Y("side:N", title=None, sort=names, axis=alt.Axis(labelLimit=230))
    base = alt.Chart(pd.DataFrame(rows)).encode(y=lane, color=colors)
    ticks = base.mark_tick(thickness=1.5, size=18, opacity=0.6).encode(
        x=alt.X("ms:Q", title="ms per call", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)),
        tooltip=[alt.Tooltip("side:N"), alt.Tooltip("ms:Q", format=".4f")],
    )
    medians = base.mark_tick(thickness=4, size=30).encode(
        x=alt.X("median:Q"), tooltip=[alt.Tooltip("side:N"), alt.Tooltip("median:Q", format=".4f", title="median ms")]
    )
    height = 42 * len(names) + _AROUND + 14
    return layered(ticks, medians, height=height, title=f"{kind} latency")


def kind(status: object) -> str:
    """How a run ended, as far as a mark tells it."""
    if not isinstance(status, str):
        return "missing"
    return (
        status if status == "pass" else "unavailable or skipped" if status in ("unavailable", "skipped") else "failed"
    )


def places_axis(field: str, labels: Sequence[str]) -> alt.X:
    """An axis of evenly spaced places, 0 for the first label."""
    # Few enough to be read, and each is copied with every layer that has the axis.
    places = list(range(0, len(labels), max(1, math.ceil(len(labels) / _TICKS))))
    axis = alt.Axis(
        values=places,
        labelExpr=f"{json.dumps({place: labels[place] for place in places})}[datum.value]",
        labelOverlap="parity",
        title=None,
        grid=False,
    )
    return alt.X(f"{field}:Q", axis=axis, scale=alt.Scale(domain=[-0.5, len(labels) * 1.05 - 0.4], nice=False))


def _color(configs: Sequence[str]) -> alt.Color:
    colors = list(palette.series())[: len(configs)]
    return alt.Color("config:N", scale=alt.Scale(domain=list(configs), range=colors), legend=None)


def _rules(marked: Mapping[str, int], labels: Sequence[str]) -> alt.LayerChart:
    data = pd.DataFrame([{"n": place, "side": side} for side, place in marked.items()], columns=["n", "side"])
    base = alt.Chart(data).encode(x=places_axis("n", labels))
    rule = base.mark_rule(strokeDash=[4, 3], strokeWidth=1, color=palette.NEUTRAL)
    words = base.mark_text(align="left", baseline="top", dx=4, color=palette.NEUTRAL, fontSize=11).encode(
        text=alt.Text("side:N"), y=alt.value(0)
    )
    return alt.layer(rule, words)
