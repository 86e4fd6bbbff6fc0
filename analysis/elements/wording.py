"""Numbers, changes and outcomes as pages show them, and pieces of HTML.

There is one way per unit, and a dash for a value that was not measured, never a 0. A plain text is escaped wherever it is put
into HTML; only `Markup`, which these functions make, is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.compare.cell_comparison import CHANGES, CellComparison, Finding, Look, Outcome, ratio
from analysis.compare.suite_groups import SHOWN_AS_NONE, AverageChange
from analysis.present import NOTHING, beside_words, called, measured_words, undecided_words, value, whole_percent
from analysis.stats.verdicts import FEWEST
from collector.metrics import METRICS, MIN_EFFECT
from collector.vocabulary import NOT_APPLICABLE, Status, status_words
from db.queries.side_rows import CellState

#: The text for "not measured".
ABSENT = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
#: The space between a number and its unit.
THIN = "\N{NARROW NO-BREAK SPACE}"


def number(metric: str, found: float | None) -> str:
    """Return a metric's value with its unit."""
    shown = value(metric, found)
    if METRICS[metric].unit == "x":
        shown = shown.replace("x", "\N{MULTIPLICATION SIGN}")
    return ABSENT if shown == NOTHING else shown.replace(" ", THIN)


def axis_of(metric: str, title: str, unit: str = "") -> tuple[float, str]:
    """Return the number that an axis divides a metric by, and the axis' title with the unit."""
    unit = METRICS[metric].unit if metric in METRICS else unit
    size, unit = (1e9, "GB") if unit == "B" else (1.0, unit)
    return size, f"{title} [{unit}]" if unit else title


def milliseconds(value: float) -> str:
    """Return milliseconds without a unit, with three decimal places, two from 10 on and one from 100 on."""
    digits = 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """Return seconds to a hundredth, with the unit."""
    return ABSENT if value is None else f"{value:.2f}{THIN}s"


def signed(value: float | None, digits: int = 1, unit: str = "%") -> str:
    """Return a change with its sign: `+3.7 %`, `-0.4 %`, and ± for a zero."""
    if value is None or math.isnan(value):
        return ABSENT
    rounded = round(value, digits)
    sign = "+" if rounded > 0 else _MINUS if rounded < 0 else "\N{PLUS-MINUS SIGN}"
    return f"{sign}{abs(rounded):.{digits}f}{THIN}{unit}".rstrip(THIN)


def share(part: int, whole: int) -> str:
    """Return a share in whole percent, never rounded up to 100 %."""
    if not whole:
        return ABSENT
    return f"{whole_percent(part, whole)}{THIN}%"


def moment(value: datetime) -> str:
    """Return a moment to the minute, without a time zone: pages show UTC."""
    return f"{value:%Y-%m-%d %H:%M}"


def count(number_of: int, one: str) -> str:
    """Return a number with its noun: `1 cell`, `3 cells`."""
    return f"{number_of:,} {one}{'s' * (number_of != 1)}"


RULE = (
    f"A cell is regressed or improved if its change is at least {100 * MIN_EFFECT['compiled_ms']:.0f} % "
    f"({100 * MIN_EFFECT['compile_cold_s']:.0f} % for cold and warm compile) and larger than the noise. "
    "At most 5 % of such verdicts are expected to be wrong. Unchanged: a change of that size is ruled out. "
    "No clear change: neither; the interval says what is ruled out, and more runs tell more. "
    "The verdict and the 95 % interval are those of the change that is shown, from which the machine's drift is removed. "
    "See docs/statistics.md, Two sides."
)
SHOWN = (
    "Base and new are the means over the runs of each side. Where the eager run of the same process moved too, the machine "
    "did: the change that is shown is without that part, and may have the other sign than the measured one beside it."
)
GROUP_RULE = (
    f"An average is coloured if its 95 % interval over models excludes 0 % (that takes at least {FEWEST} models), and a cell "
    "in it regressed or improved likewise."
)
#: The words for a ratio above and below 1, by unit.
_WORDS = {
    **dict.fromkeys(("ms", "s"), ("slower", "faster")),
    **{"B": ("larger", "smaller"), "x": ("higher", "lower"), "": ("more", "fewer")},
}


