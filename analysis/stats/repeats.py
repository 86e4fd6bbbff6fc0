"""How much cells differ from run to run of the same code: sums of squares over many cells at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri

Numbers = npt.NDArray[np.float64]
Labels = npt.NDArray[np.integer[Any]]
Mask = npt.NDArray[np.bool_]

#: Robust standard deviations at which a step from one night to the next is cut off: steps are changes, not noise.
CLIP = 3.0
#: What at least a fifth of the nights bring is noise, however large.
USUAL = 0.8
#: Degrees of freedom that the square of a successive difference is worth: von Neumann, Kent, Bellinson and Hart, "The mean
#: square successive difference", Annals of Mathematical Statistics 12 (1941): its efficiency tends to 2/3.
EFFICIENCY = 2 / 3
#: The part of quiet comparisons that are taken for quiet by what their controls do.
QUIET = 0.95
#: 1 / Phi^-1(3/4): makes the median absolute size of normal values estimate their standard deviation.
_NORMAL = 1.4826
#: A table of values may have so many places for each of them.
_SPARSE = 4


def within(values: Numbers, groups: Labels, owners: Labels, count: int) -> tuple[Numbers, Numbers]:
    """Squares of values around the mean of their group, summed by owner, and the degrees of freedom of each sum.

    A group holds what was measured of the same code and belongs to one owner; entry i of `values`, `groups` and `owners` is one
    run. Both results have `count` entries, for the owners 0 to count - 1. Sum over degrees of freedom is a variance.
    """
    squares = sums(around_means(values, groups) ** 2, owners, count)
    # Each value brings a degree of freedom and each group takes one away.
    return squares, sums(1 - 1 / np.bincount(groups)[groups], owners, count).round()


def around_means(values: Numbers, groups: Labels) -> Numbers:
    """Each value less the mean of its group."""
    found: Numbers = values - (np.bincount(groups, values) / np.maximum(np.bincount(groups), 1))[groups]
    return found


def successive(
    values: Numbers,
    series: Labels,
    count: int,
    *,
    least: float = 0.0,
    beside: Numbers | None = None,
    judged: Mask | None = None,
) -> Numbers:
    """The steps between neighbouring nights of each series, whose squares tell the noise.

    `values` are in the order of the nights within each of the series 0 to count - 1, of which `series` names the one of every
    value, one series after the other. A step comes times sqrt(`EFFICIENCY` / 2), so that the sum of squares over
    `EFFICIENCY` times their number is a variance.

    A level that changes adds one step and not a slope; steps are cut off at the largest of: 3 x 1.4826 x the median size of
    their series; its 80th percentile, since what happens every fifth night is no change of the code but a second mode;
    3 x `least`; the step that `beside` takes there: where the control moved as far, the machine did, and not the code. So a
    few changes of the code make the noise look a little larger, never smaller.

    Entry i of `judged` says that the step from value i to the next one is what will be judged: it has no say in where its
    series is cut off, and is cut off as the others are. None: no step is.
    """
    same = series[1:] == series[:-1]
    steps, owners = np.diff(values)[same], series[1:][same]
    others = np.ones(len(steps), dtype=bool) if judged is None else ~judged[same]
    median, usual = _ranked(np.abs(steps[others]), owners[others], count, (0.5, USUAL))
    limit = np.maximum(CLIP * np.maximum(_NORMAL * median, least), usual)[owners]
    if beside is not None:
        limit = np.maximum(limit, np.abs(np.diff(beside)[same]))
    found: Numbers = np.sqrt(EFFICIENCY / 2) * np.clip(steps, -limit, limit)
    return found


def common_drift(differences: Sequence[float] | Numbers, *, fewest: int = 20) -> float:
    """What all cells of one comparison have in common: the median of their differences (of ln values), NaN left out.

    Meant for what cannot know the commit (the eager runs): a machine that was slower moves all of them alike.
    0 for fewer than `fewest` cells, of which a median would be a cell's own change.
    """
    found = np.asarray(differences, dtype=np.float64)
    found = found[np.isfinite(found)]
    return float(np.median(found)) if found.size >= fewest else 0.0


def unrest(scores: Numbers) -> Numbers:
    """How many times its usual variance a cell has in this comparison, by its control; 1 where that is as quiet as ever.

    `scores` are the controls' moves in standard errors of their own noise, NaN where there is none. A cell's own counts where
    it is beyond 1.96, and what all have in common where the median size is beyond what it is in 95 % of quiet comparisons:
    the middle one of n independent sizes is distributed as Beta(k, n + 1 - k), k = (n + 1) / 2, in terms of
    their probability (David and Nagaraja, "Order Statistics", 2003, section 2.1).
    """
    known = np.abs(scores[np.isfinite(scores)])
    if not known.size:
        return np.ones(scores.shape)
    k = (known.size + 1) / 2
    shared = np.median(known) / _size_at(float(betaincinv(k, k, QUIET)))
    own = np.nan_to_num(np.abs(scores)) / _size_at(QUIET)
    found: Numbers = np.maximum(np.maximum(own, shared), 1.0) ** 2
    return found


def _size_at(part: float) -> float:
    """The size below which that part of standard normal values lie."""
    return float(ndtri((1 + part) / 2))


def sums(values: Numbers, owners: Labels, count: int) -> Numbers:
    """The values of each of the owners 0 to count - 1, added up."""
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
