"""How much cells differ from run to run of the same code: sums of squares over many cells at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]

#: Robust standard deviations at which a step from one night to the next is cut off: steps are changes, not noise.
CLIP = 3.0
#: What at least a fifth of the nights bring is noise, however large.
USUAL = 0.8
#: Degrees of freedom that the square of a successive difference is worth: von Neumann, Kent, Bellinson and Hart, "The mean
#: square successive difference", Annals of Mathematical Statistics 12 (1941): its efficiency tends to 2/3.
EFFICIENCY = 2 / 3
#: 1 / Phi^-1(3/4): makes the median absolute size of normal values estimate their standard deviation.
_NORMAL = 1.4826
#: A table of values may have so many places for each of them.
_SPARSE = 4


def within(values: Numbers, groups: Labels, owners: Labels, count: int) -> tuple[Numbers, Numbers]:
    """Squares of values around the mean of their group, summed by owner, and the degrees of freedom of each sum.

    A group holds what was measured of the same code and belongs to one owner; entry i of `values`, `groups` and `owners` is one
    run. Both results have `count` entries, for the owners 0 to count - 1. Sum over degrees of freedom is a variance.
    """
    size = np.bincount(groups)
    mean = np.bincount(groups, values) / np.maximum(size, 1)
    squares = _sums((values - mean[groups]) ** 2, owners, count)
    # Each value brings a degree of freedom and each group takes one away.
    return squares, _sums(1 - 1 / size[groups], owners, count).round()


def successive(values: Numbers, series: Labels, count: int, *, least: float = 0.0) -> tuple[Numbers, Numbers]:
    """Half the squared differences of neighbouring nights, summed by series, and the degrees of freedom of each sum.

    `values` are in the order of the nights within each of the series 0 to count - 1, of which `series` names the one of every
    value, one series after the other. A level that changes adds one difference and not a slope; differences are cut off at
    the largest of: 3 x 1.4826 x the median size of their series; its 80th percentile, since what happens every fifth night is
    no change of the code but a second mode; 3 x `least`. So a few changes make the noise look a little larger, never smaller.
    Sum over degrees of freedom is a variance.
    """
    same = series[1:] == series[:-1]
    steps, owners = np.abs(np.diff(values))[same], series[1:][same]
    median, usual = _ranked(steps, owners, count, (0.5, USUAL))
    limit = np.maximum(CLIP * np.maximum(_NORMAL * median, least), usual)
    squares = _sums(np.minimum(steps, limit[owners]) ** 2 / 2, owners, count)
    return EFFICIENCY * squares, EFFICIENCY * _sums(np.ones(owners.size), owners, count)


def common_drift(differences: Sequence[float] | Numbers, *, fewest: int = 20) -> float:
    """What all cells of one comparison have in common: the median of their differences (of ln values), NaN left out.

    Meant for what cannot know the commit (the eager runs): a machine that was slower moves all of them alike.
    0 for fewer than `fewest` cells, of which a median would be a cell's own change.
    """
    found = np.asarray(differences, dtype=np.float64)
    found = found[np.isfinite(found)]
    return float(np.median(found)) if found.size >= fewest else 0.0


def _sums(values: Numbers, owners: Labels, count: int) -> Numbers:
    return np.bincount(owners, values, count).astype(np.float64)


def _ranked(values: Numbers, owners: Labels, count: int, parts: Sequence[float]) -> list[Numbers]:
    """For each part: each owner's value below or at which that part of its others lie; 0 for an owner without any."""
    size = np.bincount(owners, minlength=count)
    start = np.cumsum(size) - size
    found = [np.zeros(count) for _ in parts]
    has = np.flatnonzero(size)
    ordered = _sorted(values, owners, size, start)
    for part, of_part in zip(parts, found, strict=True):
        of_part[has] = ordered(has, np.floor(part * (size[has] - 1)).astype(np.int64))
    return found


def _sorted(
    values: Numbers, owners: Labels, size: Labels, start: Labels
) -> Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], Numbers]:
    """Each owner's values in order, as a function of owners and places. As rows of a table where they are about equally many."""
    width = int(size.max(initial=0))
    if width * size.size > _SPARSE * values.size or np.any(owners[1:] < owners[:-1]):
        ordered = values[np.lexsort((values, owners))]
        return lambda owner, place: ordered[start[owner] + place]
    table = np.full((size.size, width), np.nan)
    table[owners, np.arange(values.size) - start[owners]] = values
    table.sort(axis=1)
    return lambda owner, place: table[owner, place]
