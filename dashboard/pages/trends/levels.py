"""Suites over nights: averages of a night's runs put together, where they went to a new level, and the charts of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.stats.levels import new_levels
from collector.metrics import METRICS, MIN_EFFECT
from dashboard.components import palette
from dashboard.components.drawing import alt, layered
from dashboard.components.formats import TITLES, count, moment, number
from dashboard.pages.model.charts import places_axis
from dashboard.pages.trends.periods import averaged

#: In percent of the cells that were asked: those planned, missing ones too, less those that do not apply.
RATE = "pass_rate"
#: What a suite has an average of, the most telling first.
FIGURES = ("device_speedup", "speedup", "compiled_kernel_ms", "compiled_ms", "compile_cold_s", "compression", RATE)
#: Lines with a colour of their own: more are told apart by nobody. Each of several branches has a dash and a shape, too.
MOST = 6
#: Branches in one chart, with how lines and points of each are drawn (dashes in pixels); the style sheet knows their names.
DASHES = {"solid": [1, 0], "dashed": [7, 4], "dotted": [2, 3]}
_SHAPES = ("circle", "square", "triangle-up")
BRANCHES = len(DASHES)
_MEANS = ("compile_cold_s", RATE)
#: Nights that are shown where the address names no time: what is older is a choice of days away.
NIGHTS = 120
#: Up to so many places each has a mark of its own.
WITH_POINTS = 45
#: The smallest relative change of an average that matters, where its metric has none of its own.
_MIN_EFFECT = 0.01
#: Averages below this count as this.
_LEAST = 1e-6
#: Pixels: the height of a chart, and how wide its plot is at most.
_HEIGHT, _PLOT = 250, 640


@dataclass(frozen=True, slots=True)
class Step:
    """A new level of a suite's average: the nights around it, and whether the models behind it are others.

    `line` is the config's name, with the branch where there are several.
    """

    suite: str
    line: str
    before: pd.Series
    after: pd.Series
    level_before: float
    level_after: float

    @property
    def other_models(self) -> bool:
        """Whether the average is over another number of models than the night before."""
        return bool(self.before["models"] != self.after["models"])


def with_pass_rate(history: pd.DataFrame) -> pd.DataFrame:
    """The rows of `db.queries.history.suite_history` with the pass rate as one more figure, in percent, of
    `n_pass_rate` cells."""
    asked = history["planned"] - history["not_applicable"]
    return history.assign(pass_rate=100 * history["pass_rate"], n_pass_rate=asked)


def title(metric: str) -> str:
    """What a figure is called."""
    return "pass rate" if metric == RATE else TITLES[metric]


def value(metric: str, found: float) -> str:
    """A figure with its unit."""
    return f"{found:.0f} %" if metric == RATE else number(metric, found)


def with_unit(metric: str) -> str:
    """What a figure is called, with its unit."""
    unit = "%" if metric == RATE else METRICS[metric].unit
    return f"{title(metric)} [{unit}]" if unit else title(metric)


def joined(histories: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The histories of some branches in one, with `branch`, and `line`: what one line of a chart is of.

    That is a config, or where there are several branches a config on a branch: each is a series of its own.
    """
    if len(histories) == 1:
        ((branch, history),) = histories.items()
        return history.assign(branch=branch, line=history["config"])
    parts = [
        history.assign(branch=branch, line=history["config"] + f", {branch}") for branch, history in histories.items()
    ]
    return pd.concat(parts, ignore_index=True)


def by_night(history: pd.DataFrame, metric: str, night_of: Mapping[str, str]) -> pd.DataFrame:
    """A row a night, suite and line: value and models, with `place`, the night's number in time, and `segment`.

    `history` is what `joined` gives, a row a run; the runs of a night on several GPUs have a part of the
    models each, so that their averages are put together by the number of models behind them.
    """
    rows = history[history[f"n_{metric}"] > 0].assign(night=history["run_id"].map(night_of))
    weight = rows[f"n_{metric}"].astype(float)
    each = rows[metric] if metric in _MEANS else np.log(rows[metric])
    rows = rows.assign(weighted=each * weight, models=rows[f"n_{metric}"])
    keys = ["night", "suite", "line"]
    found = rows.groupby(keys, sort=False).agg(
        weighted=("weighted", "sum"),
        models=("models", "sum"),
        started_at=("started_at", "max"),
        commit=("commit", "first"),
        config=("config", "first"),
        branch=("branch", "first"),
    )
    mean = found["weighted"] / found["models"]
    found = found.assign(value=mean if metric in _MEANS else np.exp(mean)).drop(columns="weighted").reset_index()
    return _placed(found, "night")