class ChangeWords(NamedTuple):
    """A change as a page writes it.

    Attributes:
        size: for example `▲ +3.7 %`; empty for a metric that was 0 before.
        intervals: in percent, `[+1.2, +5.0]`, and the measured change if the machine's part was removed from it.
        word: the verdict; empty where there is none.
    """

    size: str
    intervals: tuple[str, ...] = ()
    look: Look = "calm"
    word: str = ""

    @property
    def interval(self) -> str:
        """The intervals on one line."""
        return ", ".join(self.intervals)

    @property
    def text(self) -> str:
        """The size and the word, for example `▲ +3.7 % slower`."""
        return f"{self.size} {self.word}".strip()


def size(change: float | None) -> str:
    """Return a relative change with its sign and a glyph for up or down; word and colour say whether it is good or bad."""
    if change is None:
        return ""
    up, down = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}"
    glyph = "=" if abs(change) < SHOWN_AS_NONE else up if change > 0 else down
    return f"{glyph} {signed(100 * change)}"


def unjudged(base: float | None, new: float | None) -> ChangeWords | None:
    """Return a change without a verdict; None where it is unknown."""
    found = ratio(base, new)
    return None if found is None else ChangeWords(size(found - 1))


def judged(one: CellComparison, metric: str) -> ChangeWords | None:
    """Return the change of a metric as it was judged; None where it was not.

    Where the machine differs, the change has no verdict.
    """
    found = one.judged.get(metric)
    if found is None:
        return None
    ends = (found.low, found.high)
    parts = [] if None in ends else [f"[{', '.join(_in_percent(end) for end in ends)}]"]
    if measured := measured_words(one, found, _in_percent):
        parts.append(measured)
    said = (found.verdict.look, called(found.verdict)) if one.is_comparable else ("calm", "")
    return ChangeWords(size(found.shown), tuple(parts), *said)


def averaged(found: AverageChange | None) -> ChangeWords | None:
    """Return the change of an average over models with its interval; None where there is no average."""
    if found is None:
        return None
    change = found.ratio - 1
    ends = (found.interval.low - 1, found.interval.high - 1) if found.interval else ()
    parts = (f"[{', '.join(map(_in_percent, ends))}]",) if ends else ()
    word = "" if found.look == "calm" else _WORDS[METRICS[found.metric].unit][change < 0]
    return ChangeWords(size(change), parts, found.look, word)


def _in_percent(change: float | None) -> str:
    return signed(None if change is None else 100 * change, unit="")


#: The names of outcomes, those that are most worth a look first. The key is also used in addresses.
OUTCOMES = {
    outcome.value: called(outcome)
    for outcome in (
        *(Outcome.BROKE, Outcome.REGRESSED, Outcome.FLAKY, Outcome.MISSING, Outcome.STILL_FAILING, Outcome.IMPROVED),
        *(Outcome.FIXED, Outcome.INCONCLUSIVE, Outcome.UNCHANGED, Outcome.ENVIRONMENT_CHANGED),
        *(Outcome.MISSING_IN_BASE, Outcome.MISSING_IN_BOTH, Outcome.NOT_APPLICABLE, Outcome.ENTERED, Outcome.LEFT),
    )
}
#: The glyph of each look: it has the meaning of the colour.
_GLYPHS = {"worse": "\N{MULTIPLICATION X}", "better": "\N{CHECK MARK}"}
_CALM_GLYPHS = {Outcome.INCONCLUSIVE: "?", Outcome.UNCHANGED: "="}


def glyph(outcome: Outcome) -> str:
    """Return the glyph of an outcome; empty where it has none."""
    return _GLYPHS.get(outcome.look) or _CALM_GLYPHS.get(outcome, "")


def look(one: CellComparison) -> Look:
    """Return the look of a cell: a cell that is faster and larger is neither good nor bad."""
    looks = {outcome.look for outcome, _ in said(one)}
    return looks.pop() if len(looks) == 1 else "calm"


