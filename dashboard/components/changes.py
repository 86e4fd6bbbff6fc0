"""Changes as pages show them: a sign, a glyph, a word, an interval and one of three looks; and the rules behind them."""

from __future__ import annotations

from typing import NamedTuple

from analysis.compare.adjustment import CONTROL
from analysis.compare.cell_comparison import CellComparison
from analysis.compare.cell_outcome import Look
from analysis.compare.changes import ratio
from analysis.compare.suite_groups import SHOWN_AS_NONE, AverageChange
from analysis.present import called
from analysis.stats.bootstrap import FEWEST
from collector.metrics import METRICS, MIN_EFFECT
from dashboard.components.formats import signed

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
#: What a ratio above or below 1 means for a unit.
_WORDS = {
    **dict.fromkeys(("ms", "s"), ("slower", "faster")),
    **{"B": ("larger", "smaller"), "x": ("higher", "lower"), "": ("more", "fewer")},
}


class ChangeWords(NamedTuple):
    """A change as a page writes it.

    Attributes:
        size: for example `▲ +3.7 %`; empty for what was nothing before.
        intervals: in percent, `[+1.2, +5.0]`, and what was measured where the machine's part was removed from it.
        word: the verdict; empty where there is none.
    """

    size: str
    intervals: tuple[str, ...] = ()
    look: Look = "calm"
    word: str = ""

    @property
    def interval(self) -> str:
        """The intervals in a line."""
        return ", ".join(self.intervals)

    @property
    def text(self) -> str:
        """For example `▲ +3.7 % slower`."""
        return f"{self.size} {self.word}".strip()


def size(change: float | None) -> str:
    """Return a relative change with its sign; the glyph says up or down, whether that is good word and colour say."""
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

    Where the machine differs the change is shown, and nothing is said about it.
    """
    found = one.judged.get(metric)
    if found is None:
        return None
    ends = (found.low, found.high)
    parts = [] if None in ends else [f"[{', '.join(_in_percent(end) for end in ends)}]"]
    if found.change is not None and found.adjusted is not None and abs(found.change - found.adjusted) >= SHOWN_AS_NONE:
        eager = one.ratio(CONTROL[metric]) if metric in CONTROL else None
        beside = "" if eager is None else f", eager {_in_percent(eager - 1)}"
        parts.append(f"measured {_in_percent(found.change)}{beside}")
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
