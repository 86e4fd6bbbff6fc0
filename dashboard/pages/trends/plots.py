"""The charts of trends as `dashboard.components.plots` draws them: quick to show, with what a night was as the title
of its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np
import pandas as pd

from dashboard.components import palette, plots
from dashboard.components.formats import count, moment
from dashboard.pages.trends import levels as trends

#: How the points of each branch look, where points are drawn.
_SHAPES = ("round", "square", "ring")
_DASHES = tuple("" if dash == [1, 0] else " ".join(map(str, dash)) for dash in trends.DASHES.values())
#: Labels at most below a chart: more do not fit beside each other.
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Times:
    """Where the places of a chart are: fractions of its width, what is written below some, and how wide the column of each is."""

    places: plots.Floats
    ticks: list[tuple[float, str]]
    widths: plots.Floats


def times(trend: pd.DataFrame, *, dates: bool) -> Times:
    """The places of `trend`, evenly spaced or by date. All suites share them."""
    starts = trend.drop_duplicates("place").sort_values("place")["started_at"]
    amount = len(starts)
    at = (np.arange(amount) + 0.5) / amount
    edges = np.linspace(0.0, 1.0, amount + 1)
    if dates and amount > 1:
        moments = pd.to_datetime(starts, utc=True).to_numpy(dtype="datetime64[s]").astype(np.int64).astype(float)
        at = 0.01 + 0.98 * (moments - moments[0]) / max(1.0, moments[-1] - moments[0])
        edges = np.concatenate([[0.0], (at[1:] + at[:-1]) / 2, [1.0]])
    shown = spread(amount)
    labels = [f"{when:%m-%d %H:%M}" for when in starts.iloc[shown]]
    return Times(at, list(zip(at[shown].tolist(), labels, strict=True)), np.diff(edges))


def spread(amount: int) -> list[int]:
    """The places that get a label, so many as fit beside each other, none at an end where there are more."""
    few = min(amount, _TICKS)
    return sorted({int((number + 0.5) * amount / few) for number in range(few)})


def chart(
    trend: pd.DataFrame,
    suite: str,
    metric: str,
    highlighted: Sequence[str],
    found: Sequence[trends.Step],
    at: Times,
    *,
    branches: Sequence[str],
    titles: Mapping[str, str],
    said: str,
    log: bool,
) -> str:
    """One suite as HTML: a line a config and branch, those not highlighted in grey, a triangle where a new level begins.

    `titles` are those of commits by their sha.
    """
    rows = trend[trend["suite"] == suite]
    colors = dict(zip(highlighted, palette.series(), strict=False))
    dots = 6.0 if len(at.places) <= trends.WITH_POINTS else 0.0
    several = len(branches) > 1
    grey, told = [], []
    for (name, branch), group in rows.groupby(["line", "branch"], sort=False):
        places, segments = group["place"].to_numpy(), group["segment"].to_numpy()
        breaks = np.concatenate([[True], segments[1:] != segments[:-1]])
        values = group["value"].to_numpy(dtype=float)
        if name not in colors:
            grey.append(plots.Line(palette.NEUTRAL, at.places[places], values, breaks, width=1.8, opacity=0.5))
            continue
        place = branches.index(branch) if several else 0
        look = partial(plots.Line, dash=_DASHES[place], dots=dots, shape=_SHAPES[place])
        told.append(look(colors[name], at.places[places], values, breaks))
    marks = [
        plots.Mark(
            float(at.places[step.after["place"]]), float(step.after["value"]), "\N{BLACK DOWN-POINTING TRIANGLE}",
            colors[step.line],
        )
        for step in found
        if step.suite == suite and step.line in colors
    ]  # fmt: skip
    order = {name: place for place, name in enumerate(highlighted)}
    told_rows = rows[rows["line"].isin(list(colors))]
    words = _words(told_rows.iloc[told_rows["line"].map(order).argsort(kind="stable")], metric, len(at.places), titles)
    columns = list(zip(at.widths.tolist(), words, strict=True))
    title = f"{suite}: {trends.with_unit(metric)}"
    return plots.html(
        plots.Plot(title, said, [*grey, *told], at.ticks, columns, marks=marks, log=log, ground=palette.ground())
    )


def _words(rows: pd.DataFrame, metric: str, amount: int, titles: Mapping[str, str]) -> list[str]:
    """What each place was, a line each: when, the value of every line, of how many models, and of which commits."""
    values: list[list[str]] = [[] for _ in range(amount)]
    models: list[set[int]] = [set() for _ in range(amount)]
    started: list[datetime | None] = [None] * amount
    commits: list[dict[str, None]] = [{} for _ in range(amount)]
    columns = ("place", "line", "value", "models", "started_at", "commit", "night")
    for place, line, value, of, when, sha, night in zip(*(rows[name].tolist() for name in columns), strict=True):
        values[place].append(f"{line}: {trends.value(metric, value)}")
        models[place].add(int(of))
        started[place] = started[place] or when
        commits[place][f"{sha[:10]} {titles.get(sha, '')}".rstrip() + f"\nnight {night}"] = None
    return [
        "\n".join([f"{moment(when)} UTC", *values[place], _models(models[place]), *commits[place]]) if when else ""
        for place, when in enumerate(started)
    ]


def _models(found: set[int]) -> str:
    low, high = min(found), max(found)
    return count(low, "model") if low == high else f"{low} to {high} models"
