"""Judge the cells of two sides: which change is real, which is ruled out, and where more runs are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from analysis.compare.adjustment import (
    CONTROL,
    YARDSTICKS,
    Adjustment,
    CommonMove,
    PairedCells,
    adjusted_for_eager,
    common_adjustment,
)
from analysis.compare.cell_comparison import (
    CHANGES,
    CONCLUSIVE,
    DEVICE,
    WALL,
    Judged,
    JudgedMetric,
    Outcome,
    Transition,
)
from analysis.stats.averages import Mask, Numbers
from analysis.stats.run_noise import SideRuns, Tail, wider_error
from analysis.stats.verdicts import (
    LEVEL,
    Difference,
    Verdict,
    difference,
    false_discovery_rates,
    further_runs,
    judge,
    with_error,
    words_where,
)
from collector.metrics import METRICS, MIN_EFFECT
from db.queries.series import THROTTLED
from db.queries.side_rows import CellState

#: The metric: bytes that stay allocated with every compiled call.
LEAK = "leak_bytes_per_call"
#: Bytes per call: torch's CUDA caching allocator rounds every request up to this (`kMinBlockSize`), so it is the smallest leak.
BLOCK = 512.0
#: Share of an existing leak by which it must change, as for memory: a smaller change leaves it the same leak.
PART = 0.02


def judge_leaks(pairs: PairedCells) -> JudgedMetric:
    """Judge `LEAK` for the cells that pass on both sides; `pairs.cells.shown` must have its values.

    Only a leak of all runs of a side counts: `regressed` where the least of new's runs is above the greatest of base's by at
    least a block and 2 %, `improved` the other way round, `unchanged` where all runs of both sides lie within that. Else the
    runs of a side disagree (a cache that was filled, a buffer that was allocated once): `inconclusive` until there is one more
    run.
    """
    (base_least, base_most), (new_least, new_most) = pairs.extremes(LEAK)
    is_judged = pairs.cells.passes & np.isfinite(base_least) & np.isfinite(new_least)
    with np.errstate(invalid="ignore"):
        grew = new_least - base_most >= _threshold(base_most)
        shrank = base_least - new_most >= _threshold(new_most)
        most, least = np.maximum(base_most, new_most), np.minimum(base_least, new_least)
        same = most - least < _threshold(least)
    words = np.select(
        [grew, shrank, same],
        [Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.UNCHANGED.value],
        Verdict.INCONCLUSIVE.value,
    )
    base, new = pairs.cells.shown[LEAK]
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(is_judged & (base_most > 0) & (base > 0), new / base - 1, np.nan)
    more_runs = np.where(is_judged & (words == Verdict.INCONCLUSIVE.value), 1.0, np.nan)
    return JudgedMetric.of_rule(LEAK, words_where(is_judged, words), change, more_runs)


def _threshold(leaked: Numbers) -> Numbers:
    return np.maximum(BLOCK, PART * leaked)


#: The metric: the largest error as a share of its limit.
MARGIN = "error_margin"
#: Part of the way to the limit that an error must have come for the cell to be named before it fails.
_OF_THE_WAY = 0.5
#: Part of the limit by which an error must have moved at least. Another choice of autotuning is another sum of rounding errors:
#: in two nights of one commit mamba2-130m.decode was at 0.94 and 1.00 under `max_autotune`.
_LEAST_MOVE = 0.25


def judge_margins(pairs: PairedCells) -> JudgedMetric:
    """Judge `MARGIN` for the cells that pass on both sides; `pairs.cells.shown` must have its values.

    Errors repeat for one code and seed, so the rule needs no noise: `regressed` where in all runs of new the error has come at
    least half of the way from the largest of base to its limit, and so to half of the limit or more, and has moved by a quarter
    of the limit; `improved` where it has gone back as far. No verdict where neither holds.
    """
    (base_least, base_most), (new_least, new_most) = pairs.extremes(MARGIN)
    with np.errstate(invalid="ignore"):
        worse = new_least >= base_most + _least_move(base_most)
        better = base_least >= new_most + _least_move(new_most)
    return _changed(pairs, MARGIN, worse & ~better, better & ~worse)


def _least_move(begin: Numbers) -> Numbers:
    return np.maximum(_OF_THE_WAY * (1 - begin), _LEAST_MOVE)


#: Counts for which any increase is worse: graph breaks, recompilations, fallbacks, skipped cudagraphs, kernels that
#: no cudagraph launched.
RISING = tuple(metric.name for metric in METRICS.values() if metric.is_count and metric.better == "lower")
#: Counts of graphs, kernels and launches of cudagraphs. More or fewer are neither good nor bad, but a count of 0 means that there
#: is no program, or a program without cudagraphs.
VANISHING = ("graphs", "kernels_generated", "cudagraph_launches")
COUNTED = tuple(name for name in METRICS if name in RISING or name in VANISHING)
#: Counts that must be 0, too: a graph that has only kernels of a library has kernels.
_INSTEAD = {"kernels_generated": "kernels_extern"}
#: All metrics that counts are judged from.
READ_FOR_COUNTS = tuple(sorted({*COUNTED, *_INSTEAD.values()}))


def judge_counts(pairs: PairedCells) -> dict[str, JudgedMetric]:
    """Judge each count of `COUNTED` that `pairs.cells.shown` has, for the cells that pass on both sides.

    `regressed` where a count of `RISING` is larger in every run of new than in any run of base, or a count of `VANISHING` is 0 in
    all runs of new and in no run of base; `improved` the other way round. No verdict where neither holds: an unchanged number of
    graph breaks says nothing about a cell whose times are open.
    """
    judged = {}
    for name in (name for name in COUNTED if name in pairs.cells.shown):
        worse, better = _rising(pairs, name) if name in RISING else _vanishing(pairs, name)
        judged[name] = _changed(pairs, name, worse, better)
    return judged


def _changed(pairs: PairedCells, name: str, worse: Mask, better: Mask) -> JudgedMetric:
    """Return the verdicts on a metric that is judged only where it changed."""
    is_changed = pairs.cells.passes & (worse | better)
    words = np.where(worse, Verdict.REGRESSED.value, Verdict.IMPROVED.value)
    base, new = pairs.cells.shown[name]
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(is_changed & (base > 0), new / base - 1, np.nan)
    return JudgedMetric.of_rule(name, words_where(is_changed, words), change)


def _rising(pairs: PairedCells, name: str) -> tuple[Mask, Mask]:
    (base_least, base_most), (new_least, new_most) = pairs.extremes(name)
    return new_least > base_most, new_most < base_least


def _vanishing(pairs: PairedCells, name: str) -> tuple[Mask, Mask]:
    (base_least, base_most), (new_least, new_most) = pairs.extremes(name)
    gone, came = (base_least > 0) & (new_most == 0), (base_most == 0) & (new_least > 0)
    if other := _INSTEAD.get(name):
        (_, other_base), (_, other_new) = pairs.extremes(other)
        gone, came = gone & (other_new == 0), came & (other_base == 0)
    return gone, came


#: All metrics that have a verdict, the most important to a user first. The first that got worse (or better) decides on a cell.
JUDGED = tuple(name for name in METRICS if name in MIN_EFFECT or name in (LEAK, MARGIN) or name in COUNTED)
#: Metrics that noise is learned from, and metrics that are read of the sides' own runs only.
LEARNED = tuple(sorted({*MIN_EFFECT, *CONTROL.values()}))
OF_SIDES = tuple(sorted({LEAK, MARGIN, THROTTLED, *YARDSTICKS, *READ_FOR_COUNTS} - set(LEARNED)))
READ = (*LEARNED, *OF_SIDES)
#: ln of the largest ratio of an interval's end to the change. Wider intervals say nothing and are shown as unknown.
_WIDEST = np.log(10.0)

#: Where no noise is known, a change of this factor or more counts by its size alone, if the eager run did not move along: no two
#: processes of the same code differ by more than 1.34 in both in our data (docs/statistics.md). A latency that doubled may be
#: measured as a little less.
_TWICE, _LARGE = np.log(2.0), np.log(1.9)


#: A cell is not `unchanged` while a metric is undecided that is worse by this many minimum effects: a compile time by 25 %.
SUSPECT = 5.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judged metrics of all cells, in the order of `JUDGED`, and their noise.

    `drift` is of ln, `noise` is the median standard deviation (of ln) of the cells from run to run, None where it is not known,
    and `repeats` are the degrees of freedom behind the noise. `is_open` is a mask of the cells whose latency must be seen in a
    second run. `eager` is the common move of the eager runs, of device time where it is measured.
    """

    metrics: Mapping[str, JudgedMetric]
    drift: Mapping[str, float]
    noise: Mapping[str, float | None]
    repeats: Mapping[str, float]
    is_open: Mask
    eager: CommonMove | None


