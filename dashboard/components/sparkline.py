"""A line as small as a word: how a figure went over the last nights. Drawn as SVG here, which no chart library has to load."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from urllib.parse import quote

from dashboard.components.markup import text

_WIDTH, _HEIGHT, _EDGE = 150.0, 30.0, 4.0


def sparkline(values: Sequence[float], said: str, *, color: str, marked: int | None = None) -> str:
    """The values from left to right with a dot on the last one, as HTML; `said` is what it says to those who hear it.

    A picture in the page's own text, since Streamlit takes SVG elements out of HTML. NaN is a gap. `marked` is the place of a
    value that gets a ring: the base. Nothing for fewer than two values.
    """
    known = [(place, value) for place, value in enumerate(values) if value == value]
    if len(known) < 2:
        return ""
    low, high = min(value for _, value in known), max(value for _, value in known)
    points = {place: (_x(place, len(values)), _y(value, low, high)) for place, value in known}
    lines = "".join(f'<polyline points="{part}"/>' for part in _unbroken(points))
    dots = [_dot(points[known[-1][0]], fill=color, stroke="none")]
    if marked in points:
        dots.insert(0, _dot(points[marked], fill="none", stroke=color))
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}">'
        f'<g fill="none" stroke="{color}" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round">{lines}</g>'
        f"{''.join(dots)}</svg>"
    )
    return f'<img class="iw-spark" alt="{text(said)}" src="data:image/svg+xml,{quote(drawn)}">'


def _dot(at: tuple[float, float], *, fill: str, stroke: str) -> str:
    return f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="2.6" fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>'


def _unbroken(points: dict[int, tuple[float, float]]) -> list[str]:
    """Runs of neighbouring places as the points of a line."""
    places = sorted(points)
    found = groupby(zip(places, range(len(places)), strict=True), key=lambda pair: pair[0] - pair[1])
    return [" ".join(f"{points[place][0]:.1f},{points[place][1]:.1f}" for place, _ in part) for _, part in found]


def _x(place: int, count: int) -> float:
    return _EDGE + (_WIDTH - 2 * _EDGE) * place / max(1, count - 1)


def _y(value: float, low: float, high: float) -> float:
    """The whole height is the range of the values: a flat line is in the middle."""
    part = 0.5 if high == low else (value - low) / (high - low)
    return _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * part
