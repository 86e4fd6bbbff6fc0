"""Judges the cells of two sides: which change is real, which is shown to be none, and where more runs are needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.adjustment import CONTROL, Adjustment, PairedCells, adjusted_for_eager, common_adjustment
from analysis.compare.cell_outcome import Outcome as Outcome
from analysis.compare.counts import COUNTED, READ_FOR_COUNTS, judge_counts
from analysis.compare.findings import count_findings, findings
from analysis.compare.leaks import LEAK, judge_leaks
from analysis.compare.noise import learn_noise
from analysis.compare.repeats import RepeatRows
from analysis.compare.results import Comparison, plain
from analysis.compare.tables import compare
from analysis.compare.transitions import Transition
from analysis.stats.arrays import Mask, Numbers, Words
from analysis.stats.verdicts import (
    Difference,
    difference,
    false_discovery_rates,
    further_runs,
    judge,
    words_where,
)
from collector.metrics import METRICS, MIN_EFFECT
from db.connecting import Source, connected
from db.queries.filters import EVERYTHING, CellFilter
from db.queries.repeats import THROTTLED, ReadRun
from db.queries.sides import resolve_side

#: All that has a verdict, in the order in which a cell's is named after it: what a user waits for first.
JUDGED = tuple(name for name in METRICS if name in MIN_EFFECT or name == LEAK or name in COUNTED)
#: All that is read of the repeats.
READ = tuple(sorted({*MIN_EFFECT, LEAK, THROTTLED, *READ_FOR_COUNTS, *CONTROL.values()}))
#: ln of the largest ratio that the end of an interval is told of. Wider intervals say nothing and are unknown.
_WIDEST = np.log(1000.0)

#: Where no noise is known, a change of this factor or more counts by its size alone: no known disturbance doubles a time.
_LARGE = np.log(2.0)

_PARTS = ("change", "adjusted", "low", "high", "explained", "q", "more_runs")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one comparison.

    `cells` has the columns verdict (an `Outcome`, or None where there is nothing to
    compare), verdict_metric (which metric decided; None where the same code did), throttled (whether power or heat held the
    GPU's clocks down on either side) and, per metric of `JUDGED`, all changes relative (0.02 is 2 %):

    - `<metric>_change`: new over base, as the comparison shows them
    - `<metric>_explained`: the machine's part of it by the eager runs: common drift, and of `compiled_ms` what the cell's own
      eager run explains, as of device time where throttled
    - `<metric>_adjusted`: the change without that part, with its 95 % interval `_low` to `_high`. The verdict is of this one.
      1 + change = (1 + adjusted) (1 + explained). An interval beyond a factor of 1000 is unknown.
    - `<metric>_verdict`, `_p` (two-sided), `_q` (false discovery rate) and `_more_runs`
    - `<metric>_runs_base` and `_runs_new`: the number of runs whose mean the values are

    `drift` is the relative change that all cells of a metric have in common through their eager runs, `noise` the standard
    deviation (of ln) from run to run that a cell without repeats is taken to have, `repeats` the degrees of freedom behind
    the noise.
    """

    cells: pd.DataFrame
    drift: Mapping[str, float]
    noise: Mapping[str, float | None]
    repeats: Mapping[str, float]

    def of(self, cells: pd.DataFrame) -> Judgement:
        """The judgement of some of the cells, by their cell_id, with the index of `cells`."""
        return replace(self, cells=self.cells.reindex(cells["cell_id"]).set_axis(cells.index))

    def counts(self) -> dict[str, int]:
        """How many cells there are of each outcome that occurs."""
        counts = self.cells["verdict"].value_counts()
        return {outcome.value: int(counts[outcome.value]) for outcome in Outcome if outcome.value in counts}

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys: counts, and per metric smallest, drift, noise and repeats."""
        return {
            "counts": self.counts(),
            "metrics": {
                name: {
                    "smallest": min_effect,
                    "drift": self.drift.get(name),
                    "noise": self.noise[name],
                    "repeats": self.repeats[name],
                }
                for name, min_effect in MIN_EFFECT.items()
            },
        }


def decide(
    counts: Mapping[str, int],
    fail_on: frozenset[str],
    max_missing: int | None = None,
    regressed: Mapping[str, int] = MappingProxyType({}),
) -> tuple[int, str]:
    """Return the exit code of `gate` and its reason, from the number of cells of each outcome.

    `regressed` has the number of cells that regressed in each dimension that counts.
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
    if failures:
        return 1, ", ".join(failures)
    if judged == counts.get("inconclusive", 0) + counts.get("environment_changed", 0):
        return 3, "nothing could be concluded: measure again, or compare within one testbed"
    return 0, "nothing found"


