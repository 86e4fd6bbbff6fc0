"""Whether a cut is a step: certain, steep enough to be seen, and large enough to matter."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from analysis.stats.pieces import Piece, contrast, piece_of, welch_error

#: Points on each side in which a step must stand out: what an eye takes in around an edge, and 10 to 30 do as well.
EDGE = 20
#: Smallest edge contrast: levels of the nearest points apart by so many pooled standard deviations of these points.
CONTRAST = 1.4
#: Wrong cuts expected in a series of independent normal noise at most; shared out over its points (Bonferroni).
FALSE_CUTS = 0.05


class Steps:
    """The cuts of one series and how strong each is: below 1 it is no step.

    A cut is a step if all three ratios reach 1; the smallest is its strength.

    - certain: ln p / ln(0.05 / n), p of Welch's t over the whole pieces on both sides, widened for correlated nights;
    - seen: contrast / 1.4 of the nearest 20 points on each side, |mean - mean| / sqrt((var + var) / 2), 0 if they go
      the other way than the pieces. A slow drift, which two long pieces approximate with certainty, has no edge;
    - matters: relative size / min_effect. The size is the larger one of the medians' distance at the edge and of that
      between the pieces plus its confidence limit at the level of the test, over the smaller level: a step is
      dropped for its size only where the data show that it is smaller.
    """

    def __init__(self, values: npt.NDArray[np.float64], min_effect: float) -> None:
        self._values = values
        self._level = FALSE_CUTS / values.size
        self._min_effect = min_effect
        self._pieces: dict[tuple[int, int], Piece] = {}

    def keep_strong(self, cuts: list[int], established: int = 0) -> list[int]:
        """The cuts left after removing the weakest, and judging its neighbours anew, until all have strength 1.

        The first `established` cuts stay whatever their strength.
        """
        bounds = [0, *cuts, self._values.size]
        strengths = [float("inf")] * established
        strengths += [self.strength(*bounds[at : at + 3]) for at in range(established, len(cuts))]
        while strengths and min(strengths) < 1:
            weakest = strengths.index(min(strengths))
            del bounds[weakest + 1], strengths[weakest]
            for at in range(max(weakest - 1, established), min(weakest + 1, len(strengths))):
                strengths[at] = self.strength(*bounds[at : at + 3])
        return bounds[1:-1]

    def strength(self, start: int, cut: int, end: int) -> float:
        """The smallest of the three ratios for the cut between start..cut-1 and cut..end-1."""
        old, new = self._piece(start, cut), self._piece(cut, end)
        if old.mean == new.mean:
            return 0.0
        near_old, near_new = self._piece(max(start, cut - EDGE), cut), self._piece(cut, min(end, cut + EDGE))
        same_way = (near_new.mean - near_old.mean) * (new.mean - old.mean) > 0
        seen = contrast(near_old, near_new) / CONTRAST if same_way else 0.0
        edge = abs(near_new.median - near_old.median) if same_way else 0.0
        error, freedom = welch_error(old, new)
        certain = _log_p(abs(new.mean - old.mean), error, freedom) / float(np.log(self._level))
        return min(certain, seen, self._matters(old, new, error, freedom, edge))

    def _matters(self, old: Piece, new: Piece, error: float, freedom: float, edge: float) -> float:
        level = min(abs(old.median), abs(new.median))
        if self._min_effect == 0 or level == 0:
            return float("inf")
        limit = -float(stdtrit(freedom, self._level / 2)) * error
        size = max(abs(new.median - old.median) + limit, edge)
        return size / level / self._min_effect

    def _piece(self, start: int, end: int) -> Piece:
        known = self._pieces.get((start, end))
        if known is None:
            known = self._pieces[start, end] = piece_of(self._values[start:end])
        return known


def _log_p(distance: float, error: float, freedom: float) -> float:
    """Natural logarithm of the two-sided p of Student's t; -690 at least, which is ln of the smallest p told apart."""
    p = 2 * float(stdtr(freedom, -distance / error)) if error else 0.0
    return float(np.log(max(p, 1e-300)))