def judge_pairs(pairs: PairedCells, min_effects: Mapping[str, float] = MIN_EFFECT) -> Judgement:
    """Judge the metrics of cells by their repeats, and by the exact rules of leaks and counts.

    The noise from run to run is learned from all runs of the sides' testbeds that the store holds. One family of cells per
    metric shares a false discovery rate of 5 %.
    """
    judged: dict[str, JudgedMetric] = {}
    common_of = {metric: pairs.common(control) for metric, control in CONTROL.items() if metric in min_effects}
    drift = {metric: move.drift for metric, move in common_of.items()}
    noise, degrees = {}, {}
    for metric, min_effect in min_effects.items():
        common = pairs.common_moves(CONTROL[metric]) if metric in CONTROL else None
        learned = pairs.learn(metric, common=common)
        adjustment = common_adjustment(pairs, learned, drift.get(metric, 0.0) * pairs.part_of_drift(metric))
        if metric in CONTROL:
            learned, adjustment = adjusted_for_eager(pairs, metric, learned, adjustment)
        noise[metric], degrees[metric] = learned.typical, learned.repeats
        judged[metric] = _judged(pairs, metric, adjustment, learned.tail, min_effect)
    if LEAK in pairs.cells.shown:
        judged[LEAK] = judge_leaks(pairs)
    if min_effects is MIN_EFFECT:
        judged |= judge_counts(pairs)
        if MARGIN in pairs.cells.shown:
            judged[MARGIN] = judge_margins(pairs)
    is_open = np.zeros(len(pairs.cells), dtype=bool)
    if {WALL, DEVICE} <= min_effects.keys():
        is_open = _seen_once(pairs, judged[WALL], judged[DEVICE])
        judged[WALL].verdict[is_open], judged[WALL].more_runs[is_open] = Outcome.INCONCLUSIVE.value, 1.0
    in_order = {name: judged[name] for name in JUDGED if name in judged}
    return Judgement(in_order, drift, noise, degrees, is_open, common_of.get(DEVICE) or common_of.get(WALL))