def by_stretch(trend: pd.DataFrame, metric: str, stretch: str) -> pd.DataFrame:
    """The rows of `by_night`, put together by `day`, `week` or `month`: a row a stretch, suite and line; "" leaves them."""
    if not stretch or trend.empty:
        return trend
    return _placed(averaged(trend, stretch, is_mean=metric in _MEANS), "stretch")


def _placed(found: pd.DataFrame, what: str) -> pd.DataFrame:
    """With `place`, the number in time of what the column `what` names, and `segment`, a number for each unbroken line."""
    order = found.groupby(what)["started_at"].max().sort_values()
    places = {name: place for place, name in enumerate(order.index)}
    found = found.assign(place=found[what].map(places)).sort_values(["place", "suite", "line"], ignore_index=True)
    # Averages over other models are no movement: a line connects nights that have equally many.
    is_other = found.groupby(["suite", "line"], sort=False)["models"].shift() != found["models"]
    return found.assign(segment=is_other.groupby([found["suite"], found["line"]], sort=False).cumsum())


def steps(trend: pd.DataFrame, metric: str) -> list[Step]:
    """Where a suite's average on a line of its own went to a new level, the newest first.

    The rule is that of alerts (`analysis.stats.levels.new_levels`), over all lines that are given, without pending ones.
    """
    lines = list(trend.groupby(["suite", "line"], sort=False))
    # 0 % has no logarithm.
    series = [np.maximum(rows["value"].to_numpy(dtype=float), _LEAST)[None, :] for _, rows in lines]
    found = []
    for level in new_levels(series, MIN_EFFECT.get(metric, _MIN_EFFECT)):
        if not level.is_pending:
            (suite, line), rows = lines[level.table]
            nights = rows.iloc[level.change.at - 1], rows.iloc[level.change.at]
            found.append(Step(str(suite), str(line), *nights, level.change.before, level.change.after))
    return sorted(found, key=lambda step: (-int(step.after["place"]), step.suite, step.line))


def newest(history: pd.DataFrame, night_of: Mapping[str, str], count: int = NIGHTS) -> date:
    """The day on which the first of the newest `count` nights of a history started."""
    nights = history.assign(night=history["run_id"].map(night_of)).groupby("night")["started_at"].max().sort_values()
    found: date = nights.iloc[-count:].iloc[0].date()
    return found


def chart(
    trend: pd.DataFrame,
    suite: str,
    metric: str,
    highlighted: Sequence[str],
    found: Sequence[Step],
    *,
    branches: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
    log: bool,
    dates: bool,
) -> alt.LayerChart:
    """One suite: a line a config and branch, those not highlighted in grey, a triangle where a new level begins.

    A line breaks where its average is over other models. It is one path with gaps, whose round caps make a dot of a night that
    stands alone: a mark a night and config would be 7,200 for 600 nights, and take a second and a half to draw. What a night
    was hangs on one invisible rule a night.
    """
    rows = trend[trend["suite"] == suite]
    x = _x(trend, dates)
    y = alt.Y(
        "value:Q",
        title=None,
        scale=alt.Scale(zero=False, type="log" if log else "linear"),
        axis=alt.Axis(tickCount=5, grid=not log),
    )
    color = alt.Color(
        "line:N",
        scale=alt.Scale(domain=list(highlighted), range=list(palette.series())[: len(highlighted)]),
        legend=None,
    )
    is_told = rows["line"].isin(list(highlighted))
    of_branch = _of_branch(branches)
    point = alt.OverlayMarkDef(size=36, filled=True) if trend["place"].nunique() <= WITH_POINTS else False
    shape = {name: how for name, how in of_branch.items() if name == "strokeDash" or point}
    told = alt.Chart(_with_breaks(rows[is_told], ["branch"] if of_branch else [])).encode(
        x=x, y=y, detail=alt.Detail("line:N"), color=color, **shape
    )
    layers = [told.mark_line(point=point, strokeWidth=2.2, strokeCap="round")]
    # An empty layer would be a picture without a name to a screen reader.
    if not is_told.all():
        others = alt.Chart(_with_breaks(rows[~is_told])).encode(x=x, y=y, detail=alt.Detail("line:N"))
        layers.insert(0, others.mark_line(strokeWidth=1.8, strokeCap="round", opacity=0.5, color=palette.NEUTRAL))
    marked = [step for step in found if step.suite == suite and step.line in highlighted]
    if marked:
        layers.append(_triangles(marked).encode(x=x, y=y, color=color))
    if is_told.any():
        layers.append(_hover(rows[is_told], with_unit(metric), titles or {}).encode(x=x))
    return layered(*layers, height=_HEIGHT, title=f"{suite}: {title(metric)}")


