"""Every chart of the pages, by Altair.

A chart goes to a page as a `Figure`, with the words that a screen reader reads. In line charts the pointer shows the facts on a
place, a click picks the place, and dragging and Ctrl with the wheel move and zoom.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from altair.utils import schemapi
from numpy.typing import NDArray

from analysis.elements.wording import ABSENT
from analysis.stats.averages import scatter
from collector.vocabulary import NOT_APPLICABLE, Status

#: The name of the selection that clicks make in a chart.
PICK = "pick"
#: Most lines with a colour of their own in one chart: nobody can distinguish more.
MOST_LINES = 6
#: Dashes (pixels) and shapes of the branches in one chart.
DASHES, _SHAPES = ([1, 0], [7, 4], [2, 3]), ("circle", "square", "triangle-up")
#: The mark of each way in which a run can end.
_SHAPE_OF = {"pass": "circle", "failed": "cross", "missing": "square", "not applicable": "triangle-up"}
#: Most places that each have a mark of their own, and most labels of an axis.
_WITH_POINTS, _TICKS = 45, 12
#: Pixels: the height of a line chart, a line of its legend, a lane, the space around lanes, a line of the names of sides, and
#: roughly the width of a chart.
_HEIGHT, _LEGEND, _LANE, _AROUND, _NAME, _WIDTH = 300, 20, 26, 90, 13, 720
#: Pixels: the width of one of two charts beside each other, of a legend's character, and of its symbol with the space around.
_NARROW, _CHARACTER, _SYMBOL = 480, 6, 28
#: The rows of a legend that a line chart's height has room for, and the pixels of each further row.
_ROWS, _ROW = 2, 30


#: The colour of marks and lines that are neither good nor bad.
NEUTRAL = "#7c8794"


@dataclass(frozen=True, slots=True)
class Colors:
    """The colours of charts on a light or a dark page.

    `series` begins with colours of Okabe and Ito and ends with two that differ in lightness: six that people with any colour
    vision can distinguish. `bad` marks failures; base and new are neither good nor bad.
    """

    series: tuple[str, ...]
    base: str
    new: str
    bad: str


COLORS = {
    "light": Colors(
        ("#0072B2", "#C77F00", "#009E73", "#B8568F", "#4D4D4D", "#8C1C13"),
        *("#7a828c", "#00795a", "#B44A00"),
    ),
    "dark": Colors(
        ("#56B4E9", "#E69F00", "#2BC79A", "#CC79A7", "#F0E442", "#E8E8E8"),
        *("#9aa3ad", "#35c79d", "#ffb077"),
    ),
}


# Checking a chart and its parts against Vega-Lite's schema takes longer than making the chart: only the tests do it.
schemapi.disable_debug_mode()
alt.theme.enable("none")  # the page has its own


class Layers(alt.LayerChart):  # type: ignore[misc]  # Altair is not typed
    """A chart of layers that is checked against Vega-Lite's schema only if it is asked to be."""

    def to_dict(self, validate: bool = False, **options: Any) -> dict[str, Any]:
        """Return the chart's specification."""
        specification: dict[str, Any] = super().to_dict(validate=validate, **options)
        return specification


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, the key of its element and its words for a screen reader. If `picks` is True, clicks pick places."""

    key: str
    chart: Any
    alt: str
    picks: bool = False


def from_to(rows: pd.DataFrame, highlighted: Sequence[str]) -> str:
    """Return the first and the newest value of each highlighted line in words; `rows` are as in `lines`, in order of time."""
    texts = {name: found.tolist() for name, found in rows.groupby("line", sort=False)["text"]}
    return "; ".join(f"{name} from {texts[name][0]} to {texts[name][-1]}" for name in highlighted if name in texts)


def lines(
    rows: pd.DataFrame,
    facts: pd.DataFrame,
    labels: Sequence[str],
    highlighted: Sequence[str],
    *,
    title: str,
    pick: str,
    colors: Colors,
    sides: Mapping[str, int] | None = None,
    levels: pd.DataFrame | None = None,
    branches: Sequence[str] = (),
    dates: bool = False,
    log: bool = False,
) -> Layers:
    """Draw lines over places (nights, runs): the lines in `highlighted` coloured, other lines grey.

    Args:
        rows: place, date, line, value, text (the value in words), and branch where there are several. A line breaks
            where its `chain` changes.
        facts: the facts that the pointer shows besides the values, by place.
        labels: the labels of the places, which are evenly spaced unless `dates`.
        pick: the column of `rows` that names the place which a click picks.
        sides: the places of base and new, each marked by a rule.
        levels: rows at which a new level begins, each marked by a triangle.
    """
    # Columns that no layer uses would be half of the data that is sent.
    rows = rows.drop(
        columns=[*([] if dates else ["date"]), *(["branch"] if len(branches) < 2 else [])], errors="ignore"
    )
    if log:
        rows = rows.assign(value=rows["value"].where(rows["value"] > 0))
    told, drawn = rows[rows["line"].isin(list(highlighted))], _with_breaks(rows)
    is_coloured = drawn["line"].isin(list(highlighted))
    coloured, others = drawn[is_coloured], drawn[~is_coloured]
    x = alt.X("date:T", title=None, axis=alt.Axis(grid=False)) if dates else _places(labels)
    scale = alt.Scale(zero=False, type="log" if log else "linear", padding=8)  # no point is cut at the edge
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, grid=not log))
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom="wheel![event.ctrlKey]")
    series = list(colors.series)[: len(highlighted)]
    # A legend does not wrap: what goes beyond the chart's edge is not seen.
    columns = max(1, min(3, _NARROW // (max(map(len, highlighted), default=0) * _CHARACTER + _SYMBOL)))
    legend = (
        alt.Legend(orient="bottom", title=None, columns=columns, labelLimit=300, symbolOpacity=1)
        if len(highlighted) > 1
        else None
    )
    look = {"color": alt.Color("line:N", scale=alt.Scale(domain=list(highlighted), range=series), legend=legend)}
    point = alt.OverlayMarkDef(size=36, filled=True) if len(labels) <= _WITH_POINTS else False
    line = alt.Chart(coloured).mark_line(point=point, strokeWidth=2.2, strokeCap="round")
    layers = [line.encode(x=x, y=y, **look, **_of_branches(branches, bool(point))).add_params(zoom)]
    if len(band := _band(coloured)):
        area = alt.Chart(band).mark_area(opacity=0.15)
        layers.insert(0, area.encode(x=x, y=alt.Y("low:Q", scale=scale, title=None), y2="high:Q", **look))
    if len(others):
        grey = alt.Chart(others).mark_line(strokeWidth=1.6, opacity=0.4, color=NEUTRAL)
        layers.insert(0, grey.encode(x=x, y=y, detail="line:N"))
    if levels is not None and len(levels):
        triangles = alt.Chart(levels).mark_point(shape="triangle-down", size=130, filled=True, yOffset=-12)
        layers.append(triangles.encode(x=x, y=y, **look))
    if len(told):
        layers.append(_hover(told, facts, pick).encode(x=x))
    more_rows = max(0, math.ceil(len(highlighted) / columns) - _ROWS)
    return _layered([*_rules(sides or {}, labels), *layers], _HEIGHT + _ROW * more_rows, title)


def statuses(
    rows: pd.DataFrame, labels: Sequence[str], configs: Sequence[str], sides: Mapping[str, int], colors: Colors
) -> Layers:
    """Draw a lane per config and a mark per run, whose shape shows how it ended; `rows` has place, config, status and texts."""
    rows = rows.assign(ended=[_kind(status) for status in rows["status"]], status=rows["status"].fillna("missing"))
    kinds = [kind for kind in _SHAPE_OF if kind in set(rows["ended"])]
    shapes = alt.Scale(domain=kinds, range=[_SHAPE_OF[kind] for kind in kinds])
    bad = alt.value(colors.bad)
    marks = alt.Chart(rows).mark_point(size=70, strokeWidth=2)
    marks = marks.encode(
        x=_places(labels),
        y=alt.Y("config:N", title=None, sort=list(configs), axis=alt.Axis(labelLimit=220, grid=True)),
        shape=alt.Shape("ended:N", title=None, scale=shapes, legend=alt.Legend(orient="bottom")),
        color=alt.condition("datum.ended == 'failed'", bad, alt.value(NEUTRAL)),
        tooltip=[alt.Tooltip(f"{name}:N") for name in ("config", "status", "started", "commit", "run")],
    )
    above = _NAME * len(sides)
    height = _LANE * max(len(configs), 1) + _AROUND + 3 * _LEGEND + above
    return _layered([*_rules(sides, labels, -above), marks], height, "how each run ended", above)


def samples(values: Mapping[str, NDArray[np.float64]], kind: str, roles: Sequence[str], colors: Colors) -> Layers:
    """Draw every sample (ms) as a thin tick and the median as a thick one, a lane per side (its role is base or new)."""
    rows = pd.concat(pd.DataFrame({"side": side, "ms": of, "median": np.median(of)}) for side, of in values.items())
    names = list(values)
    scale = alt.Scale(domain=names, range=[getattr(colors, role) for role in roles])
    base = alt.Chart(rows).encode(
        y=alt.Y("side:N", title=None, sort=names, axis=alt.Axis(labelLimit=230)),
        color=alt.Color("side:N", legend=None, scale=scale),
    )
    ticks = base.mark_tick(thickness=1.5, size=18, opacity=0.6).encode(
        x=alt.X("ms:Q", title="ms per call", scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)),
        tooltip=["side:N", alt.Tooltip("ms:Q", format=".4f")],
    )
    medians = base.mark_tick(thickness=4, size=30).encode(
        x="median:Q", tooltip=["side:N", alt.Tooltip("median:Q", format=".4f", title="median ms")]
    )
    return _layered([ticks, medians], _LANE * 2 * len(names) + _AROUND, f"{kind} latency")


def _layered(layers: Sequence[Any], height: int, title: str, above: int = 0) -> Layers:
    """Put layers into one chart, with a title that leaves `above` further pixels for drawings above the upper edge."""
    head = alt.TitleParams(text=title, anchor="start", fontSize=13, fontWeight=600, offset=10 + above)
    return Layers(layer=layers, height=height, title=head)


def _rules(sides: Mapping[str, int], labels: Sequence[str], top: int = 0) -> list[alt.Chart]:
    """Draw a dashed rule at the place of each side, and its name from `top` on (pixels below the upper edge).

    Base and new are often neighbours: each name is a line lower than the one before.
    """
    rules = []
    for number, (side, place) in enumerate(sides.items()):
        base = alt.Chart(pd.DataFrame({"place": [place]})).encode(x=_places(labels))
        name = base.mark_text(text=side, color=NEUTRAL, align="left", baseline="top", dx=4, fontSize=11)
        rules.append(base.mark_rule(strokeDash=[4, 3], strokeWidth=1, color=NEUTRAL))
        rules.append(name.encode(y=alt.YValue(top + _NAME * number)))
    return rules


def _with_breaks(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that a line is drawn from, with a row without value before each new chain of a line."""
    named = [name for name in ("line", "place", "date", "value", "low", "high", "chain", "branch") if name in rows]
    shown = rows[named].sort_values(["line", "place"], kind="stable")
    if "chain" not in shown:
        return shown
    begins = shown["chain"].ne(shown.groupby("line", sort=False)["chain"].shift()) & shown.duplicated("line")
    breaks = shown[begins].assign(**dict.fromkeys(shown.columns.intersection(["value", "low", "high"]), np.nan))
    ordered = pd.concat([breaks, shown]).sort_values(["line", "place"], kind="stable", ignore_index=True)
    return ordered.drop(columns="chain")


