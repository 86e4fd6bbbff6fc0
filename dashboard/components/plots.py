"""Line charts as plain HTML, drawn here: a browser shows one in a few milliseconds, where Vega takes a tenth of a second.

The lines are a picture (Streamlit takes SVG elements out of HTML), stretched over the room there is with strokes that keep their
width; words stand beside it in the page's own font, and what a place was is the title of an invisible column over it. A
`Plot` is drawn in fractions of its area: 0 is left and bottom, 1 is right and top.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dashboard.components.markup import text

Floats = NDArray[np.float64]

#: The picture's own units: enough for a pixel on any screen.
_WIDE, _HIGH = 2000, 1000
#: So many steps of the axis at most, and the numbers that a step begins with.
_STEPS, _ROUND = 5, (1.0, 2.0, 2.5, 5.0, 10.0)
#: From these ratios of largest to smallest on, a logarithmic axis has steps of 1, 2 and 5, and of powers of ten alone.
_DECADE, _MANY = 20.0, 3000.0
_GRID = "#7c8794"
#: From here on there is no room for a word at the right of its place.
_RIGHT = 0.88


@dataclass(frozen=True, slots=True)
class Line:
    """One line: places (fractions) and values, in order; it is broken where `breaks` says that a point begins anew.

    A point that stands alone is a dot. `dots` is the size in pixels of a mark at each point, none for 0; `shape` how it looks.
    """

    color: str
    places: Floats
    values: Floats
    breaks: NDArray[np.bool_]
    width: float = 2.2
    opacity: float = 1.0
    dash: str = ""
    dots: float = 0.0
    shape: str = "round"


@dataclass(frozen=True, slots=True)
class Mark:
    """A letter in the area: at a place (a fraction) and a value, in a colour."""

    place: float
    value: float
    glyph: str
    color: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """What is drawn. `said` is the finding, for those who hear it; `ticks` are labels at places; `columns` widths and titles."""

    title: str
    said: str
    lines: Sequence[Line]
    ticks: Sequence[tuple[float, str]] = ()
    columns: Sequence[tuple[float, str]] = ()
    rules: Sequence[tuple[float, str]] = ()
    marks: Sequence[Mark] = field(default=())
    log: bool = False
    ground: str = "#ffffff"


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    ticks: Sequence[float]
    log: bool

    def at(self, values: Floats) -> Floats:
        """Values as fractions of the height; what a logarithmic axis has no place for is NaN."""
        if not self.log:
            return (values - self.low) / (self.high - self.low)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(np.where(values > 0, values, np.nan) / self.low) / math.log(self.high / self.low))


def html(plot: Plot) -> str:
    """The plot as HTML for `markup.block`."""
    axis = _axis(plot)
    picture = base64.b64encode(_svg(plot, axis).encode()).decode()
    steps = "".join(
        f'<span style="bottom:{100 * at:.2f}%">{text(label)}</span>'
        for at, label in zip(axis.at(np.array(axis.ticks)), _labels(axis.ticks), strict=True)
    )
    ticks = "".join(f'<span style="left:{100 * at:.2f}%">{text(label)}</span>' for at, label in plot.ticks)
    words = "".join(_word(number, at, label) for number, (at, label) in enumerate(plot.rules))
    heights = axis.at(np.array([mark.value for mark in plot.marks]))
    marks = "".join(
        f'<u style="left:{100 * mark.place:.2f}%;bottom:{100 * at:.2f}%;color:{mark.color}">{text(mark.glyph)}</u>'
        for mark, at in zip(plot.marks, heights, strict=True)
        if at == at
    )
    return (
        f'<figure class="iw-plot"><figcaption>{text(plot.title)}</figcaption><div class="y" aria-hidden="true">{steps}</div>'
        f'<div class="area"><img alt="{text(plot.said)}" src="data:image/svg+xml;base64,{picture}">'
        f'<div class="marks" aria-hidden="true">{words}{marks}</div>{_columns(plot.columns)}</div>'
        f'<div class="x" aria-hidden="true">{ticks}</div></figure>'
    )


def _word(number: int, at: float, label: str) -> str:
    """What a rule is, beside it, each a line lower: base and new often are neighbours."""
    side = f"left:{100 * at:.2f}%" if at < _RIGHT else f"right:{100 * (1 - at):.2f}%"
    return f'<b style="{side};top:{0.95 * number:.2f}rem">{text(label)}</b>'


def lanes(title: str, said: str, rows: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]) -> str:
    """A lane a name with a letter a place: its class, the letter, and what it was."""
    shown = "".join(
        f'<div class="name">{text(name)}</div><div class="lane">'
        + "".join(f'<i class="{look}" title="{text(told)}">{glyph}</i>' for look, glyph, told in marks)
        + "</div>"
        for name, marks in rows
    )
    return (
        f'<figure class="iw-lanes" role="img" aria-label="{text(said)}"><figcaption>{text(title)}</figcaption>'
        f'<div class="rows">{shown}</div></figure>'
    )


def _columns(columns: Sequence[tuple[float, str]]) -> str:
    if not columns:
        return ""
    is_even = len({round(width, 6) for width, _ in columns}) == 1
    cells = "".join(
        f'<i title="{text(told)}"></i>' if is_even else f'<i style="flex-grow:{width:.5f}" title="{text(told)}"></i>'
        for width, told in columns
    )
    return f'<div class="cols" aria-hidden="true">{cells}</div>'


def _svg(plot: Plot, axis: _Axis) -> str:
    grid = "".join(f"M0 {_HIGH * (1 - at):.0f}H{_WIDE}" for at in axis.at(np.array(axis.ticks)))
    rules = "".join(f"M{_WIDE * at:.0f} 0V{_HIGH}" for at, _ in plot.rules)
    parts = [_path(grid, _GRID, 1, 0.28), *([_path(rules, _GRID, 1, 1.0, "4 3")] if rules else [])]
    for line in plot.lines:
        drawn, points = _points(line, axis)
        parts.append(_path(drawn, line.color, line.width, line.opacity, line.dash))
        if line.dots:
            cap = "square" if line.shape == "square" else "round"
            parts.append(_path(points, line.color, line.dots, line.opacity, cap=cap))
            if line.shape == "ring":
                parts.append(_path(points, plot.ground, line.dots - 3, 1.0))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH}" preserveAspectRatio="none" fill="none" '
        f'stroke-linejoin="round"><style>path{{vector-effect:non-scaling-stroke}}</style>{"".join(parts)}</svg>'
    )


def _path(drawn: str, color: str, width: float, opacity: float, dash: str = "", cap: str = "round") -> str:
    dashed = f' stroke-dasharray="{dash}" stroke-linecap="butt"' if dash else f' stroke-linecap="{cap}"'
    faint = f' opacity="{opacity}"' if opacity < 1 else ""
    return f'<path d="{drawn}" stroke="{color}" stroke-width="{width}"{dashed}{faint}/>'


def _points(line: Line, axis: _Axis) -> tuple[str, str]:
    """The line's path, and one with a dot at each of its points."""
    heights = axis.at(line.values)
    known = heights == heights
    begins = line.breaks | ~np.concatenate([[False], known[:-1]])
    xs = np.rint(line.places * _WIDE).astype(int).tolist()
    ys = np.rint((1 - np.where(known, heights, 0.0)) * _HIGH).astype(int).tolist()
    told = [
        (x, y, new) for x, y, new, is_known in zip(xs, ys, begins.tolist(), known.tolist(), strict=True) if is_known
    ]
    # A path of no length is a dot, since its caps are round.
    drawn = "".join(f"M{x} {y}h0" if new else f"L{x} {y}" for x, y, new in told)
    return drawn, "".join(f"M{x} {y}h0" for x, y, _ in told) if line.dots else ""


