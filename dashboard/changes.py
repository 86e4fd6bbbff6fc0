"""What is said about a change: a sign, a glyph, a word and one of three looks. None of it is a statistical verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from analysis.changes import direction, percent, ratio
from collector.metrics import METRICS
from dashboard.formats import signed

Look = Literal["better", "worse", "calm"]

#: The change of these is compared with how much the samples of one run differ among themselves.
SAMPLED = frozenset({"eager_ms", "compiled_ms", "speedup", "eager_kernel_ms", "compiled_kernel_ms", "device_speedup"})
#: What is measured once per cell has no spread of its own; smaller changes than these stay grey.
ONCE = {"compile_cold_s": 0.10, "eager_peak_bytes": 0.01, "compiled_peak_bytes": 0.01, "compression": 0.01}

RULE = (
    "Blue is better, orange is worse. A change of latency, device time or speedup stays grey while it is no larger than "
    "the relative spreads of the samples within the two runs, added up (or while one is unknown); compile time stays "
    "grey below 10 %, memory below 1 %. A group's average is held against the median of its cells. That is a rule of "
    "thumb, no statistical verdict."
)

_WORDS = {
    "ms": ("slower", "faster"),
    "s": ("slower", "faster"),
    "B": ("larger", "smaller"),
    "x": ("higher", "lower"),
    "": ("more", "fewer"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One metric from base to new. `look` is calm where the change is small, unknown or neither good nor bad."""

    metric: str
    ratio: float
    look: Look

    @property
    def glyph(self) -> str:
        """Whether the number went up or down; whether that is good, the word and the colour say."""
        if abs(self.ratio - 1) < 5e-4:
            return "="
        return "\N{BLACK UP-POINTING TRIANGLE}" if self.ratio > 1 else "\N{BLACK DOWN-POINTING TRIANGLE}"

    @property
    def word(self) -> str:
        """`slower`, `smaller`, ...; nothing where the change is calm."""
        return word(self.metric, self.ratio) if self.look != "calm" else ""

    @property
    def text(self) -> str:
        """For example `▲ +3.7 % slower`."""
        return " ".join(part for part in (self.glyph, signed(percent(self.ratio)), self.word) if part)


def change(metric: str, base: float | None, new: float | None, band: float | None) -> Change | None:
    """The change from base to new; None where it is unknown."""
    found = ratio(base, new)
    return None if found is None else Change(metric, found, look(metric, found, band))


def word(metric: str, value: float) -> str:
    """What a ratio above or below 1 means for this metric."""
    more, less = _WORDS[METRICS[metric].unit]
    return more if value > 1 else less


def look(metric: str, value: float, band: float | None) -> Look:
    """How a ratio is shown, given the band within which changes say nothing."""
    if math.isnan(value) or band is None or math.isnan(band) or abs(value - 1) <= band:
        return "calm"
    sense = direction(metric, 1.0, value)
    return sense if sense in ("better", "worse") else "calm"


def band(metric: str, spread_base: float | None, spread_new: float | None) -> float | None:
    """How large a change of one cell may be without saying anything; None where that is unknown."""
    if metric not in SAMPLED:
        return ONCE.get(metric, 0.0)
    if spread_base is None or spread_new is None or math.isnan(spread_base) or math.isnan(spread_new):
        return None
    return spread_base + spread_new
