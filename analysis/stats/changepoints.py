"""Where a nightly series went to a new level: deterministic, no parameter but the smallest step that matters.

Spikes are clipped (`spikes`), the series is cut into constant pieces at a low price (`partition`), and the weakest cut is
removed until every one left is a step (`steps`). docs/statistics.md, "Change points", has formulas, sources and figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analysis.stats.partition import cut_price, optimal_partition
from analysis.stats.spikes import clip_spikes
from analysis.stats.steps import EDGE, Steps

#: Fewest nights of a level: fewer cannot be told from a few bad nights. Two levels need 10 nights.
SHORTEST = 5
#: Measured nights that `extend` cuts anew, many times what a step needs to be established.
TAIL = 250

Series = Sequence[float] | npt.NDArray[np.float64]


def detect(values: Series, *, min_effect: float = 0.01) -> list[int]:
    """First indices (0-based, ascending, never 0) of new levels in a series in order of time.

    Args:
        values: a number a night in any unit, also negative. NaN and infinity mean "not measured": they keep their
            place, and the first measured night of a new level is what is returned.
        min_effect: smallest relative step, 0.01 is one per cent; a step is left out where it is shown to be smaller.

    Returns:
        No index for fewer than 10 measured values or a constant series.

    Raises:
        ValueError: values that are not one row of numbers, or a `min_effect` that is negative or not finite.
    """
    series, places = _measured(values)
    return [int(places[at]) for at in _detect(series, _checked(min_effect))]


def extend(values: Series, known: Sequence[int], *, min_effect: float = 0.01) -> list[int]:
    """What `detect` would find, from what it found (`known`) before the newest nights were appended.

    Only the last 250 measured nights are cut anew, from the last known change point before them where it is near; the
    rest keeps its known cuts. An approximation: in `detect` a new night also changes noise estimate and ln n a little, by
    which a weak old step comes or goes. docs/statistics.md says how often the two differ; `detect` is the reference.

    Raises:
        ValueError: as `detect`, or `known` is not ascending within the series.
    """
    series, places = _measured(values)
    old = list(known)
    if old != sorted(set(old)) or (old and not 0 < old[0] <= old[-1] < len(values)):
        raise ValueError("known change points are ascending indices within the series, without 0")
    cuts = [int(np.searchsorted(places, index)) for index in old]
    start = _seam(series.size, cuts)
    kept = [cut for cut in cuts if 0 < cut <= start]
    return [int(places[at]) for at in _detect(series, _checked(min_effect), start, kept)]


def _detect(series: npt.NDArray[np.float64], min_effect: float, start: int = 0, kept: Sequence[int] = ()) -> list[int]:
    """Change points of measured values, of which those before `start` have the cuts `kept`."""
    if series.size < 2 * SHORTEST or np.ptp(series) == 0:
        return []
    clipped = clip_spikes(series)
    if np.ptp(clipped) == 0:
        return []
    fresh = optimal_partition(clipped[start:], cut_price(clipped), SHORTEST)
    return Steps(clipped, min_effect).keep_strong([*kept, *(start + at for at in fresh)], len(kept))


def _seam(count: int, cuts: Sequence[int]) -> int:
    """Where `extend` starts to cut anew: a known cut, if one is near, as a cut just behind the seam would not be found."""
    if count <= TAIL:
        return 0
    start = count - TAIL
    return max((cut for cut in cuts if start - 2 * EDGE <= cut <= start + EDGE), default=start)


def _measured(values: Series) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """The finite values, scaled to at most 1 so that no square overflows, and their places in the series."""
    series = np.asarray(values, dtype=np.float64)
    if series.ndim != 1:
        raise ValueError("a series is one row of numbers")
    places = np.flatnonzero(np.isfinite(series))
    found = series[places]
    largest = float(np.max(np.abs(found), initial=0.0))
    return (found / largest if largest > 0 else found), places


def _checked(min_effect: float) -> float:
    if not 0 <= min_effect < math.inf:
        raise ValueError("min_effect is a share, not negative")
    return min_effect
