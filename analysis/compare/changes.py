"""The change of one number between two sides: how large, and whether for the better."""

from __future__ import annotations

import math
from typing import Literal

from collector.metrics import METRICS

Direction = Literal["better", "worse", "same"]


def ratio(base: float | None, new: float | None) -> float | None:
    """New over base; None where either was not measured or base is 0 and new is not; 0 over 0 is 1."""
    if base is None or new is None or math.isnan(base) or math.isnan(new):
        return None
    if base == 0:
        return 1.0 if new == 0 else None
    return new / base


def percent(value: float | None) -> float | None:
    """A ratio as a signed percentage: 1.05 is +5.0."""
    return None if value is None or math.isnan(value) else (value - 1) * 100


def direction(metric: str, base: float | None, new: float | None) -> Direction | None:
    """Whether `new` is better than `base` by the metric's own sense; None if unmeasured or the metric has no sense."""
    better = METRICS[metric].better
    if base is None or new is None or math.isnan(base) or math.isnan(new) or better == "neither":
        return None
    if base == new:
        return "same"
    return "better" if (new < base) == (better == "lower") else "worse"