def _judged(pairs: PairedCells, metric: str, adjustment: Adjustment, tail: Tail, min_effect: float) -> JudgedMetric:
    before, after = pairs.values(metric)
    change = np.where(pairs.cells.passes, after.log - before.log, np.nan)
    runs = before.independent_runs(adjustment.between), after.independent_runs(adjustment.between)
    with np.errstate(divide="ignore"):
        tested = difference(change - adjustment.change, *runs, adjustment.variance, adjustment.df, adjustment.doubt)
        # Only for a change the question arises whether a single run makes it.
        is_change = (tested.p <= LEVEL) & (np.abs(tested.change) >= np.log1p(min_effect))
        chance = np.where(is_change, _chance_of_single_runs(pairs, metric, tail, tested.change), 0.0)
        # One more run on each side shows whether a single run makes the change.
        is_held = chance > tested.p
        tested = with_error(tested.change, wider_error(tested.change, tested.error, tested.df, chance), tested.df)
        more = np.where(is_held, 1.0, further_runs(tested, *runs, min_effect))
    q = false_discovery_rates(tested.p)
    verdicts = judge(tested, q, min_effect, lower_is_better=METRICS[metric].better == "lower")
    # A correction must not make a change: it counts only if it is a change as it was measured, too.
    seen = np.sign(change) * np.sign(tested.change) * np.abs(change) >= np.log1p(min_effect)
    is_made = np.isin(verdicts, CHANGES) & (adjustment.change != 0) & ~seen
    verdicts = np.where(is_made, Outcome.INCONCLUSIVE.value, verdicts)
    large = _large(pairs, metric, tested)
    verdicts[large > 0], verdicts[large < 0] = Outcome.REGRESSED.value, Outcome.IMPROVED.value
    is_known = np.isfinite(change)
    is_told = tested.high - tested.change < _WIDEST
    return JudgedMetric(
        metric,
        words_where(is_known, verdicts),
        change=np.expm1(change),
        adjusted=np.expm1(tested.change),
        low=np.expm1(np.where(is_told, tested.low, np.nan)),
        high=np.expm1(np.where(is_told, tested.high, np.nan)),
        explained=np.expm1(np.where(is_known, adjustment.change, np.nan)),
        p=tested.p,
        q=q,
        more_runs=np.where(is_known, more, np.nan),
        base_runs=before.runs,
        new_runs=after.runs,
    )


