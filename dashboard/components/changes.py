"""Changes and noise in words: a sign, a glyph, a word, an interval, one of three looks, and the noise behind verdicts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.compare.adjustment import CONTROL
from analysis.compare.changes import percent, ratio
from analysis.compare.verdicts import Judgement
from analysis.reports.suites import SHOWN_AS_NONE, VERDICT_LOOKS, Look, average_look
from analysis.reports.words import called
from analysis.stats.bootstrap import FEWEST, Interval
from analysis.stats.shrinkage import FEWEST as FEWEST_REPEATS
from collector.metrics import METRICS, MIN_EFFECT
from dashboard.components.formats import count, signed

RULE = (
    f"A cell is regressed or improved if its change is at least {100 * MIN_EFFECT['compiled_ms']:.0f} % "
    f"({100 * MIN_EFFECT['compile_cold_s']:.0f} % for cold and warm compile) and larger than the noise. "
    "At most 5 % of such verdicts are expected to be wrong. Unchanged: a change of that size is ruled out. "
    "No clear change: neither; the interval says what is ruled out, and more runs tell more. "
    "The verdict and the 95 % interval are those of the adjusted change, from which the machine's drift is removed. "
    "See docs/statistics.md, Two sides."
)
SHOWN = (
    "Base and new are the values that the change is computed from: the mean over the runs of each side. Where the eager run "
    "of the same process moved too, the machine did: the adjusted change is without that part, and may have the other sign."
)
GROUP_RULE = (
    f"An average is coloured if its 95 % interval over models excludes 0 % (that takes at least {FEWEST} models), and a cell "
    "in it regressed or improved likewise."
)

_NOISE_UNKNOWN = (
    "The noise from run to run is not known yet: no cell was measured twice at one commit. Only statuses, leaks and what "
    "doubled or halved can be judged. Measure one side again: run inductor-watch nightly on the same commit and machine."
)
_NOISE_OWN = (
    f"Noise from run to run: fewer than {FEWEST_REPEATS} cells have repeats. Each cell is judged by its own repeats. Of a cell "
    "without repeats only a change by a factor of two or more is judged."
)
#: What a ratio above or below 1 means for a unit.
_WORDS = {
    **dict.fromkeys(("ms", "s"), ("slower", "faster")),
    **{"B": ("larger", "smaller"), "x": ("higher", "lower"), "": ("more", "fewer")},
}


@dataclass(frozen=True, slots=True)
class Change:
    """One metric from base to new, as ratios.

    `adjusted` is the change without the machine's part, `low` and `high` the ends of its 95 % interval, where they are known.
    `eager` is the change of the eager run beside it, from which the machine's part is known.
    """

    metric: str
    ratio: float
    look: Look = "calm"
    word: str = ""
    low: float = math.nan
    high: float = math.nan
    adjusted: float = math.nan
    eager: float = math.nan

    @property
    def of_verdict(self) -> float:
        """The change that the verdict is about."""
        return self.ratio if math.isnan(self.adjusted) else self.adjusted

    @property
    def glyph(self) -> str:
        """Whether the number went up or down; whether that is good, the word and the colour say."""
        if abs(self.ratio - 1) < SHOWN_AS_NONE:
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
    def intervals(self) -> list[str]:
        """In percent: `[+1.2, +5.0]`, or `eager +2.1` and `adjusted +3.1 [+1.2, +5.0]`; nothing where it is not known."""
        low, adjusted, high, eager = (
            signed(percent(value), unit="") for value in (self.low, self.adjusted, self.high, self.eager)
        )
        shown = "" if math.isnan(self.low) or math.isnan(self.high) else f"[{low}, {high}]"
        if math.isnan(self.adjusted) or abs(self.adjusted - self.ratio) < SHOWN_AS_NONE:
            return [shown] if shown else []
        return [*([] if math.isnan(self.eager) else [f"eager {eager}"]), f"adjusted {adjusted} {shown}".strip()]

    @property
    def interval(self) -> str:
        """The same in a line."""
        return ", ".join(self.intervals)


def change(metric: str, base: float | None, new: float | None) -> Change | None:
    """A change without a verdict; None where it is unknown."""
    new_over_base = ratio(base, new)
    return None if new_over_base is None else Change(metric, new_over_base)


def judged(metric: str, record: Mapping[Any, Any], *, comparable: bool = True) -> Change | None:
    """The change of a metric as `analysis.compare.verdicts` judged it in the row of a cell; None where it did not.

    `comparable` is false where the machine differs: then the change is shown, and nothing is said about it.
    """
    verdict = record.get(f"{metric}_verdict")
    if not isinstance(verdict, str):
        return None
    parts = ("change", "low", "high", "adjusted")
    new_over_base, low, high, adjusted = (1 + float(record[f"{metric}_{name}"]) for name in parts)
    eager = float(record.get(f"{CONTROL.get(metric)}_ratio", math.nan))
    if not comparable:
        return Change(metric, new_over_base, low=low, high=high, adjusted=adjusted, eager=eager)
    return Change(
        metric, new_over_base, VERDICT_LOOKS.get(verdict, "calm"), called(verdict), low, high, adjusted, eager
    )


def averaged(
    metric: str, new_over_base: float | None, within: Interval | None, allowed: Collection[Look]
) -> Change | None:
    """The change of an average over models with its interval; None where there is no average.

    `allowed` are the looks that it may have, as `analysis.reports.suites.allowed_looks` finds them.
    """
    if new_over_base is None or math.isnan(new_over_base):
        return None
    if within is None:
        return Change(metric, new_over_base)
    look = average_look(metric, new_over_base, within, allowed)
    word = "" if look == "calm" else _WORDS[METRICS[metric].unit][new_over_base < 1]
    return Change(metric, new_over_base, look, word, within.low, within.high)


def noise_line(judgement: Judgement, metrics: Iterable[str] = tuple(MIN_EFFECT)) -> str:
    """Typical noise per metric, from how many repeats, and the drift that was removed; what to do where none is known."""
    metrics = tuple(metrics)
    known = {name: value for name in metrics if (value := judgement.noise[name]) is not None}
    if not known:
        return _NOISE_OWN if any(judgement.repeats[name] for name in metrics) else _NOISE_UNKNOWN
    noise = ", ".join(f"{METRICS[name].title} {signed(100 * value).lstrip('+')}" for name, value in known.items())
    few, many = (int(pick(judgement.repeats[name] for name in known)) for pick in (min, max))
    learned = count(many, "repeat") if few == many else f"{few:,} to {many:,} repeats"
    line = f"Noise from run to run: {noise}, learned from {learned}."
    drifts = {name: value for name in known if abs(value := judgement.drift.get(name, 0.0)) >= SHOWN_AS_NONE}
    drift = ", ".join(f"{METRICS[name].title} {signed(100 * value)}" for name, value in drifts.items())
    return f"{line} Corrected for machine drift: {drift}." if drift else line
