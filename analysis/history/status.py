"""Changes of a cell's status over its history: no statistics, but a flaky cell has to say it twice."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

#: A cell that turned so many times within its last points is flaky, as in `analysis.compare.verdicts`.
TURNS, LOOK_BACK = 3, 30


@dataclass(frozen=True, slots=True)
class StatusChange:
    """Indices of the points: the last one before, the first after, and the last before it first went that way at all."""

    before: int
    at: int
    earliest_before: int
    broke: bool
    is_pending: bool


def status_changes(passed: npt.NDArray[np.float64]) -> list[StatusChange]:
    """Where a cell went from passing to failing or back, oldest first.

    `passed` is 1, 0, or NaN where nothing is known, as are points at which it both passed and failed; those only make it flaky.
    A single point that ends otherwise than both its neighbours is no change. The newest point alone is one where it fails
    after passing, unless the cell is flaky (3 turns in its last 30 points); everything else of one point is pending.
    """
    places = np.flatnonzero((passed == 0) | (passed == 1))
    told = passed[places]
    found = []
    stretches = _stretches(told)
    for (_, end, _), (start, stop, passes) in pairwise(stretches):
        alone = stop - start == 1
        is_flaky = _turns(passed[: places[start]]) >= TURNS
        before, at, earliest = int(places[start - 1]), int(places[start]), int(places[end - 1])
        found.append(StatusChange(before, at, earliest, not passes, alone and (bool(passes) or is_flaky)))
    return found


def _stretches(told: npt.NDArray[np.float64]) -> list[tuple[int, int, bool]]:
    """Stretches of one outcome (start, stop, passes) of two points at least.

    The newest may have one, and the first if it passes: what failed once before all else says nothing of what was usual.
    """
    raw, start = [], 0
    for passes, group in groupby(told.tolist()):
        stop = start + sum(1 for _ in group)
        raw.append((start, stop, bool(passes)))
        start = stop
    kept = [
        (start, stop, passes)
        for at, (start, stop, passes) in enumerate(raw)
        if stop - start > 1 or at == len(raw) - 1 or (at == 0 and passes)
    ]
    joined: list[tuple[int, int, bool]] = []
    for start, stop, passes in kept:
        if joined and joined[-1][2] == passes:
            joined[-1] = (joined[-1][0], stop, passes)
        else:
            joined.append((start, stop, passes))
    return joined


def _turns(passed: npt.NDArray[np.float64]) -> int:
    """How often the outcome changed over the last 30 known points; one that was both is two turns."""
    known = passed[np.isfinite(passed)][-LOOK_BACK:]
    mixed = (known > 0) & (known < 1)
    sure = known[~mixed]
    return int(np.sum(sure[1:] != sure[:-1]) + 2 * np.sum(mixed))
