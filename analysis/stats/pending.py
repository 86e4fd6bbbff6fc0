"""A shift too young to be a change point: what a dashboard shows as "wait for more nights"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analysis.stats.changepoints import SHORTEST, Series
from analysis.stats.spread import robust_sigma
from analysis.stats.steps import EDGE

#: Fewest nights of a pending shift: a single one is a spike until a second night repeats it.
FEWEST = 2
#: Robust standard deviations that every night of the tail must be away from the level, all on one side.
AWAY = 2.0
#: ... and their median, so that two nights at the edge of the noise are not reported.
MEDIAN_AWAY = 3.0


def pending(values: Series, found: Sequence[int], *, min_effect: float = 0.01) -> int | None:
    """First index of a shift at the end of a series that is not established yet, or None.

    The newest 2 to 19 measured nights are a pending shift if each is more than 2 s, and their median at least 3 s and
    `min_effect` of the level, from the level on one side. Level and s are median and 1.4826 x MAD of the 20 measured
    nights before (at least 5) since the last of the change points `found`. The longest such tail counts.
    NaN and infinity mean "not measured", as for `detect`.

    Raises:
        ValueError: values that are not one row of numbers.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError("a series is one row of numbers")
    places = np.flatnonzero(np.isfinite(series))
    places = places[places >= max(found, default=0)]
    current = series[places]
    for start in range(max(current.size - EDGE + 1, SHORTEST), current.size - FEWEST + 1):
        if _shifted(current[max(start - EDGE, 0) : start], current[start:], min_effect):
            return int(places[start])
    return None


def _shifted(before: npt.NDArray[np.float64], tail: npt.NDArray[np.float64], min_effect: float) -> bool:
    level, sigma = float(np.median(before)), robust_sigma(before.tolist())
    away = tail - level
    middle = float(np.median(away))
    if middle == 0 or not np.all(np.sign(middle) * away > AWAY * sigma):
        return False
    return abs(middle) >= max(MEDIAN_AWAY * sigma, min_effect * abs(level))
