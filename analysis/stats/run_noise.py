"""Noise from run to run of the same code: slopes on a covariate, priors from other cells, second modes and heavy tails.

A launch-bound program waits for the host, and so does the eager run beside it in the same process: a slow host slows down both.
y = a + b x + e within repeats of one code, and y - b x is far steadier than y (Cochran, "Analysis of covariance: its nature and
uses", Biometrics 13 (1957)).

Model (Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray experiments",
Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3, sections 3 and 6.2): each cell has a variance
of its own, 1 / variance ~ chi²(d0) / (d0 s0²), and v degrees of freedom of a cell's own runs give s² ~ variance chi²(v) / v.

A process may choose other kernels, or other memory, and be 4 % slower than the processes before and after it. The next process
is not. So a value that differs in one run is no change while runs of these cells have differed by as much before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import betaincinv, comb, gammaln, ndtri, softmax, stdtrit

from analysis.stats.averages import NORMAL_CONSISTENCY, Labels, Mask, Numbers

#: Slope that is assumed before anything was measured: programs that wait for the host have about 1, replayed graphs and
#: programs that wait for the device nearly 0.
USUAL = 0.5
#: Weight of this assumption, as a sum of squares: x moved by 3 % once. The assumed slope has a standard deviation of 0.5 where
#: s is 1.5 %.
WORTH = 0.03**2


@dataclass(frozen=True, slots=True)
class Slopes:
    """Slopes b of y on x, one entry per owner.

    The variance of a slope is the residual variance over `spread`. `taken` is the degrees of freedom that the slope used up
    (0 to 1), `left` the sum of squares of y that x does not explain.
    """

    slope: Numbers
    spread: Numbers
    taken: Numbers
    left: Numbers


def fit_slopes(xx: Numbers, xy: Numbers, yy: Numbers) -> Slopes:
    """Fit slopes to the sums of squares and products around the means of repeats of one code, one entry per owner.

    b = (Sxy + w b0) / (Sxx + w) with b0 = `USUAL` and w = `WORTH`: the mean of the slope after the data when it was normal
    with mean b0 and variance s² / w before (Lindley and Smith, JRSS B 34 (1972)); its variance is s² / (Sxx + w). It takes
    Sxx / (Sxx + w) degrees of freedom. So where x hardly moved among the repeats, b stays near b0 and its variance is large.
    b stays within 0 and 1: a slow host slows down the compiled program by no more than the eager one. Without the limit
    a model that took 36 ms and then 40 ms, whose eager run rose by 11 %, was judged 4.6 % faster.
    """
    spread = xx + WORTH
    slope = np.clip((xy + WORTH * USUAL) / spread, 0, 1)
    # Rounding can make a sum of 0 slightly negative.
    left = np.maximum(yy - 2 * slope * xy + slope**2 * xx, 0)
    return Slopes(slope, spread, xx / spread, left)


#: Fewest cells with a variance of their own for a prior: the scatter of fewer variances means nothing.
FEWEST_REPEATED = 5
#: The noise of siblings counts as at most this many runs of the cell itself. Some cells have two states that siblings do not
#: have: the peak memory of speech_transformer is one of two values 2.7 % apart.
MOST_FROM_SIBLINGS = 10.0
#: Degrees of freedom that are tried for a prior.
_TRIED_DFS: Numbers = np.geomspace(0.5, MOST_FROM_SIBLINGS, 18)
#: What is assumed of these degrees of freedom before anything was measured: the mean and the standard deviation of their
#: logarithm. The device times in `data/` have 0.9 to 2.8 (`python -m benchmarks borrowed_noise`).
_USUAL_DF, _DF_SCATTER = 2.0, 0.7
#: How far the noise of a machine's cells may be from what is assumed of it: the standard deviation of ln variance. The machine's
#: own repeats outweigh it soon: it counts as much as three cells measured twice.
_ASSUMED_SCATTER = 1.0
#: Halvings of the range of ln variance; the result is exact to a millionth of the range.
_STEPS = 20


@dataclass(frozen=True, slots=True)
class Prior:
    """Typical variance of the cells, and the degrees of freedom that it counts as: ten if all cells are alike."""

    variance: float
    df: float


def fit_prior(
    variances: Sequence[float] | Numbers, dfs: Sequence[float] | Numbers, assumed: float | None = None
) -> Prior | None:
    """Return the prior that fits the cells' own variances (of ln values) and their degrees of freedom.

    A cell's s² / s0² has an F distribution with v and d0 degrees of freedom. For each d0 that is tried, s0² is where the
    likelihood of all cells is largest (Wright and Simon, "A random variance model for detection of differential gene expression
    in small microarray experiments", Bioinformatics 19, 2003). The result is the mean of ln d0 and of ln s0² over all d0,
    weighted by the likelihood and by what is assumed of d0. Smyth's method of moments takes d0 from the variance of ln s². With
    one or two degrees of freedom a cell this is so large by chance that a cell that is 50 times as noisy as the others goes
    unseen in it: all cells counted as alike, with a variance that was that one cell's.

    `assumed` is the standard deviation of ln that is assumed of the cells before anything was measured twice, if one is known:
    each s0² is weighted by how far it is from that, and without variances it is the result. Variances that are not positive and
    finite, or have no degree of freedom, are left out. None for fewer than 5 usable cells if nothing is assumed.
    """
    own, freedom = np.asarray(variances, dtype=np.float64), np.asarray(dfs, dtype=np.float64)
    usable = np.isfinite(own) & (own > 0) & np.isfinite(freedom) & (freedom > 0)
    if usable.sum() < FEWEST_REPEATED and assumed is None:
        return None
    own, freedom, tried = own[usable], freedom[usable], _TRIED_DFS[:, None]
    ends = own if assumed is None else np.append(own, assumed**2)
    low, high = (np.full(len(tried), np.log(end)) for end in (ends.min(), ends.max()))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        # Twice the derivative of the logarithm of the weighted likelihood, which falls as s0² rises.
        parts = (freedom + tried) * freedom * own / (tried * np.exp(middle)[:, None] + freedom * own)
        rises = parts.sum(axis=1) - freedom.sum() - 2 * _off(middle, assumed) / _ASSUMED_SCATTER > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    ratio = np.log(freedom * own / tried) - middle[:, None]
    total = (freedom + tried) / 2
    by_cell = gammaln(total) - gammaln(tried / 2) + freedom / 2 * ratio - total * np.logaddexp(0, ratio)
    of_df = np.log(_TRIED_DFS / _USUAL_DF) / _DF_SCATTER
    weights = softmax(by_cell.sum(axis=1) - (of_df**2 + _off(middle, assumed) ** 2) / 2)
    return Prior(float(np.exp(weights @ middle)), float(np.exp(weights @ np.log(_TRIED_DFS))))


def _off(log_variance: Numbers, assumed: float | None) -> Numbers:
    """Return how far the logarithms of variances are from the assumed one, in standard deviations; 0 if none is assumed."""
    if assumed is None:
        return np.zeros(len(log_variance))
    distance: Numbers = (log_variance - 2 * np.log(assumed)) / _ASSUMED_SCATTER
    return distance


def moderate(
    variances: Sequence[float] | Numbers, dfs: Sequence[float] | Numbers, prior: Prior | None
) -> tuple[Numbers, Numbers]:
    """Return each cell's variance moderated by the prior, (d0 s0² + v s²) / (d0 + v), and its degrees of freedom d0 + v.

    A cell without a variance of its own (NaN, or no degree of freedom) takes the prior's, or NaN and 0 if there is no prior.
    Other cells keep their own variance if there is no prior.
    """
    own, freedom = np.asarray(variances, dtype=np.float64), np.asarray(dfs, dtype=np.float64)
    known = np.isfinite(own) & (own >= 0) & (freedom > 0)
    weight = np.where(known, freedom, 0.0)
    value = np.where(known, own, 0.0)
    if prior is None:
        return np.where(known, value, np.nan), weight
    total = prior.df + weight
    return (prior.df * prior.variance + weight * value) / total, total


#: Robust standard deviations at which a step from one night to the next is clipped: larger steps are changes, not noise.
CLIP = 3.0
#: Steps as large as those of at least a fifth of the nights are noise, however large they are.
USUAL_QUANTILE = 0.8
#: Degrees of freedom that the square of a successive difference is worth: von Neumann, Kent, Bellinson and Hart, "The mean
#: square successive difference", Annals of Mathematical Statistics 12 (1941): its efficiency tends to 2/3.
EFFICIENCY = 2 / 3
#: Minimum number of cells for a common drift.
FEWEST_FOR_DRIFT = 20
#: Largest share of the cells of one group that may move apart from it.
MOST_APART = 0.2
#: Share of quiet comparisons that are recognised as quiet by their controls.
QUIET = 0.95


def around_means(values: Numbers, groups: Labels) -> Numbers:
    """Return each value minus the mean of its group."""
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
    """Return the clipped steps between neighbouring nights of each series. The noise is estimated from their squares.

    `values` are in the order of the nights, one series after the other; `series` has the number of each value's series, 0 to
    count - 1. Each step is multiplied by sqrt(`EFFICIENCY` / 2), so that the sum of squares over `EFFICIENCY` times their number
    is a variance.

    Steps are clipped at the largest of: 3 x 1.4826 x the median size of the series' steps; their 80th percentile, since a step
    that happens every fifth night is a second mode and no change of the code; 3 x `least`; the step of `beside` between the same
    nights, since a control that moved as far moved with the machine. So a few changes of the code make the noise look a little
    larger, never smaller. If entry i of `judged` is True, the step from value i to the next one is left out of the median and
    the percentile.
    """
    same = series[1:] == series[:-1]
    steps, owners = np.diff(values)[same], series[1:][same]
    others = np.ones(len(steps), dtype=bool) if judged is None else ~judged[same]
    median, usual = _ranked(np.abs(steps[others]), owners[others], count, (0.5, USUAL_QUANTILE))
    limit = np.maximum(CLIP * np.maximum(NORMAL_CONSISTENCY * median, least), usual)[owners]
    if beside is not None:
        limit = np.maximum(limit, np.abs(np.diff(beside)[same]))
    clipped: Numbers = np.sqrt(EFFICIENCY / 2) * np.clip(steps, -limit, limit)
    return clipped


def common_drift(differences: Sequence[float] | Numbers) -> float:
    """Return the common drift of all cells of one comparison: the median of their differences (of ln values), NaN left out.

    Meant for eager runs, which do not depend on the commit: a slower machine moves all of them alike.
    0 for fewer than 20 cells (`FEWEST_FOR_DRIFT`), as their median could be one cell's own change.
    """
    known = np.asarray(differences, dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if known.size >= FEWEST_FOR_DRIFT else 0.0


def is_one_group(distances: Numbers, errors: Numbers) -> bool:
    """Return whether cells moved as one: at most one in five is further from the common move than three of its standard errors.

    `distances` are from the common move. A normal distribution has 0.3 % beyond three standard errors, and Student's t with two
    degrees of freedom, scaled by its error, 10 %.
    """
    known = np.isfinite(distances) & np.isfinite(errors)
    return bool(np.sum(np.abs(distances[known]) > CLIP * errors[known]) <= MOST_APART * known.sum())


def disturbance(scores: Numbers) -> Numbers:
    """Return the factor of each cell's usual variance in this comparison, by its control; 1 where the control is quiet.

    `scores` are the controls' moves in standard errors of their own noise, NaN where there is no control. The factor is the
    square of the largest of: 1; the size of the cell's own score over 1.96; the median size of all scores over the limit that
    it stays below in 95 % of quiet comparisons. The median of n independent sizes is distributed as Beta(k, n + 1 - k),
    k = (n + 1) / 2, in terms of their probability (David and Nagaraja, "Order Statistics", 2003, section 2.1).
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
    """Return the absolute size below which the share `part` of standard normal values lies."""
    return float(ndtri((1 + part) / 2))


def sums(values: Numbers, owners: Labels, count: int) -> Numbers:
    """Return the sum of the values of each owner from 0 to count - 1."""
    return np.bincount(owners, values, count).astype(np.float64)


def _ranked(values: Numbers, owners: Labels, count: int, parts: Sequence[float]) -> list[Numbers]:
    """Return for each part the quantile of each owner's values, rounded down to one of the values; 0 for an owner without any.

    The values of one owner stand one after the other.
    """
    ordered, size = _ordered(values, owners, count)
    last, each = np.maximum(size - 1, 0), np.arange(count)
    return [np.where(size > 0, ordered[each, np.floor(part * last).astype(np.int64)], 0.0) for part in parts]


def _ordered(values: Numbers, owners: Labels, count: int) -> tuple[Numbers, Labels]:
    """Return a row for each owner with its values in ascending order, filled up with infinity, and the number of its values.

    The values of one owner stand one after the other. Sorting short rows takes a fraction of the time of sorting all values
    by two keys.
    """
    size, index = np.bincount(owners, minlength=count), np.arange(len(owners))
    first = np.maximum.accumulate(np.where(np.diff(owners, prepend=-1) != 0, index, 0))
    ordered = np.full((count, max(size.max(initial=0), 1)), np.inf)
    ordered[owners, index - first] = values
    ordered.sort(axis=1)
    return ordered, size


#: Number of runs, a run and its neighbours, whose median is the level there. After a step no run is apart from it.
WINDOW = 5
#: A run is apart by about as much as a change if its distance from the level is this many times the change, at least and at most.
LEAST, MOST = 0.75, 2.0
#: Runs before the earlier side that are looked at, and the fewest that are needed. If the earlier side is apart from their median
#: by less than this part of a change, it is not the side that is apart. If 15 % of runs are in a second mode, at least half of
#: nine runs are in it in 0.6 % of cases.
_BEFORE, _FEWEST_BEFORE, _AMONG = 9, 5, 0.5
#: Most runs of a side that are looked at: with more, a few that are apart move the mean by too little to matter.
_MOST_RUNS = 10.0
#: Efficiency of a median distance as an estimate of noise (Rousseeuw and Croux, Journal of the American Statistical
#: Association 88, 1993), its efficiency if distances are from a median of five runs that includes the run itself (4,000
#: simulated series of 14 to 30 runs), and the smallest noise.
MEDIAN_EFFICIENCY, _OWN_EFFICIENCY, _FLOOR = 0.37, 0.2, 0.001
#: Series are about equally noisy if their usual distances are within this factor.
_ABOUT = 2.0
#: Two modes: fewest values of each, the smallest gap between them (relative, and over the scatter around them), and the fewest
#: changes from one to the other.
_FEWEST_OF_MODE, _LEAST_GAP, _GAP, _TURNS = 2, 0.01, 5.0, 3
#: Fewest standard errors that a change counts as, even if single runs are sure to make it.
_LEAST_SCORE = 0.5


@dataclass(frozen=True, slots=True)
class SideRuns:
    """Number of runs of one side for each cell, and whether each of these runs shows at least half of the change."""

    count: Numbers
    agree: Mask


@dataclass(frozen=True, slots=True)
class Tail:
    """Distances of all runs from their neighbours in time.

    `distances` are sorted, each over the usual distance of its series. `scale` (ln) has the usual distance of each series.
    `near` has for each `_noisiness` the distances themselves (ln), sorted, of series that are about as noisy. `apart` is the
    distance (ln) of the earlier side from the runs before it, NaN where it is not known.
    """

    distances: Numbers
    near: Mapping[int, Numbers]
    scale: Numbers
    apart: Numbers

    def chance(self, change: Numbers, earlier: SideRuns, later: SideRuns) -> Numbers:
        """Return how likely single runs alone make `change` (ln) from an earlier to a later side; 0 where none was as far apart.

        If k of n runs were as far apart, all R runs of a side are so with a chance of (k / n)^R. k / n is taken over all runs,
        each over the usual distance of its series, and over the runs of series about as noisy. The larger k / n counts, since a
        usual distance from few runs is a rough one. Where not all R runs show the change, m of them make it if each is apart by
        R / m of it: binomial(R, m) (k / n)^m, summed over m. The earlier side is left out where the runs before it show that it
        is not the side that is apart: its distance from them, away from the later side, is less than half of the change.
        """
        size = np.abs(change)
        with np.errstate(invalid="ignore"):
            is_among = -np.sign(change) * self.apart < _AMONG * size
        of_earlier, of_later = (self._chance_of_side(size, side) for side in (earlier, later))
        return np.minimum(np.where(is_among, 0.0, of_earlier) + of_later, 1.0)

    def _chance_of_side(self, size: Numbers, side: SideRuns) -> Numbers:
        """Return how likely some of a side's runs move its mean by `size` (ln)."""
        count = np.clip(np.nan_to_num(side.count, nan=1.0), 1.0, _MOST_RUNS)
        chance = np.zeros(len(size))
        for apart in range(1, int(count.max(initial=0)) + 1):
            share = self._share(size * count / apart)
            possible = (apart == count) | ((apart < count) & ~side.agree)
            chance += np.where(possible, comb(count, apart) * share**apart, 0.0)
        return chance

    def _share(self, needed: Numbers) -> Numbers:
        """Return the share of runs that were apart by about as much as `needed` (ln)."""
        known = np.isfinite(needed) & np.isfinite(self.scale)
        share = np.zeros(len(needed))
        share[known] = _part_of(self.distances, needed[known] / self.scale[known])
        kind = _noisiness(self.scale)
        for one, distances in self.near.items():
            alike = known & (kind == one)
            share[alike] = np.maximum(share[alike], _part_of(distances, needed[alike]))
        return share


def _part_of(distances: Numbers, needed: Numbers) -> Numbers:
    least, most = (np.searchsorted(distances, part * needed) for part in (LEAST, MOST))
    part: Numbers = (most - least) / max(len(distances), 1)
    return part


def _noisiness(scale: Numbers) -> Numbers:
    """Return the class of each usual distance, a whole number of half octaves (2 log2, rounded)."""
    return np.round(2 * np.log2(scale))


def distances_from_neighbours(values: Numbers, series: Labels) -> tuple[Numbers, Mask]:
    """Return the distance of each value from the median of the five around it, and whether its series has five values.

    `values` are in the order of time, one series after the other. Near an end of a series the five next to the end count. The
    distance is 0 in a series of fewer values.
    """
    if len(values) < WINDOW:
        return np.zeros(len(values)), np.zeros(len(values), dtype=bool)
    medians = np.median(sliding_window_view(values, WINDOW), axis=1)
    index = np.arange(len(values))
    starts = np.maximum.accumulate(np.where(np.diff(series, prepend=-1) != 0, index, 0))
    sizes = np.bincount(series)[series]
    first = np.clip(index - WINDOW // 2, starts, np.maximum(starts + sizes - WINDOW, starts))
    known = sizes >= WINDOW
    return np.where(known, values - medians[np.minimum(first, len(medians) - 1)], 0.0), known


def distances_from_before(values: Numbers, series: Labels, is_earlier: Mask) -> Numbers:
    """Return the distance of each value of the earlier side from the median of the nine before the side; NaN for other values.

    `values` are in the order of time, one series after the other. NaN also where fewer than five values are before the side.
    """
    found = np.full(len(values), np.nan)
    at = np.flatnonzero(is_earlier)
    if not len(at):
        return found
    _, of_series = np.unique(series[at], return_inverse=True)
    first = at[np.searchsorted(of_series, np.arange(of_series.max() + 1))]
    before = first[:, None] - np.arange(1, _BEFORE + 1)
    is_there = (before >= 0) & (series[np.maximum(before, 0)] == series[first][:, None])
    enough = is_there.sum(axis=1) >= _FEWEST_BEFORE
    medians = np.full(len(first), np.nan)
    medians[enough] = np.nanmedian(np.where(is_there, values[np.maximum(before, 0)], np.nan)[enough], axis=1)
    found[at] = values[at] - medians[of_series]
    return found


def medians_of(values: Numbers, owners: Labels, count: int) -> Numbers:
    """Return the median of the values of each owner from 0 to count - 1, NaN for an owner without any."""
    order = np.argsort(owners, kind="stable")
    ordered, size = _ordered(values[order], owners[order], count)
    low, high = (ordered[np.arange(count), np.maximum(part, 0)] for part in ((size - 1) // 2, size // 2))
    return np.where(size > 0, (low + high) / 2, np.nan)


def tail_of(distances: Numbers, owners: Labels, count: int) -> Tail:
    """Return the `Tail` of the runs of owners 0 to count - 1. Each owner's median distance is moderated by those of all owners.

    `Tail.apart` is NaN: the place of the earlier side is not known here.
    """
    runs = np.bincount(owners, minlength=count).astype(np.float64)
    scale = NORMAL_CONSISTENCY * medians_of(np.abs(distances), owners, count)
    df = _OWN_EFFICIENCY * runs
    moderated = np.sqrt(moderate(scale**2, df, fit_prior(scale**2, df))[0])
    scale = np.fmax(moderated, _FLOOR)
    sizes, of_run = np.abs(distances), np.log2(scale[owners])
    kinds = np.unique(_noisiness(scale[np.isfinite(scale)])).tolist()
    near = {kind: np.sort(sizes[np.abs(of_run - kind / 2) <= np.log2(_ABOUT)]) for kind in kinds}
    return Tail(np.sort(sizes / scale[owners]), near, scale, np.full(count, np.nan))


def cells_with_gaps(values: Numbers, cells: Labels) -> Labels:
    """Return the cells whose sorted ln values have a gap that is wide enough for two modes.

    On each side of the gap lie at least as many values of the cell as a mode needs.
    """
    order = np.lexsort((values, cells))
    ordered, owners = values[order], cells[order]
    few, last = _FEWEST_OF_MODE, len(order) - _FEWEST_OF_MODE
    is_wide = ordered[few : last + 1] - ordered[few - 1 : last] >= np.log1p(_LEAST_GAP)
    is_within = owners[: len(is_wide)] == owners[2 * few - 1 :]
    found: Labels = np.unique(owners[few : last + 1][is_wide & is_within])
    return found


def two_modes(values: Numbers) -> tuple[float, float] | None:
    """Return both levels, over the more frequent one, of a series of ln values that goes to and fro between them, or None.

    The levels lie on both sides of the widest gap. The gap is at least 1 % and five standard deviations of the values around
    their level, each level has at least two values, and the series changes its level at least three times: a step does so once.
    """
    values = values[np.isfinite(values)]
    if len(values) < 2 * _FEWEST_OF_MODE:
        return None
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    at = int(np.argmax(gaps)) + 1
    if gaps[at - 1] < np.log1p(_LEAST_GAP):
        return None
    is_high = values >= ordered[at]
    sides = values[~is_high], values[is_high]
    apart = np.concatenate([side - np.mean(side) for side in sides])
    is_wide = gaps[at - 1] >= _GAP * float(np.std(apart))
    turns = int(np.sum(is_high[1:] != is_high[:-1]))
    if not is_wide or min(map(len, sides)) < _FEWEST_OF_MODE or turns < _TURNS:
        return None
    usual = float(np.mean(max(sides, key=len)))
    low, high = (float(np.exp(np.mean(side) - usual)) for side in sides)
    return low, high


def wider_error(change: Numbers, error: Numbers, df: Numbers, chance: Numbers) -> Numbers:
    """Return the standard error under which a change is as likely as `chance`, where it is wider than `error`.

    Interval and p then agree with `chance`: change over error is the quantile of Student's t with `df` degrees of freedom.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.maximum(-stdtrit(df, np.clip(chance, 1e-300, 1) / 2), _LEAST_SCORE)
        wider: Numbers = np.fmax(error, np.where(chance > 0, np.abs(change) / score, 0.0))
    return wider