def with_verdicts(comparison: Comparison, judgement: Judgement) -> dict[str, Any]:
    """Return the comparison as a JSON object with `verdicts` (as `Judgement.to_json`) and, in each of its cells, `verdict`,
    `verdict_metric`, `held_back` (throttled), `judged`: per metric its verdict, change, adjusted, low, high, explained
    (relative), q and more_runs, or null, and `findings`: per dimension its verdict and the metric that tells it best."""
    shown = comparison.to_json()
    found = [findings(row) for row in cells_with_verdicts(comparison, judgement)]
    judged = [
        {**_cell_json(row), "findings": [one.to_json() for one in of_cell]}
        for row, of_cell in zip(judgement.cells.to_dict("records"), found, strict=True)
    ]
    cells = [{**cell, **of_cell} for cell, of_cell in zip(shown["cells"], judged, strict=True)]
    dimensions = {dimension.value: counts for dimension, counts in count_findings(found).items()}
    return {**shown, "verdicts": {**judgement.to_json(), "dimensions": dimensions}, "cells": cells}


def cells_with_verdicts(comparison: Comparison, judgement: Judgement) -> list[dict[Any, Any]]:
    """Return the cells of a comparison with what was judged of them, in their order."""
    rows: list[dict[Any, Any]] = comparison.cells.join(judgement.cells).to_dict("records")
    return rows


def _cell_json(row: Mapping[Any, Any]) -> dict[str, Any]:
    judged = {
        metric: {name: plain(row[f"{metric}_{name}"]) for name in ("verdict", *_PARTS)}
        for metric in JUDGED
        if isinstance(row.get(f"{metric}_verdict"), str)
    }
    named = {name: plain(row[name]) for name in ("verdict", "verdict_metric")}
    return {**named, "held_back": plain(row["throttled"]), "judged": judged}


def compare_and_judge(
    source: Source, base: str, new: str, filters: CellFilter = EVERYTHING, configs: tuple[str, str] | None = None
) -> tuple[Comparison, Judgement]:
    """Compares two sides, or one config of base with another of new, and judges the cells that the filter leaves.

    A filter hides cells and changes no verdict: false discovery rate, drift and noise are those of all cells. Raises `SideError`
    for a text that names no side, and `FilterError` as `compare` does.
    """
    with connected(source) as conn:
        sides = resolve_side(conn, base), resolve_side(conn, new)
        everything = compare(conn, *sides, configs=configs)
        comparison = everything if filters == EVERYTHING else compare(conn, *sides, filters, configs)
        judgement = judge_cells(conn, everything)
    return comparison, judgement.of(comparison.cells)


def judge_cells(source: Source, comparison: Comparison, *, read: ReadRun | None = None) -> Judgement:
    """Judges the cells of a comparison by the values that they show. The index of the result is their cell_id.

    The noise from run to run is learned from all runs of the sides' testbeds that the store holds. One family of cells per
    metric shares a false discovery rate of 5 %. Leaks and counts have rules of their own (`analysis.compare.leaks`,
    `analysis.compare.counts`). `read` gives the
    rows of a run (`READ`), if they need not be read from the store.
    """
    base, new, cells = comparison.base, comparison.new, comparison.cells
    rows = RepeatRows.behind(source, (base, new), READ, read=read)
    judgement = judge_pairs(PairedCells(rows, base, new, cells))
    return replace(judgement, cells=judgement.cells.set_axis(cells["cell_id"]))


