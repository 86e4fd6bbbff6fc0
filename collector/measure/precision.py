"""How well samples pin down their median, and whether they moved while they were taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

#: Quantile of the normal distribution for an interval of 95 %.
_Z = 1.959964
#: Fewer samples than this give no interval.
_FEWEST = 6


def relative_half_width(samples: Sequence[float]) -> float | None:
    """Half the length of the 95 % confidence interval of the median, over the median; None for fewer than six samples.

    The interval lies between the order statistics number `(n - z sqrt(n)) / 2` and `1 + (n + z sqrt(n)) / 2`, rounded,
    whatever the distribution (Conover, Practical Nonparametric Statistics, section 3.2). Samples that depend on each
    other, as those of one process do, give one that is too short: what differs between processes is not in it.
    """
    count, middle = len(samples), median(samples) if samples else 0.0
    if count < _FEWEST or middle <= 0:
        return None
    ordered, reach = sorted(samples), _Z * math.sqrt(count)
    low = max(1, round((count - reach) / 2))
    high = min(count, round(1 + (count + reach) / 2))
    return (ordered[high - 1] - ordered[low - 1]) / 2 / middle


def drift(samples: Sequence[float]) -> float | None:
    """The median of the last third over that of the first third, less one; None for fewer than six samples.

    Far from zero the clock, the temperature or a cache had not settled when the samples were taken.
    """
    third = len(samples) // 3
    if len(samples) < _FEWEST or (first := median(samples[:third])) <= 0:
        return None
    return median(samples[-third:]) / first - 1


def is_precise(samples: Sequence[float], wanted: float) -> bool:
    """Whether the median is known to `wanted`, a fraction of itself."""
    width = relative_half_width(samples)
    return width is not None and width <= wanted
