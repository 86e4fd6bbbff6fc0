"""Two sides' cells judged: which change is real, which is shown to be none, and where more runs are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.noise import learn_noise
from analysis.compare.paired_values import CONTROL, PairedValues, Taken, beside_eager
from analysis.compare.repeated import Mask, RepeatRows
from analysis.compare.tables import Comparison, compare
from analysis.compare.transitions import Transition
from analysis.history.leaks import LEAK, judge_leaks
from analysis.stats.verdicts import Verdict, difference, false_discovery_rates, further_runs, judge
from collector.metrics import METRICS, MIN_EFFECT
from db.connecting import Source
from db.packing.throttling import THROTTLED
from db.queries.sides import Side

#: What is judged by its noise, and the smallest relative change of it that matters.
SMALLEST: dict[str, float] = MIN_EFFECT
#: All that has a verdict, in the order in which a cell's is named after it: what a user waits for first.
JUDGED = tuple(name for name in METRICS if name in MIN_EFFECT or name == LEAK)


#: What is read beside the metrics that are judged by their noise.
ALSO_READ: tuple[str, ...] = (LEAK, THROTTLED, *CONTROL.values())


class Outcome(StrEnum):
    """What is said of a cell: a `Verdict` where it passes on both sides, else what became of its status."""

    REGRESSED = Verdict.REGRESSED.value
    IMPROVED = Verdict.IMPROVED.value
    UNCHANGED = Verdict.UNCHANGED.value
    INCONCLUSIVE = Verdict.INCONCLUSIVE.value
    ENVIRONMENT_CHANGED = "environment_changed"
    BROKE = "broke"
    FIXED = "fixed"
    STILL_FAILING = "still_failing"
    FLAKY = "flaky"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one comparison.

    `cells` has the index of the comparison's cells and the columns verdict (an `Outcome`, or None where there is nothing to
    compare), verdict_metric (which metric decided), held_back (whether power or heat held the GPU back on either side) and,
    per metric of `JUDGED`: `<metric>_verdict`, `<metric>_change`, `_low` and `_high` (relative, 0.02 is 2 %; the 95 %
    interval), `_explained` (relative; what the eager runs told of the machine and was taken from the change: drift, and
    of `compiled_ms` what the cell's own eager run explains, as of device time where held_back), `_p` (two-sided), `_q` and
    `_more_runs`.
    `drift` is what all cells of a metric have in common through their eager runs, `noise` the standard deviation from run
    to run that a cell without repeats is taken to have (both relative), `repeats` the degrees of freedom behind that.
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
        found = self.cells["verdict"].value_counts()
        return {outcome.value: int(found[outcome.value]) for outcome in Outcome if outcome.value in found}

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys: counts, and per metric smallest, drift, noise and repeats."""
        return {
            "counts": self.counts(),
            "metrics": {
                name: {
                    "smallest": smallest,
                    "drift": self.drift.get(name),
                    "noise": self.noise[name],
                    "repeats": self.repeats[name],
                }
                for name, smallest in SMALLEST.items()
            },
        }


def with_verdicts(comparison: Comparison, judgement: Judgement) -> dict[str, Any]:
    """The comparison as a JSON object with `verdicts` (as `Judgement.to_json`) and, in each of its cells, `verdict`,
    `verdict_metric`, `held_back` and `judged`: per metric its verdict, change, low, high, explained, raw (relative;
    raw is the change with what is explained), q and more_runs, or null."""
    found = comparison.to_json()
    judged = [_cell_json(row) for row in judgement.cells.to_dict("records")]
    cells = [{**cell, **of_cell} for cell, of_cell in zip(found["cells"], judged, strict=True)]
    return {**found, "verdicts": judgement.to_json(), "cells": cells}


def _cell_json(row: Mapping[Any, Any]) -> dict[str, Any]:
    judged = {
        metric: {
            name: _plain(row[f"{metric}_{name}"])
            for name in ("verdict", "change", "low", "high", "explained", "q", "more_runs")
        }
        | {"raw": _plain((1 + row[f"{metric}_change"]) * (1 + row[f"{metric}_explained"]) - 1)}
        for metric in JUDGED
        if isinstance(row[f"{metric}_verdict"], str)
    }
    named = {name: _plain(row[name]) for name in ("verdict", "verdict_metric", "held_back")}
    return {**named, "judged": judged}