def judge_pairs(pairs: PairedCells, min_effects: Mapping[str, float] = MIN_EFFECT) -> Judgement:
    """Judges cells whose repeats were read already."""
    columns: dict[str, Any] = {}
    drift = {metric: pairs.drift(control) for metric, control in CONTROL.items() if metric in min_effects}
    noise, degrees = {}, {}
    for metric, min_effect in min_effects.items():
        common = pairs.common_moves(CONTROL[metric]) if metric in CONTROL else None
        learned = learn_noise(pairs.rows, metric, common=common, between=pairs.between)
        adjustment = common_adjustment(pairs, learned, drift.get(metric, 0.0))
        if metric in CONTROL:
            learned, adjustment = adjusted_for_eager(pairs, metric, learned, adjustment)
        noise[metric], degrees[metric] = learned.typical, learned.repeats
        columns |= _judged(pairs, metric, adjustment, min_effect)
    if f"{LEAK}_ratio" in pairs.cells:
        columns |= judge_leaks(pairs, pairs.passes_twice)
    if min_effects is MIN_EFFECT:
        columns |= judge_counts(pairs, pairs.passes_twice)
    once = np.zeros(len(pairs.cells), dtype=bool)
    if {"compiled_ms", "compiled_kernel_ms"} <= min_effects.keys() and "code_changed" in pairs.cells:
        once = _seen_once(pairs, columns)
        columns["compiled_ms_verdict"][once] = Outcome.INCONCLUSIVE.value
        columns["compiled_ms_more_runs"][once] = 1.0
    verdicts = {name: columns[f"{name}_verdict"] for name in JUDGED if f"{name}_verdict" in columns}
    named = {name: pd.Series(words, dtype=object) for name, words in _overall(pairs, verdicts, once).items()}
    columns |= {**named, "throttled": pairs.throttled}
    shown_drift = {metric: math.expm1(moved) for metric, moved in drift.items()}
    return Judgement(pd.DataFrame(columns).set_axis(pairs.cells.index), shown_drift, noise, degrees)


def _judged(pairs: PairedCells, metric: str, adjustment: Adjustment, min_effect: float) -> dict[str, Any]:
    """The columns of one metric."""
    before, after = pairs.values(metric)
    change = np.where(pairs.passes_twice, after.log - before.log, np.nan)
    with np.errstate(divide="ignore"):
        tested = difference(
            change - adjustment.change, before.runs, after.runs, adjustment.variance, adjustment.df, adjustment.doubt
        )
        more = further_runs(tested, before.runs, after.runs, min_effect)
    q = false_discovery_rates(tested.p)
    verdicts = judge(tested, q, min_effect, lower_is_better=METRICS[metric].better == "lower")
    large = _large(pairs, metric, tested)
    verdicts[large > 0], verdicts[large < 0] = Outcome.REGRESSED.value, Outcome.IMPROVED.value
    is_known = np.isfinite(change)
    is_told = tested.high - tested.change < _WIDEST
    logs = {
        "change": change,
        "adjusted": tested.change,
        "low": np.where(is_told, tested.low, np.nan),
        "high": np.where(is_told, tested.high, np.nan),
        "explained": np.where(is_known, adjustment.change, np.nan),
    }
    return {
        f"{metric}_verdict": words_where(is_known, verdicts),
        **{f"{metric}_{name}": np.expm1(values) for name, values in logs.items()},
        f"{metric}_p": tested.p,
        f"{metric}_q": q,
        f"{metric}_more_runs": np.where(is_known, more, np.nan),
        **{f"{metric}_runs_{side}": of_side.runs for side, of_side in (("base", before), ("new", after))},
    }


def _large(pairs: PairedCells, metric: str, tested: Difference) -> Numbers:
    """1 where a cell's cost at least doubled and no noise is known, -1 where it at least halved, else 0.

    It counts only as far as the eager run of the same process did not move along: a machine may be twice as slow.
    """
    beside = pairs.moved(metric) - (np.nan_to_num(pairs.moved(CONTROL[metric])) if metric in CONTROL else 0.0)
    least = np.minimum(np.abs(tested.change), np.abs(beside))
    counts = np.isnan(tested.p) & (np.sign(tested.change) == np.sign(beside)) & (least >= _LARGE)
    return np.where(counts, np.sign(tested.change), 0.0)


def _seen_once(pairs: PairedCells, columns: Mapping[str, Any]) -> Mask:
    """The cells whose latency changed in a single run of a side, while neither code nor device time changed.

    Then the host is the likely cause, which a second run shows. No known disturbance doubles a latency.
    """
    changed = np.isin(columns["compiled_ms_verdict"].astype(str), _CHANGES)
    small = np.abs(np.log1p(columns["compiled_ms_adjusted"])) < _LARGE
    runs = np.fmin(columns["compiled_ms_runs_base"], columns["compiled_ms_runs_new"])
    same = pairs.cells["code_changed"].eq(False).to_numpy(dtype=bool)
    once: Mask = (
        changed & small & (runs < 2) & same & (columns["compiled_kernel_ms_verdict"] == Outcome.UNCHANGED.value)
    )
    return once