def _axis(plot: Plot) -> _Axis:
    values = np.concatenate([line.values for line in plot.lines] or [np.empty(0)])
    values = values[np.isfinite(values) & ((values > 0) if plot.log else np.ones(len(values), dtype=bool))]
    low, high = (float(values.min()), float(values.max())) if len(values) else (1.0, 2.0)
    if low == high:
        low, high = low - (abs(low) * 0.05 or 1.0), high + (abs(high) * 0.05 or 1.0)
    if plot.log:
        edge = (high / low) ** 0.04
        return _Axis(low / edge, high * edge, _log_ticks(low / edge, high * edge), True)
    step = _step(high - low)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return _Axis(first * step, last * step, [step * place for place in range(first, last + 1)], False)


def _step(span: float) -> float:
    """A round number, of which the span has five or fewer."""
    raw = span / _STEPS
    unit = 10.0 ** math.floor(math.log10(raw))
    return next(unit * factor for factor in _ROUND if unit * factor >= raw * (1 - 1e-9))


def _log_ticks(low: float, high: float) -> list[float]:
    if high / low < _DECADE:
        step = _step(high - low)
        found = [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1) if place > 0]
    else:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        factors = (1, 2, 5) if high / low < _MANY else (1,)
        found = [factor * 10.0**power for power in powers for factor in factors]
    return [value for value in found if low <= value <= high]


def _labels(ticks: Sequence[float]) -> list[str]:
    """All with as many decimals as tell them apart."""
    plain = [f"{0.0 if abs(tick) < 1e-12 else tick:.8g}" for tick in ticks]
    if any("e" in label for label in plain):
        return [f"{tick:.3g}" for tick in ticks]
    decimals = max((len(label.partition(".")[2]) for label in plain), default=0)
    return [f"{float(label):.{decimals}f}" for label in plain]