def _of_branch(branches: Sequence[str]) -> dict[str, Any]:
    """The channels that tell branches apart without a colour; none where there is one."""
    if len(branches) < 2:
        return {}
    dashes = alt.Scale(domain=list(branches), range=[list(dash) for dash in DASHES.values()][: len(branches)])
    shapes = alt.Scale(domain=list(branches), range=list(_SHAPES[: len(branches)]))
    return {
        "strokeDash": alt.StrokeDash("branch:N", scale=dashes, legend=None),
        "shape": alt.Shape("branch:N", scale=shapes, legend=None),
    }


def _with_breaks(rows: pd.DataFrame, more: Sequence[str] = ()) -> pd.DataFrame:
    """What a line is drawn from, with a row without value wherever one ends: numbers and a name, as little as there can be."""
    shown = rows[["line", *more, "place", "value"]].assign(date=rows["started_at"], segment=rows["segment"])
    shown = shown.sort_values(["line", "place"], kind="stable")
    ends = shown["segment"].ne(shown.groupby("line", sort=False)["segment"].shift()) & shown.duplicated("line")
    breaks = shown[ends].assign(value=np.nan)
    # Before the row that begins anew, whose place they have.
    found = pd.concat([breaks, shown]).sort_values(["line", "place"], kind="stable", ignore_index=True)
    return found.drop(columns="segment")


def _hover(rows: pd.DataFrame, title: str, titles: Mapping[str, str]) -> alt.Chart:
    """A rule a place that nobody sees, with what there is to read of it."""
    first = rows.drop_duplicates("place").sort_values("place")
    lines = list(dict.fromkeys(rows["line"]))
    # Names of configs have characters that mean something in the name of a field.
    values = rows.assign(line=rows["line"].map({name: f"c{number}" for number, name in enumerate(lines)}))
    values = values.pivot_table(index="place", columns="line", values="value").reindex(first["place"])
    models = rows.groupby("place")["models"].agg(["min", "max"]).reindex(first["place"]).astype(int)
    data = values.reset_index().assign(
        date=first["started_at"].to_numpy(),
        when=[moment(when) for when in first["started_at"]],
        **_of_place(rows, first, titles),
        models=[str(low) if low == high else f"{low} to {high}" for low, high in models.itertuples(index=False)],
    )
    tooltip = [
        alt.Tooltip("when:N", title="started (UTC)"),
        *(alt.Tooltip(f"c{number}:Q", title=name, format=".4~g") for number, name in enumerate(lines)),
        *(alt.Tooltip(f"{name}:N") for name in ("models", "commit", "night")),
    ]
    width = max(2.0, _PLOT / max(1, len(data)))
    return alt.Chart(data).mark_rule(strokeWidth=width, opacity=0, description=title).encode(tooltip=tooltip)


def _of_place(rows: pd.DataFrame, first: pd.DataFrame, titles: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """The commit and the night of each place; where several branches share one (a week), those of each."""
    if rows["branch"].nunique() < 2:
        shas = [f"{sha[:10]} {titles.get(sha, '')}".rstrip() for sha in first["commit"].astype(str)]
        return {"commit": np.array(shas, dtype=object), "night": first["night"].to_numpy()}
    once = rows.drop_duplicates(["place", "branch"]).sort_values("place", kind="stable")
    told = once.assign(
        commit=[f"{sha[:10]} ({branch})" for sha, branch in zip(once["commit"], once["branch"], strict=True)]
    )
    found = told.groupby("place")[["commit", "night"]].agg(", ".join).reindex(first["place"])
    return {name: found[name].to_numpy() for name in ("commit", "night")}


def _triangles(marked: Sequence[Step]) -> alt.Chart:
    rows = [
        {
            "place": step.after["place"],
            "value": step.after["value"],
            "line": step.line,
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


def said(
    trend: pd.DataFrame,
    suite: str,
    metric: str,
    highlighted: Sequence[str],
    found: Sequence[Step],
    stretch: str = "night",
) -> str:
    """The chart in words: where each highlighted line began and is now, and how many new levels there were."""
    parts = []
    rows = trend[trend["suite"] == suite]
    ends = {name: (values.iloc[0], values.iloc[-1]) for name, values in rows.groupby("line", sort=False)["value"]}
    for line in highlighted:
        if line in ends:
            parts.append(f"{line} from {value(metric, ends[line][0])} to {value(metric, ends[line][1])}")
    levels = sum(step.suite == suite and step.line in highlighted for step in found)
    nights = count(rows["place"].nunique(), stretch)
    return f"{title(metric)} of {suite} over {nights}: {'; '.join(parts)}; {count(levels, 'new level')}"
