"""A forest plot as SVG, of nothing but lines, dots and texts: every line a change with its interval, in one or more columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from db.errors import one_line

Look = Literal["bad", "good", "calm"]

#: Colours of a file of its own, on white; orange and blue are told apart with any colour vision.
ON_PAPER = {
    "ink": "#1a1f26",
    "soft": "#5c6670",
    "line": "#d5dae0",
    "back": "#ffffff",
    "bad": "#b44a00",
    "good": "#0b61a4",
    "calm": "#5c6670",
}
#: The same as a page with a style sheet calls them, light or dark.
IN_PAGE = {name: f"var(--{'soft' if name == 'calm' else name})" for name in ON_PAPER}

#: Pixels: the whole width, that of the names, of the texts behind a lone column and behind one of several, and a line's height.
_WIDTH, _NAMES, _SAID, _SAID_SHORT, _ROW = 1120, 420, 232, 72, 20
_EDGE, _HEAD, _AXIS = 16, 92, 34
#: The change at the edge: at least, and at most, lest one wild interval hides all others.
_LEAST, _MOST = 0.02, 0.5
_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25)
#: Letters that fit into the names' width, and into a headline.
_NAME_LETTERS, _TITLE_LETTERS = 66, 126
_FONT = "system-ui, 'Liberation Sans', 'DejaVu Sans', Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Mark:
    """A change and its 95 % interval, both relative (0.02 is 2 %); `said` is what stands beside it."""

    change: float
    low: float | None
    high: float | None
    look: Look
    said: str


@dataclass(frozen=True, slots=True)
class Line:
    """A name and its mark in each column, None where there is none."""

    name: str
    marks: tuple[Mark | None, ...]


@dataclass(frozen=True, slots=True)
class _Column:
    """Where a column is: the middle of its axis and half its width in pixels, and the change at its edge."""

    head: str
    middle: float
    half: float
    reach: float

    def at(self, change: float) -> float:
        return self.middle + self.half * max(-1.0, min(1.0, change / self.reach))


def draw(
    title: str,
    notes: Sequence[str],
    heads: Sequence[str],
    lines: Sequence[Line],
    colors: Mapping[str, str] = ON_PAPER,
) -> str:
    """The plot as one `<svg>` element: title, up to two notes under it, a column for each of `heads`, a row for each line."""
    columns = _columns(heads, lines)
    bottom = _HEAD + _ROW * len(lines)
    height = bottom + _AXIS
    parts = [
        f"<title>{_text(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="{colors["back"]}"/>',
        _words(_EDGE, 24, _short(title, _TITLE_LETTERS), colors["ink"], size=15, weight=600),
        *(
            _words(_EDGE, 42 + 14 * at, _short(note, _TITLE_LETTERS + 20), colors["soft"], size=11)
            for at, note in enumerate(notes[:2])
        ),
        *(_axis(column, bottom, colors) for column in columns),
        *(_line(line, columns, _HEAD + _ROW * at, colors) for at, line in enumerate(lines)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{_text(title)}" font-family="{_FONT}">{"".join(parts)}</svg>'
    )


def _columns(heads: Sequence[str], lines: Sequence[Line]) -> list[_Column]:
    said = _SAID if len(heads) == 1 else _SAID_SHORT
    each = (_WIDTH - _NAMES - 2 * _EDGE) / max(len(heads), 1)
    half = (each - said - 18) / 2
    return [
        _Column(head, _EDGE + _NAMES + each * at + half, half, _reach(line.marks[at] for line in lines))
        for at, head in enumerate(heads)
    ]


def _reach(marks: Iterable[Mark | None]) -> float:
    ends = [abs(end) for mark in marks if mark for end in (mark.change, mark.low, mark.high) if end is not None]
    return max(_LEAST, min(1.05 * max(ends, default=_LEAST), _MOST))


def _axis(column: _Column, bottom: float, colors: Mapping[str, str]) -> str:
    wanted = 2 if column.half < 80 else 4
    step = next((step for step in _STEPS if column.reach / step <= wanted), _STEPS[-1])
    count = int(column.reach / step)
    parts = [_words(column.middle, _HEAD - 10, column.head, colors["soft"], size=11, anchor="middle")]
    for place in range(-count, count + 1):
        x = column.at(place * step)
        stroke = colors["soft" if place == 0 else "line"]
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD - 4}" y2="{bottom + 4:.0f}" stroke="{stroke}" '
            f'stroke-width="{1 if place == 0 else 0.7}"/>'
        )
        # With little room every other number would run into the next one.
        if wanted > 2 or place in (-count, 0, count):
            label = "0 %" if place == 0 else f"{100 * place * step:+g} %"
            parts.append(_words(x, bottom + 18, label, colors["soft"], size=10, anchor="middle"))
    return "".join(parts)


def _line(line: Line, columns: Sequence[_Column], top: float, colors: Mapping[str, str]) -> str:
    y = top + _ROW / 2
    name = _words(_EDGE, y + 4, _short(line.name, _NAME_LETTERS), colors["ink"], size=11.5, full=line.name)
    marks = (_mark(mark, column, y, colors) for mark, column in zip(line.marks, columns, strict=True) if mark)
    return name + "".join(marks)


def _mark(mark: Mark, column: _Column, y: float, colors: Mapping[str, str]) -> str:
    color, x = colors[mark.look], column.at(mark.change)
    parts = []
    if mark.low is not None and mark.high is not None:
        low, high = column.at(mark.low), column.at(mark.high)
        parts.append(
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2" stroke-linecap="round"/>'
        )
        parts += [_beyond(column, end, y, color) for end in (mark.low, mark.high) if abs(end) > column.reach]
    parts.append(_dot(mark, x, y, color))
    parts.append(_words(column.middle + column.half + 12, y + 4, mark.said, color, size=11.5))
    return "".join(parts)


def _dot(mark: Mark, x: float, y: float, color: str) -> str:
    """Filled where something is known to have changed, hollow where not: it is told without colour, too."""
    fill = "none" if mark.look == "calm" else color
    return f'<circle cx="{x:.1f}" cy="{y}" r="3.6" fill="{fill}" stroke="{color}" stroke-width="1.4"/>'


def _beyond(column: _Column, end: float, y: float, color: str) -> str:
    """An arrow head where an interval goes on beyond the edge."""
    sign = 1 if end > 0 else -1
    x = column.middle + sign * column.half
    return f'<path d="M{x:.1f} {y - 4} l{sign * 6} 4 l{-sign * 6} 4 z" fill="{color}"/>'


def _words(
    x: float, y: float, words: str, color: str, *, size: float, weight: int = 400, anchor: str = "start", full: str = ""
) -> str:
    told = f"<title>{_text(full)}</title>" if full and full != words else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{color}">{told}{_text(words)}</text>'
    )


def _short(words: str, letters: int) -> str:
    """The text, without its middle where it is too long: both ends of a cell's name tell something."""
    if len(words) <= letters:
        return words
    tail = letters // 2
    return f"{words[: letters - tail - 1]}\N{HORIZONTAL ELLIPSIS}{words[-tail:]}"


def _text(words: str) -> str:
    return escape(one_line(words, 2000), quote=True)