def _chance_of_single_runs(pairs: PairedCells, metric: str, tail: Tail, change: Numbers) -> Numbers:
    """Return how likely single runs alone make the change of each cell.

    The distance of base from the runs before it counts only if base is the earlier side: sides measured in turn have no
    neighbours of their own.
    """
    before, after = pairs.values(metric)
    scale = pairs.of_cell(tail.scale, "new")
    apart = pairs.of_cell(tail.apart, "base") if pairs.is_base_earlier else np.full(len(scale), np.nan)
    # The run of a side that shows the least of the change.
    (base_least, base_most), (new_least, new_most) = pairs.extremes(metric)
    is_more = after.log >= before.log
    with np.errstate(invalid="ignore", divide="ignore"):
        sign, half = np.where(is_more, 1.0, -1.0), np.abs(after.log - before.log) / 2
        of_base = sign * (after.log - np.log(np.where(is_more, base_most, base_least))) >= half
        of_new = sign * (np.log(np.where(is_more, new_least, new_most)) - before.log) >= half
    sides = SideRuns(before.runs, of_base), SideRuns(after.runs, of_new)
    return replace(tail, scale=scale, apart=apart).chance(change, *sides)


def _large(pairs: PairedCells, metric: str, tested: Difference) -> Numbers:
    """Return 1 where a cell's cost about doubled and no noise is known, -1 where it about halved, else 0.

    The change counts only as far as the eager run of the same process did not move along: a machine may be twice as slow.
    """
    beside = pairs.moved(metric) - (np.nan_to_num(pairs.moved(CONTROL[metric])) if metric in CONTROL else 0.0)
    least = np.minimum(np.abs(tested.change), np.abs(beside))
    counts = np.isnan(tested.p) & (np.sign(tested.change) == np.sign(beside))
    counts &= least >= (_LARGE if metric in CONTROL else _TWICE)
    return np.where(counts, np.sign(tested.change), 0.0)


