"""Suites over nights: averages of a night's runs put together, where they went to a new level, and the charts of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd

from analysis.stats.changepoints import detect
from collector.metrics import METRICS
from dashboard import palette
from dashboard.charts import places_axis
from dashboard.formats import TITLES, count, moment, number

#: What a suite has an average of, the most telling first.
FIGURES = ("device_speedup", "speedup", "compiled_kernel_ms", "compiled_ms", "compile_cold_s", "compression")
#: Lines with a colour of their own: more are told apart by nobody.
MOST = 6
_MEANS = ("compile_cold_s",)
_HEIGHT = 250


@dataclass(frozen=True, slots=True)
class Step:
    """A new level of a suite's average: the nights around it, and whether the models behind it are others."""

    suite: str
    config: str
    before: pd.Series
    after: pd.Series
    level_before: float
    level_after: float

    @property
    def other_models(self) -> bool:
        """Whether the average is over another number of models than the night before."""
        return bool(self.before["models"] != self.after["models"])


def by_night(history: pd.DataFrame, metric: str, night_of: Mapping[str, str]) -> pd.DataFrame:
    """A row a night, suite and config: value and models, with `place`, the night's number in time, and `segment`.

    `history` is what `db.history.suite_history` gives, a row a run; the runs of a night on several GPUs have a part of the
    models each, so that their averages are put together by the number of models behind them.
    """
    rows = history[history[f"n_{metric}"] > 0].assign(night=history["run_id"].map(night_of))
    weight = rows[f"n_{metric}"].astype(float)
    value = rows[metric] if metric in _MEANS else np.log(rows[metric])
    rows = rows.assign(weighted=value * weight, models=rows[f"n_{metric}"])
    keys = ["night", "suite", "config"]
    found = rows.groupby(keys, sort=False).agg(
        weighted=("weighted", "sum"),
        models=("models", "sum"),
        started_at=("started_at", "max"),
        commit=("commit", "first"),
    )
    mean = found["weighted"] / found["models"]
    found = found.assign(value=mean if metric in _MEANS else np.exp(mean)).drop(columns="weighted").reset_index()
    order = found.groupby("night")["started_at"].max().sort_values()
    places = {night: place for place, night in enumerate(order.index)}
    found = found.assign(place=found["night"].map(places)).sort_values(["place", "suite", "config"], ignore_index=True)
    # Averages over other models are no movement: a line connects nights that have equally many.
    is_other = found.groupby(["suite", "config"], sort=False)["models"].shift() != found["models"]
    return found.assign(segment=is_other.groupby([found["suite"], found["config"]], sort=False).cumsum())


def steps(trend: pd.DataFrame) -> list[Step]:
    """Where a suite's average under a config went to a new level, the newest first."""
    found = []
    for (suite, config), rows in trend.groupby(["suite", "config"], sort=False):
        values = rows["value"].to_numpy()
        cuts = detect(values)
        for start, cut, end in zip([0, *cuts], cuts, [*cuts[1:], len(values)], strict=False):
            levels = (float(np.median(values[start:cut])), float(np.median(values[cut:end])))
            found.append(Step(str(suite), str(config), rows.iloc[cut - 1], rows.iloc[cut], *levels))
    return sorted(found, key=lambda step: (-int(step.after["place"]), step.suite, step.config))


def chart(
    trend: pd.DataFrame,
    suite: str,
    metric: str,
    highlighted: Sequence[str],
    found: Sequence[Step],
    *,
    log: bool,
    dates: bool,
) -> alt.LayerChart:
    """One suite: a line a config, those not highlighted in grey, a triangle where a new level begins."""
    rows = trend[trend["suite"] == suite].assign(when=lambda frame: frame["started_at"].map(moment))
    data = rows[["place", "value", "config", "when", "commit", "models", "night", "segment"]].assign(
        date=rows["started_at"]
    )
    unit = METRICS[metric].unit
    x = _x(trend, dates)
    y = alt.Y(
        "value:Q",
        title=None,
        scale=alt.Scale(zero=False, type="log" if log else "linear"),
        axis=alt.Axis(tickCount=5, grid=not log),
    )
    color = alt.Color(
        "config:N",
        scale=alt.Scale(domain=list(highlighted), range=list(palette.series())[: len(highlighted)]),
        legend=None,
    )
    tooltip = [
        alt.Tooltip("config:N"),
        alt.Tooltip("value:Q", title=f"{TITLES[metric]}{f' [{unit}]' if unit else ''}", format=".4~g"),
        alt.Tooltip("models:Q", title="models"),
        alt.Tooltip("when:N", title="started (UTC)"),
        alt.Tooltip("commit:N"),
        alt.Tooltip("night:N"),
    ]
    base = alt.Chart(data).encode(x=x, y=y, detail=["config:N", "segment:N"], tooltip=tooltip)
    is_told = alt.FieldOneOfPredicate(field="config", oneOf=list(highlighted))
    others = base.transform_filter({"not": is_told}).mark_line(strokeWidth=1, opacity=0.5, color=palette.NEUTRAL)
    lines = base.transform_filter(is_told).mark_line(point=alt.OverlayMarkDef(size=36, filled=True), strokeWidth=1.8)
    layers = [lines.encode(color=color)]
    # An empty layer would be a picture without a name to a screen reader.
    if not set(rows["config"]) <= set(highlighted):
        layers.insert(0, others)
    marked = [step for step in found if step.suite == suite and step.config in highlighted]
    if marked:
        layers.append(_triangles(marked).encode(x=x, y=y, color=color))
    title = alt.TitleParams(text=f"{suite}: {TITLES[metric]}", anchor="start", fontSize=13, fontWeight=600)
    return alt.layer(*layers).properties(height=_HEIGHT, title=title)


def _triangles(marked: Sequence[Step]) -> alt.Chart:
    rows = [
        {
            "place": step.after["place"],
            "value": step.after["value"],
            "config": step.config,
            "date": step.after["started_at"],
        }
        for step in marked
    ]
    return alt.Chart(pd.DataFrame(rows)).mark_point(shape="triangle-down", size=130, filled=True, yOffset=-12)


def _x(trend: pd.DataFrame, dates: bool) -> alt.X:
    if dates:
        return alt.X("date:T", title=None, axis=alt.Axis(grid=False))
    starts = trend.drop_duplicates("place").sort_values("place")["started_at"]
    return places_axis("place", [f"{when:%m-%d %H:%M}" for when in starts])


def said(trend: pd.DataFrame, suite: str, metric: str, highlighted: Sequence[str], found: Sequence[Step]) -> str:
    """The chart in words: where each highlighted config began and is now, and how many new levels there were."""
    parts = []
    rows = trend[trend["suite"] == suite]
    for config in highlighted:
        values = rows[rows["config"] == config]["value"]
        if len(values):
            parts.append(f"{config} from {number(metric, values.iloc[0])} to {number(metric, values.iloc[-1])}")
    levels = sum(step.suite == suite and step.config in highlighted for step in found)
    nights = count(rows["place"].nunique(), "night")
    return f"{TITLES[metric]} of {suite} over {nights}: {'; '.join(parts)}; {count(levels, 'new level')}"