def _plain(value: Any) -> Any:
    """JSON has no word for NaN and infinity."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def judge_sides(source: Source, base: Side, new: Side) -> Judgement:
    """Judges all cells of two sides, by cell_id: `Judgement.of` then gives those that a filter leaves.

    So a filter hides cells and changes no verdict: the false discovery rate, the drift and the noise are of the whole.
    """
    cells = compare(source, base, new).cells
    found = judge_cells(source, base, new, cells)
    return replace(found, cells=found.cells.set_axis(cells["cell_id"]))


def judge_cells(
    source: Source, base: Side, new: Side, cells: pd.DataFrame, smallest: Mapping[str, float] = SMALLEST
) -> Judgement:
    """Judges the paired cells of `analysis.compare.pairing.pair`.

    A side's value is the mean ln over its runs that measured the cell (replicates of a run averaged first); the noise
    from run to run is learned from all runs of the sides' testbeds that the store holds. One family of cells per
    metric shares a false discovery rate of 5 %. Leaks go by a rule of their own (`analysis.history.leaks`).
    """
    rows = RepeatRows.behind(source, (base, new), {*smallest, *ALSO_READ})
    return judge_paired(PairedValues(rows, base, new, cells), smallest)


def judge_paired(known: PairedValues, smallest: Mapping[str, float] = SMALLEST) -> Judgement:
    """`judge_cells` of cells whose repeats were read already."""
    found: dict[str, Any] = {}
    drift = {metric: known.drift(control) for metric, control in CONTROL.items() if metric in smallest}
    noise, degrees = {}, {}
    for metric, least in smallest.items():
        common = known.common_moves(CONTROL[metric]) if metric in CONTROL else None
        learned = learn_noise(known.rows, metric, common=common, between=known.between)
        taken = known.taken(learned, drift.get(metric, 0.0))
        if metric in CONTROL:
            learned, taken = beside_eager(known, metric, learned, taken)
        noise[metric], degrees[metric] = learned.typical, learned.repeats
        found |= _judged(known, metric, taken, least)
    found |= judge_leaks(known, _passes_twice(known))
    overall = _overall(known, {name: found[f"{name}_verdict"] for name in JUDGED if f"{name}_verdict" in found})
    found["held_back"] = known.held_back()
    return Judgement(pd.DataFrame(found | overall, index=known.cells.index), drift, noise, degrees)


def _judged(known: PairedValues, metric: str, taken: Taken, smallest: float) -> dict[str, Any]:
    """The columns of one metric."""
    before, after = known.values(metric)
    change = np.where(_passes_twice(known), after.mean - before.mean - taken.change, np.nan)
    with np.errstate(divide="ignore"):
        found = difference(change, before.runs, after.runs, taken.variance, taken.df, taken.doubt)
        more = further_runs(found, before.runs, after.runs, smallest)
    q = false_discovery_rates(found.p)
    verdicts = judge(found, q, smallest, lower_is_better=METRICS[metric].better == "lower")
    is_known = np.isfinite(change)
    with np.errstate(over="ignore"):  # one degree of freedom has intervals as wide as that
        low, high = np.expm1(found.low), np.expm1(found.high)
    return {
        f"{metric}_verdict": [word.value if known else None for word, known in zip(verdicts, is_known, strict=True)],
        f"{metric}_change": np.expm1(found.change),
        f"{metric}_low": low,
        f"{metric}_high": high,
        f"{metric}_explained": np.where(is_known, np.expm1(taken.change), np.nan),
        f"{metric}_p": found.p,
        f"{metric}_q": q,
        f"{metric}_more_runs": np.where(is_known, more, np.nan),
    }


def _passes_twice(known: PairedValues) -> Mask:
    found: Mask = (known.cells["transition"] == Transition.BOTH_PASS.value).to_numpy(dtype=bool)
    return found


def _overall(known: PairedValues, verdicts: Mapping[str, Sequence[str | None]]) -> dict[str, Any]:
    """The one word for each cell, and the metric that decided."""
    flaky, cells = known.rows.flaky(), known.cells
    same_code = set(known.sides["base"].commits) == set(known.sides["new"].commits)
    # Lists, since a frame takes longer to give one value than all else here.
    moved, cell_ids = cells["testbed_changed"].tolist(), cells["cell_id_new"].tolist()
    around = list(zip(*(cells[f"environment_id_{name}"].tolist() for name in known.sides), strict=True))
    words, metrics = [], []
    # Cells have few different verdicts: each is looked at once.
    known_words: dict[tuple[str | None, ...], tuple[Outcome | None, str | None]] = {}
    for at, (transition, told) in enumerate(
        zip(cells["transition"].tolist(), zip(*verdicts.values(), strict=True), strict=True)
    ):
        word, metric = _STATUS_WORDS.get(transition), None
        if transition == Transition.BOTH_PASS.value:
            if told not in known_words:
                known_words[told] = _of_metrics(dict(zip(verdicts, told, strict=True)))
            word, metric = known_words[told]
            if moved[at] is True and word is not None:
                word = Outcome.ENVIRONMENT_CHANGED if same_code else Outcome.INCONCLUSIVE
            elif same_code and word in _CHANGES and _differ(*around[at]):
                word = Outcome.ENVIRONMENT_CHANGED
        elif word in (Outcome.BROKE, Outcome.FIXED) and cell_ids[at] in flaky:
            word = Outcome.FLAKY
        words.append(None if word is None else word.value)
        metrics.append(metric)
    return {
        name: pd.Series(found, index=cells.index, dtype=object)
        for name, found in (("verdict", words), ("verdict_metric", metrics))
    }


_STATUS_WORDS = {
    Transition.BROKE.value: Outcome.BROKE,
    Transition.FIXED.value: Outcome.FIXED,
    Transition.STILL_FAILING.value: Outcome.STILL_FAILING,
    Transition.MISSING.value: Outcome.MISSING,
    Transition.MISSING_IN_BOTH.value: Outcome.MISSING,
}
_CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)


def _of_metrics(verdicts: Mapping[str, str | None]) -> tuple[Outcome | None, str | None]:
    """Something that got worse is named first, then something that got better; else the time decides.

    Time is wall-clock time, which a user waits for; where that cannot tell, device time does.
    """
    for wanted in _CHANGES:
        for name, verdict in verdicts.items():
            if verdict == wanted.value and not (name == "compiled_kernel_ms" and verdicts.get("compiled_ms") in _TOLD):
                return wanted, name
    for name in ("compiled_ms", "compiled_kernel_ms"):
        told = verdicts.get(name)
        if told in _TOLD:
            return Outcome(str(told)), name
    known = [name for name, verdict in verdicts.items() if verdict is not None]
    return (Outcome.INCONCLUSIVE, known[0]) if known else (None, None)


_TOLD: tuple[str | None, ...] = (Verdict.REGRESSED.value, Verdict.IMPROVED.value, Verdict.UNCHANGED.value)


def _differ(base: object, new: object) -> bool:
    return isinstance(base, str) and isinstance(new, str) and base != new