def said(one: CellComparison) -> list[tuple[Outcome, str]]:
    """Return the outcomes of a cell, each with its reason: metrics that changed, statuses, or changes that are ruled out.

    A cell that changed for the worse and for the better has both outcomes. A reason may be empty.
    """
    if one.changes and one.is_comparable:
        return [
            (verdict, ", ".join(_change(one, finding) for finding in one.changes if finding.verdict is verdict))
            for verdict in CHANGES
            if any(finding.verdict is verdict for finding in one.changes)
        ]
    statuses = " → ".join(dict.fromkeys((status(one.base), status(one.new))))
    detail = "" if statuses == "pass" else statuses
    if one.outcome is Outcome.INCONCLUSIVE and one.leading:
        detail = undecided_words(one, one.leading)
    return [(one.outcome, detail)]


def status(state: CellState) -> str:
    """Return the status of a cell on a side; `missing` or `not planned` if it has none."""
    return state.status or ("missing" if state.is_expected else "not planned")


def _change(one: CellComparison, finding: Finding) -> str:
    """Return a change in words, `device time -88 %`; a change from 0 has no percentage."""
    title = METRICS[finding.metric].title if finding.metric else finding.dimension.value
    size = f" {signed(100 * finding.change, 0)}" if finding.change is not None else ""
    beside = beside_words(one, finding)
    return f"{title}{size}{f' ({beside})' if beside else ''}"


_TABLE = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
).get_template("table.html.j2")


#: A function that makes the address of a page from its name and its query, without the part of the query that all pages share.
Link = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell with a CSS class of its own."""

    content: str
    css: str = ""


def anchor(href: str, content: str) -> Markup:
    """Return a link that opens in this tab."""
    return Markup('<a href="{}" target="_self">{}</a>').format(href, content)


def span(css: str, content: str) -> Markup:
    """Return a span of a CSS class."""
    return Markup('<span class="{}">{}</span>').format(css, content)


def mono(content: str, title: str = "") -> Markup:
    """Return a name of code, with a title for the pointer."""
    return Markup('<span class="iw-mono" title="{}">{}</span>').format(title, content)


def joined(separator: str, parts: Iterable[str]) -> Markup:
    """Return the parts that are not empty, with HTML between them."""
    return Markup(separator).join(part for part in parts if part)  # noqa: S704 -- separators are literals


def lines(*parts: str) -> Markup:
    """Return the parts, each on its own line."""
    return joined("<br>", parts)


def change_cells(change: ChangeWords | None) -> list[Markup | str]:
    """Return the table's cells of a change: its size with glyph and sign, its interval, and the word."""
    if change is None:
        return ["", "", ""]
    return [span(change.look, change.size), span("soft", change.interval), span(change.look, change.word)]


def status_tag(status: object, details: Mapping[str, Any] = MappingProxyType({})) -> Markup:
    """Return a status as a small label; anything but a text stands for a missing cell.

    With the details of its measurement the label of a pass says whether no reference confirms it.
    """
    if not isinstance(status, str):
        return span("tag missing", "missing")
    css = "tag pass" if status == Status.PASS else "tag" if status in NOT_APPLICABLE else "tag fail"
    return span(css, status_words(status, details))


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    note: str = "",
    numbers: Container[int] = (),
    of: str = "",
) -> Markup:
    """Return a table whose first column names the rows; other values are texts, HTML, or a `Cell`.

    `numbers` are the columns that are aligned right. `of` distinguishes the table from others on the page with the same caption,
    for screen readers.
    """
    words = {"caption": caption, "note": note, "of": of, "head": head, "numbers": numbers}
    return Markup(_TABLE.render(**words, rows=list(rows)))  # noqa: S704 -- escaped by Jinja2


def paragraph(css: str, *parts: str) -> Markup:
    """Return a paragraph of a CSS class, each part on its own line."""
    return Markup('<p class="{}">{}</p>').format(css, lines(*parts))


def bullets(css: str, items: Iterable[str]) -> Markup:
    """Return a list of a CSS class."""
    return Markup('<ul class="{}">{}</ul>').format(css, joined("", (Markup("<li>{}</li>").format(i) for i in items)))