def _seen_once(pairs: PairedCells, wall: JudgedMetric, device: JudgedMetric) -> Mask:
    """Return a mask of the cells whose latency changed in a single run of a side, while neither code nor device time changed.

    There the host is the likely cause, which a second run shows. A latency that about doubled is left out, since no known
    disturbance doubles one.
    """
    changed = np.isin(wall.verdict.astype(str), CHANGES)
    small = np.abs(np.log1p(wall.adjusted)) < _LARGE
    runs = np.fmin(wall.base_runs, wall.new_runs)
    same_time = device.verdict == Outcome.UNCHANGED.value
    once: Mask = changed & small & (runs < 2) & pairs.cells.same_code & same_time
    return once


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts about a cell besides its metrics.

    `only_code`: both sides have its generated code and nothing else (`collector.census`). `is_open`: its latency must be seen
    in a second run. `is_flaky`: it breaks and is fixed again and again. `one_commit`: both sides measured the same commits, so
    that no commit explains a change.
    """

    base: CellState
    new: CellState
    transition: Transition
    same_code: bool
    same_environment: bool
    model_changed: bool
    only_code: bool
    is_open: bool
    is_flaky: bool
    one_commit: bool


def outcome_of(cell: Circumstances, judged: Mapping[str, Judged]) -> tuple[Outcome, str | None]:
    """Return the outcome of a cell, and the metric that decided it; None where no metric did."""
    if cell.only_code and cell.same_environment and not cell.model_changed:
        return (Outcome.UNCHANGED if cell.same_code else Outcome.INCONCLUSIVE), None
    if cell.transition is not Transition.BOTH_PASS:
        return _of_status(cell), None
    outcome, metric = _of_metrics(judged)
    if cell.is_open and outcome is Outcome.UNCHANGED:
        outcome, metric = Outcome.INCONCLUSIVE, WALL
    if _is_untimed(cell) and outcome not in CHANGES:
        outcome, metric = Outcome.UNCHANGED, None
    moved = cell.base.testbed_id != cell.new.testbed_id and None not in (cell.base.testbed_id, cell.new.testbed_id)
    environments = cell.base.environment_id, cell.new.environment_id
    if outcome is None:
        return Outcome.INCONCLUSIVE, None
    if moved:
        outcome = Outcome.ENVIRONMENT_CHANGED if cell.one_commit else Outcome.INCONCLUSIVE
    elif cell.one_commit and outcome in CHANGES and None not in environments and environments[0] != environments[1]:
        outcome = Outcome.ENVIRONMENT_CHANGED
    if cell.model_changed:  # neither a change nor its absence is torch's
        outcome = Outcome.ENVIRONMENT_CHANGED
    return outcome, metric


def _of_status(cell: Circumstances) -> Outcome:
    turned = cell.transition in (Transition.BROKE, Transition.FIXED)
    if turned and cell.model_changed:
        return Outcome.ENVIRONMENT_CHANGED
    return Outcome.FLAKY if turned and cell.is_flaky else Outcome(cell.transition.value)


def _is_untimed(cell: Circumstances) -> bool:
    """Return whether the generated code is the same on both sides and the cell was not timed on one of them.

    Such a cell is `unchanged`, unless another metric (compile time) shows a change: a cell is not timed where its code says
    enough. Under other libraries it does not: the same code may call another cuBLAS.
    """
    timed = WALL in cell.base.values and WALL in cell.new.values
    return cell.same_code and cell.same_environment and not timed


def _of_metrics(judged: Mapping[str, Judged]) -> tuple[Outcome | None, str | None]:
    """Return the outcome by the metrics, and the metric that decides: the first that got worse, else the first that got better.

    Else the time decides: wall-clock time, which a user waits for, or device time where wall-clock time is inconclusive.
    """
    by_wall = WALL in judged and judged[WALL].verdict in CONCLUSIVE
    for outcome in CHANGES:
        for name, one in judged.items():
            if one.verdict is outcome and not (by_wall and name == DEVICE):
                return outcome, name
    for name in (WALL, DEVICE):
        if name in judged and judged[name].verdict in CONCLUSIVE:
            return (Outcome.INCONCLUSIVE, suspect) if (suspect := _suspect(judged)) else (judged[name].verdict, name)
    return (Outcome.INCONCLUSIVE, next(iter(judged))) if judged else (None, None)


def _suspect(judged: Mapping[str, Judged]) -> str | None:
    """Return the first undecided metric besides the latencies that may be worse by `SUSPECT` minimum effects or more, or None."""
    for name, one in judged.items():
        if name in (WALL, DEVICE) or name not in MIN_EFFECT or one.verdict is not Outcome.INCONCLUSIVE or not one.shown:
            continue
        worse = one.shown if METRICS[name].better == "lower" else -one.shown
        if worse >= SUSPECT * MIN_EFFECT[name]:
            return name
    return None


def decide(
    counts: Mapping[str, int],
    fail_on: frozenset[str],
    max_missing: int | None = None,
    regressed: Mapping[str, int] = MappingProxyType({}),
    without_base: tuple[int, int] = (0, 0),
    obstacle: str = "",
) -> tuple[int, str]:
    """Return the exit code of `gate` and its reason, from the number of cells of each outcome.

    `regressed` has the number of cells that regressed in each dimension that counts. `without_base` has the number of cells of
    new that base did not measure, and the number of cells that new expects. `obstacle` says why no undecided cell can have a
    verdict; empty where more runs may help.
    The code is 0 for a pass, 1 for a failure and 3 where too little was measured to decide.
    """
    missing = counts.get("missing", 0)
    judged = sum(counts.values()) - missing
    if not judged:
        return 3, "no cell was measured on both sides"
    if max_missing is not None and missing > max_missing:
        return 3, f"{missing} cells are missing, more than the {max_missing} allowed"
    failures = [f"{counts[word]} {word}" for word in sorted(fail_on) if counts.get(word)]
    failures += [f"{count} regressed in {dimension}" for dimension, count in regressed.items() if count]
    lacking, expected = without_base
    if lacking * 2 > expected:
        beside = f"; of the others: {', '.join(failures)}" if failures else ""
        return 3, f"{lacking} of {expected} cells of new have no base: name another one{beside}"
    if failures:
        return 1, ", ".join(failures)
    undecided = counts.get("inconclusive", 0) + counts.get("environment_changed", 0)
    if undecided and judged == undecided + counts.get("still_failing", 0):
        return 3, f"nothing could be concluded: {obstacle or 'measure again, or compare within one testbed'}"
    return 0, "nothing found"
