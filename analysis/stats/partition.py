"""A series cut into constant pieces: least squares with a price for every cut, solved exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.stats.spread import robust_sigma

#: Price of a cut in units of 2 sigma^2 ln n, where 1 is Schwarz's (BIC). The noise depends on itself from night to
#: night, which makes 1 cut too often; what is cut too often here is joined again by `steps`.
STRENGTH = 2.0
#: Share of the total sum of squares that a cut must save at least: keeps rounding errors of noiseless series uncut.
_ROUNDING = 1e-9


def difference_sigma(values: npt.NDArray[np.float64]) -> float:
    """Standard deviation of the noise, 1.4826 x MAD of the successive differences / sqrt(2), in the unit of the values.

    Differences know nothing of the level, so that steps do not count as noise (von Neumann, "Distribution of the ratio
    of the mean square successive difference to the variance", 1941; MAD for robustness). Equal neighbours are left
    out unless all are: in quantised series they would make it zero.
    """
    differences = np.diff(values)
    moved = differences[differences != 0]
    return robust_sigma(moved.tolist()) / float(np.sqrt(2)) if moved.size else 0.0


def cut_price(values: npt.NDArray[np.float64]) -> float:
    """What a cut of a series of n values costs, 2 x 2 sigma^2 ln n, in the squared unit of the values."""
    floor = _ROUNDING * float(np.sum((values - np.mean(values)) ** 2))
    return max(STRENGTH * 2 * difference_sigma(values) ** 2 * float(np.log(values.size)), floor)


def optimal_partition(values: npt.NDArray[np.float64], price: float, shortest: int) -> list[int]:
    """First indices of the pieces but the first, that minimise sum of squares within pieces + price x cuts.

    F(t) = min over s <= t - shortest of F(s) + C(s, t) + price, C(s, t) = sum y^2 - (sum y)^2 / (t - s) over s..t-1
    (Jackson et al., "An algorithm for optimal partitioning of data on an interval", IEEE SPL 12(2), 2005). Exact,
    O(n^2) with one vector operation a point; of equally good cuts the first is taken.
    """
    count = values.size
    if count < 2 * shortest:
        return []
    centred = values - np.mean(values)
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    per_length = 1.0 / np.arange(count, 0, -1)  # of the last k entries the first is 1/k and the last is 1
    best = np.full(count + 1, np.inf)  # F(s) less the squares before s
    best[0] = -price
    came_from = np.zeros(count + 1, dtype=np.intp)
    costs = np.empty(count + 1)  # one buffer: most of the time would go into new arrays
    for end in range(shortest, count + 1):
        starts = end - shortest + 1
        cost = costs[:starts]
        np.subtract(sums[:starts], sums[end], out=cost)
        np.multiply(cost, cost, out=cost)
        np.multiply(cost, per_length[count - end : count - end + starts], out=cost)
        np.subtract(best[:starts], cost, out=cost)
        came_from[end] = at = int(cost.argmin())
        best[end] = cost[at] + price
    return _walk_back(came_from)


def _walk_back(came_from: npt.NDArray[np.intp]) -> list[int]:
    found: list[int] = []
    at = int(came_from[-1])
    while at > 0:
        found.append(at)
        at = int(came_from[at])
    return found[::-1]