def _overall(pairs: PairedCells, verdicts: Mapping[str, Words], once: Mask) -> dict[str, Words]:
    """The outcome of each cell, and the metric that decided. `once` is as from `_seen_once`."""
    cells, passes = pairs.cells, pairs.passes_twice
    one_commit = set(pairs.sides["base"].commits) == set(pairs.sides["new"].commits)
    outcomes, metrics = _of_metrics(verdicts, len(cells))
    left_open = once & (outcomes == Outcome.UNCHANGED.value)
    outcomes[left_open], metrics[left_open] = Outcome.INCONCLUSIVE.value, "compiled_ms"
    if "code_changed" in cells:
        by_code = _same_code_untimed(cells) & ~np.isin(outcomes.astype(str), _CHANGES)
        outcomes[by_code], metrics[by_code] = Outcome.UNCHANGED.value, None
    is_judged, is_changed = pd.notna(outcomes), np.isin(outcomes.astype(str), _CHANGES)
    moved = cells["testbed_changed"].eq(True).to_numpy(dtype=bool)
    outcomes[is_judged & moved] = (Outcome.ENVIRONMENT_CHANGED if one_commit else Outcome.INCONCLUSIVE).value
    if one_commit:
        base, new = cells["environment_id_base"], cells["environment_id_new"]
        other = (base.notna() & new.notna() & (base != new)).to_numpy(dtype=bool)
        outcomes[is_changed & ~moved & other] = Outcome.ENVIRONMENT_CHANGED.value
    of_status = cells["transition"].map(_STATUS_OUTCOMES).to_numpy(dtype=object)
    turned = np.isin(of_status.astype(str), (Outcome.BROKE.value, Outcome.FIXED.value))
    of_status[turned & cells["cell_id_new"].isin(pairs.rows.flaky()).to_numpy(dtype=bool)] = Outcome.FLAKY.value
    of_status[pd.isna(of_status)] = None
    if "model_changed" in cells:
        # Neither a change nor its absence is torch's.
        of_model = cells["model_changed"].to_numpy(dtype=bool)
        outcomes[of_model & pd.notna(outcomes)] = Outcome.ENVIRONMENT_CHANGED.value
        of_status[of_model & turned] = Outcome.ENVIRONMENT_CHANGED.value
    return {"verdict": np.where(passes, outcomes, of_status), "verdict_metric": words_where(passes, metrics)}


def _same_code_untimed(cells: pd.DataFrame) -> Mask:
    """The cells whose generated code is the same on both sides and that were not timed on one of them.

    They are `unchanged`, unless another metric (compile time) shows a change: a cell is not timed where its code tells enough.
    Under other libraries it does not: the same code may call another cuBLAS.
    """
    timed = cells["compiled_ms_base"].notna() & cells["compiled_ms_new"].notna()
    same = cells["code_changed"].eq(False) & cells["same_environment"]
    untimed: Mask = (same & ~timed).to_numpy(dtype=bool)
    return untimed


_STATUS_OUTCOMES = {
    Transition.BROKE.value: Outcome.BROKE.value,
    Transition.FIXED.value: Outcome.FIXED.value,
    Transition.STILL_FAILING.value: Outcome.STILL_FAILING.value,
    Transition.MISSING.value: Outcome.MISSING.value,
    Transition.MISSING_IN_BOTH.value: Outcome.MISSING.value,
}
_CHANGES = (Outcome.REGRESSED.value, Outcome.IMPROVED.value)
_CONCLUSIVE = (*_CHANGES, Outcome.UNCHANGED.value)


def _of_metrics(verdicts: Mapping[str, Words], count: int) -> tuple[Words, Words]:
    """Something that got worse is named first, then something that got better; else the time decides.

    Time is wall-clock time, which a user waits for. Where that is inconclusive, device time decides.
    """
    outcomes, metrics = np.full((2, count), None)
    none = np.full(count, None)
    by_wall = np.isin(verdicts.get("compiled_ms", none).astype(str), _CONCLUSIVE)
    # The least important first: what comes later overwrites it.
    rules = [(name, pd.notna(words), Outcome.INCONCLUSIVE.value) for name, words in reversed(list(verdicts.items()))]
    for name in ("compiled_kernel_ms", "compiled_ms"):
        rules += [(name, verdicts.get(name, none) == word, word) for word in _CONCLUSIVE]
    for word in reversed(_CHANGES):
        for name, words in reversed(list(verdicts.items())):
            rules.append((name, (words == word) & ~(by_wall & (name == "compiled_kernel_ms")), word))
    for name, where, word in rules:
        outcomes[where], metrics[where] = word, name
    return outcomes, metrics
