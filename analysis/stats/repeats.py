"""Noise from run to run of the same code, for many cells at once: deviations of repeats, common drift, disturbed runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betaincinv, ndtri

from analysis.stats.arrays import Labels, Mask, Numbers
from analysis.stats.averages import NORMAL_CONSISTENCY

#: Robust standard deviations at which a step from one night to the next is cut off: steps are changes, not noise.
CLIP = 3.0
#: Steps that at least a fifth of the nights have are noise, however large.
USUAL = 0.8
#: Degrees of freedom that the square of a successive difference is worth: von Neumann, Kent, Bellinson and Hart, "The mean
#: square successive difference", Annals of Mathematical Statistics 12 (1941): its efficiency tends to 2/3.
EFFICIENCY = 2 / 3
#: Minimum number of cells for a common drift.
FEWEST = 20
#: The part of the cells of one group that may be apart from it.
MOST_APART = 0.2
#: The part of quiet comparisons that are recognised as quiet by their controls.
QUIET = 0.95


def around_means(values: Numbers, groups: Labels) -> Numbers:
    """Each value less the mean of its group."""
    deviations: Numbers = values - (np.bincount(groups, values) / np.maximum(np.bincount(groups), 1))[groups]
    return deviations


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

    `values` are in the order of the nights, one series after the other; `series` names the one of every value, 0 to count - 1.
    A step comes times sqrt(`EFFICIENCY` / 2), so that the sum of squares over `EFFICIENCY` times their number is a variance.

    Steps are cut off at the largest of: 3 x 1.4826 x the median size of their series; its 80th percentile, since what happens
    every fifth night is a second mode and no change of the code; 3 x `least`; the step that `beside` takes there, since a control
    that moved as far moved with the machine. So a few changes of the code make the noise look a little larger, never smaller.
    Entry i of `judged` says that the step from value i to the next one has no say in where its series is cut off.
    """
    same = series[1:] == series[:-1]
    steps, owners = np.diff(values)[same], series[1:][same]
    others = np.ones(len(steps), dtype=bool) if judged is None else ~judged[same]
    median, usual = _ranked(np.abs(steps[others]), owners[others], count, (0.5, USUAL))
    limit = np.maximum(CLIP * np.maximum(NORMAL_CONSISTENCY * median, least), usual)[owners]
    if beside is not None:
        limit = np.maximum(limit, np.abs(np.diff(beside)[same]))
    clipped: Numbers = np.sqrt(EFFICIENCY / 2) * np.clip(steps, -limit, limit)
    return clipped


def common_drift(differences: Sequence[float] | Numbers) -> float:
    """What all cells of one comparison have in common: the median of their differences (of ln values), NaN left out.

    Meant for eager runs, which do not depend on the commit: a slower machine moves all of them alike.
    0 for fewer than 20 cells (`FEWEST`), whose median could be one cell's own change.
    """
    known = np.asarray(differences, dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if known.size >= FEWEST else 0.0


def is_one_group(distances: Numbers, errors: Numbers) -> bool:
    """Whether cells moved as one: at most one in five is further from the common move than three of its standard errors.

    `distances` are from the common move. A normal distribution has 0.3 % there, and Student's t with two degrees of freedom,
    whose scale is its error, 10 %.
    """
    known = np.isfinite(distances) & np.isfinite(errors)
    return bool(np.sum(np.abs(distances[known]) > CLIP * errors[known]) <= MOST_APART * known.sum())


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
    factor: Numbers = np.maximum(np.maximum(own, shared), 1.0) ** 2
    return factor


def _size_at(part: float) -> float:
    """The size below which that part of standard normal values lie."""
    return float(ndtri((1 + part) / 2))


def sums(values: Numbers, owners: Labels, count: int) -> Numbers:
    """The values of each of the owners 0 to count - 1, added up."""
    return np.bincount(owners, values, count).astype(np.float64)


def _ranked(values: Numbers, owners: Labels, count: int, parts: Sequence[float]) -> list[Numbers]:
    """For each part: each owner's value below or at which that part of its others lie; 0 for an owner without any.

    The values of one owner stand one after the other.
    """
    size, index = np.bincount(owners, minlength=count), np.arange(len(owners))
    first = np.maximum.accumulate(np.where(np.diff(owners, prepend=-1) != 0, index, 0))
    ordered = np.full((count, max(size.max(initial=0), 1)), np.inf)
    ordered[owners, index - first] = values
    ordered.sort(axis=1)
    last, each = np.maximum(size - 1, 0), np.arange(count)
    return [np.where(size > 0, ordered[each, np.floor(part * last).astype(np.int64)], 0.0) for part in parts]
