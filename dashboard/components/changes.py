"""What is said about a change: a sign, a glyph, a word, its interval and one of three looks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analysis.compare.changes import direction, percent, ratio
from analysis.compare.verdicts import Outcome
from analysis.stats.bootstrap import FEWEST, Interval
from collector.metrics import METRICS, MIN_EFFECT
from dashboard.components.formats import signed

Look = Literal["better", "worse", "calm"]

#: Blue and orange are for what is shown to have changed. All else, known or not, is neither good nor bad.
VERDICT_LOOKS: dict[str, Look] = {Outcome.REGRESSED.value: "worse", Outcome.IMPROVED.value: "better"}
#: Counts of what should not be there are exact: any change of them is one.
COUNTS = ("graph_breaks", "recompiles", "cudagraph_skips")

RULE = (
    "Regressed and improved: the change is one that matters "
    f"({100 * MIN_EFFECT['compiled_ms']:.0f} % of time and memory, {100 * MIN_EFFECT['compile_cold_s']:.0f} % of compile time) "
    "and more than runs of the same code differ; of all that is called so at most 5 % is expected to be wrong. "
    "Unchanged: a change that matters is ruled out; inconclusive: neither yet. "
    "The verdict and the 95 % interval are of the change without the drift of the machine, the adjusted one: "
    "docs/statistics.md, Two sides, says how."
)
GROUP_RULE = (
    f"An average is coloured where its 95 % interval over models (bootstrap, at least {FEWEST} models) excludes 0 %."
)

#: Less is shown as 0.0 %.
_NONE = 5e-4
_WORDS = {
    "ms": ("slower", "faster"),
    "s": ("slower", "faster"),
    "B": ("larger", "smaller"),
    "x": ("higher", "lower"),
    "": ("more", "fewer"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One metric from base to new, as ratios.

    `adjusted` is the change without the machine's part, `low` and `high` the ends of its 95 % interval, where they are known.
    """

    metric: str
    ratio: float
    look: Look = "calm"
    word: str = ""
    low: float = math.nan
    high: float = math.nan
    adjusted: float = math.nan

    @property
    def glyph(self) -> str:
        """Whether the number went up or down; whether that is good, the word and the colour say."""
        if abs(self.ratio - 1) < _NONE:
            return "="
        return "\N{BLACK UP-POINTING TRIANGLE}" if self.ratio > 1 else "\N{BLACK DOWN-POINTING TRIANGLE}"

    @property
    def size(self) -> str:
        """For example `▲ +3.7 %`; nothing for what was nothing before."""
        if math.isnan(self.ratio):
            return ""
        return f"{self.glyph} {signed(percent(self.ratio))}"

    @property
    def text(self) -> str:
        """For example `▲ +3.7 % slower`."""
        return f"{self.size} {self.word}".strip()

    @property
    def interval(self) -> str:
        """For example `[+1.2, +5.0]` or `adjusted +3.1 [+1.2, +5.0]`, in percent; nothing where it is not known."""
        shown = interval(self.low, self.high)
        if math.isnan(self.adjusted) or abs(self.adjusted - self.ratio) < _NONE:
            return shown
        return f"adjusted {signed(percent(self.adjusted), unit='')} {shown}".strip()


def change(metric: str, base: float | None, new: float | None) -> Change | None:
    """A change that nothing judges; None where it is unknown."""
    found = ratio(base, new)
    return None if found is None or math.isnan(found) else Change(metric, found)


def judged(metric: str, record: Mapping[Any, Any], *, comparable: bool = True) -> Change | None:
    """The change of a metric as `analysis.compare.verdicts` judged it in the row of a cell; None where it did not.

    `comparable` is false where the machine differs: then the change is shown, and nothing is said about it.
    """
    verdict = record.get(f"{metric}_verdict")
    if not isinstance(verdict, str):
        return None
    parts = ("change", "low", "high", "adjusted")
    ratio, low, high, adjusted = (1 + float(record[f"{metric}_{name}"]) for name in parts)
    if not comparable:
        return Change(metric, ratio, low=low, high=high, adjusted=adjusted)
    return Change(metric, ratio, VERDICT_LOOKS.get(verdict, "calm"), verdict, low, high, adjusted)


def averaged(metric: str, found: float | None, within: Interval | None, *, comparable: bool = True) -> Change | None:
    """The change of an average over models with its interval; None where there is no average."""
    if found is None or math.isnan(found):
        return None
    if within is None:
        return Change(metric, found)
    is_sure = comparable and within.excludes_none and abs(found - 1) >= _NONE
    sense = direction(metric, 1.0, found) if is_sure else None
    look: Look = sense if sense in ("better", "worse") else "calm"
    return Change(metric, found, look, word(metric, found) if look != "calm" else "", within.low, within.high)


def word(metric: str, value: float) -> str:
    """What a ratio above or below 1 means for this metric."""
    more, less = _WORDS[METRICS[metric].unit]
    return more if value > 1 else less


def interval(low: float, high: float) -> str:
    """The ends of an interval of ratios, in percent without the sign of it; nothing where they are not known."""
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{', '.join(signed(percent(end), unit='') for end in (low, high))}]"