def _band(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of lines with a known scatter from place to place, with its usual range (95 %), `low` and `high`."""
    value = rows["value"].where(rows["value"] > 0)
    series = value.dropna().groupby(rows["line"])
    scatters = {name: math.exp(1.96 * scatter(part.to_numpy())) for name, part in series}
    share = rows["line"].map(scatters).astype(float)
    band = rows.assign(low=value / share, high=value * share).drop(columns="value")
    return band[(share > 1).to_numpy()]


def _hover(rows: pd.DataFrame, facts: pd.DataFrame, pick: str) -> alt.Chart:
    """Draw a rule at each place, visible where it is picked, with the value of every line and the facts under the pointer."""
    texts = rows.pivot_table(index="place", columns="line", values="text", aggfunc="first", sort=False)
    table = facts.join(texts.fillna(ABSENT), how="inner")
    # Names of configs have characters with a meaning in names of fields, so fields are numbered.
    fields = {f"c{number}": str(name) for number, name in enumerate(table.columns)}
    first = rows.drop_duplicates("place").set_index("place")
    named = {"name": pick, **({"date": "date"} if "date" in first else {})}
    data = table.set_axis(list(fields), axis=1).assign(**{key: first[column] for key, column in named.items()})
    data = data.rename_axis("place").reset_index()
    # Vega-Lite puts the title as a text into an expression, and escapes only its quotes.
    tooltip = [alt.Tooltip(f"{field}:N", title=name.replace("\\", "\\\\")) for field, name in fields.items()]
    width = max(2.0, _WIDTH / max(1, len(data)))
    # Each click adds a place or removes it; a double click removes all.
    picked = alt.selection_point(name=PICK, fields=["name"], toggle="true", empty=False)
    seen = alt.OpacityValue(0, condition={"param": PICK, "empty": False, "value": 0.25})
    rule = alt.Chart(data).mark_rule(strokeWidth=width, color=NEUTRAL, cursor="pointer")
    return rule.encode(tooltip=tooltip, opacity=seen).add_params(picked)


def _of_branches(branches: Sequence[str], with_points: bool) -> dict[str, Any]:
    """Return the channels that distinguish branches without a colour; none if there is only one branch."""
    if len(branches) < 2:
        return {}
    dashes, shapes = (alt.Scale(domain=list(branches), range=list(of[: len(branches)])) for of in (DASHES, _SHAPES))
    channels: dict[str, Any] = {"strokeDash": alt.StrokeDash("branch:N", scale=dashes, legend=None)}
    return channels | ({"shape": alt.Shape("branch:N", scale=shapes, legend=None)} if with_points else {})


def _places(labels: Sequence[str]) -> alt.X:
    """Return an axis of evenly spaced places, 0 for the first label."""
    shown = list(range(0, len(labels), max(1, math.ceil(len(labels) / _TICKS))))
    texts = json.dumps({place: labels[place] for place in shown})
    axis = alt.Axis(values=shown, labelExpr=f"{texts}[datum.value]", labelOverlap="parity", title=None, grid=False)
    return alt.X("place:Q", axis=axis, scale=alt.Scale(domain=[-0.5, len(labels) * 1.05 - 0.4], nice=False))


def _kind(status: object) -> str:
    """Return how a run ended, as one of the kinds that have a mark."""
    if not isinstance(status, str):
        return "missing"
    if status == Status.PASS:
        return "pass"
    return "not applicable" if status in NOT_APPLICABLE else "failed"
