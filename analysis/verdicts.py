"""Two sides' cells judged: which change is real, which is shown to be none, and where more runs are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare import Comparison, compare
from analysis.noise import Noise, learn_noise
from analysis.stats.repeats import common_drift
from analysis.stats.verdicts import Verdict, difference, false_discovery_rates, further_runs, judge
from analysis.transitions import Transition
from collector.metrics import METRICS
from collector.vocabulary import Status
from db.connecting import Source
from db.repeats import repeats
from db.sides import Side

#: What is judged, and the smallest relative change of it that matters.
SMALLEST: dict[str, float] = {
    "compiled_ms": 0.02,
    "compiled_kernel_ms": 0.02,
    "compile_cold_s": 0.05,
    "compiled_peak_bytes": 0.02,
}
#: The eager run of the same process does not know the commit of Inductor: what moves it has moved the machine.
CONTROL = {"compiled_ms": "eager_ms", "compiled_kernel_ms": "eager_kernel_ms"}


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
    compare), verdict_metric (which metric decided) and, per metric of `SMALLEST`: `<metric>_verdict`, `<metric>_change`,
    `_low` and `_high` (relative, 0.02 is 2 %; the 95 % interval, drift removed), `_q` and `_more_runs`.
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
    `verdict_metric` and `judged`: per metric its verdict, change, low, high (relative), q and more_runs, null if unknown."""
    found = comparison.to_json()
    judged = [_cell_json(row) for row in judgement.cells.to_dict("records")]
    cells = [{**cell, **of_cell} for cell, of_cell in zip(found["cells"], judged, strict=True)]
    return {**found, "verdicts": judgement.to_json(), "cells": cells}


def _cell_json(row: Mapping[Any, Any]) -> dict[str, Any]:
    judged = {
        metric: {
            name: _plain(row[f"{metric}_{name}"]) for name in ("verdict", "change", "low", "high", "q", "more_runs")
        }
        for metric in SMALLEST
        if isinstance(row[f"{metric}_verdict"], str)
    }
    return {"verdict": _plain(row["verdict"]), "verdict_metric": _plain(row["verdict_metric"]), "judged": judged}


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
    """Judges the paired cells of `analysis.pairing.pair`.

    A side's value is the mean ln over its runs that measured the cell (replicates of a run averaged first); the noise
    from run to run is learned from all runs of the sides' testbeds that the store holds. One family of cells per
    metric shares a false discovery rate of 5 %.
    """
    rows = repeats(source, (base, new), sorted({*smallest, *CONTROL.values()}))
    found = pd.DataFrame(index=cells.index)
    drift, noise, degrees = {}, {}, {}
    for metric, least in smallest.items():
        learned = learn_noise(rows, metric)
        noise[metric], degrees[metric] = learned.typical, learned.repeats
        if metric in CONTROL:
            drift[metric] = _drift(rows, base, new, cells, CONTROL[metric])
        found = found.join(_judged(rows, base, new, cells, metric, learned, drift.get(metric, 0.0), least))
    found = pd.concat([found, _overall(rows, base, new, cells, found, smallest)], axis=1)
    return Judgement(found, drift, noise, degrees)


def _drift(rows: pd.DataFrame, base: Side, new: Side, cells: pd.DataFrame, control: str) -> float:
    here = cells[cells["testbed_changed"].eq(False)]  # another testbed differs by more than a slow night
    before, after = (_values(rows, side, here[f"cell_id_{name}"], control) for side, name in _named(base, new))
    return common_drift((after["mean"] - before["mean"]).to_numpy())


def _judged(
    rows: pd.DataFrame,
    base: Side,
    new: Side,
    cells: pd.DataFrame,
    metric: str,
    noise: Noise,
    drift: float,
    smallest: float,
) -> pd.DataFrame:
    before, after = (_values(rows, side, cells[f"cell_id_{name}"], metric) for side, name in _named(base, new))
    compared = (cells["transition"] == Transition.BOTH_PASS.value).to_numpy()
    change = np.where(compared, (after["mean"] - before["mean"]).to_numpy() - drift, np.nan)
    variance, df = _wider(noise, cells)
    runs = before["runs"].to_numpy(), after["runs"].to_numpy()
    with np.errstate(divide="ignore"):
        found = difference(change, *runs, variance, df)
        more = further_runs(found, *runs, smallest)
    q = false_discovery_rates(found.p)
    verdicts = judge(found, q, smallest, lower_is_better=METRICS[metric].better == "lower")
    known = np.isfinite(change)
    return pd.DataFrame(
        {
            f"{metric}_verdict": [
                word.value if is_known else None for word, is_known in zip(verdicts, known, strict=True)
            ],
            f"{metric}_change": np.expm1(found.change),
            f"{metric}_low": np.expm1(found.low),
            f"{metric}_high": np.expm1(found.high),
            f"{metric}_q": q,
            f"{metric}_more_runs": np.where(known, more, np.nan),
        },
        index=cells.index,
    )


def _named(base: Side, new: Side) -> tuple[tuple[Side, str], tuple[Side, str]]:
    return (base, "base"), (new, "new")


def _values(rows: pd.DataFrame, side: Side, cell_ids: pd.Series, metric: str) -> pd.DataFrame:
    """Mean ln value over the side's runs of each cell, and how many runs that is of; in the order of `cell_ids`."""
    usable = rows[rows["run"].isin(side.keys) & (rows["status"] == Status.PASS.value) & (rows[metric] > 0)]
    of_run = np.log(usable.set_index(["cell_id", "run"])[metric]).groupby(level=[0, 1]).mean()
    found: pd.DataFrame = of_run.groupby(level=0).agg(["mean", "count"]).rename(columns={"count": "runs"})
    found = found.reindex(cell_ids)
    return found.set_axis(cell_ids.index)


def _wider(noise: Noise, cells: pd.DataFrame) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Variance and degrees of freedom of the noisier of the two cells: under two configs they are two programs."""
    both = [
        (
            noise.variance.reindex(cells[f"cell_id_{name}"]).to_numpy(),
            noise.df.reindex(cells[f"cell_id_{name}"]).to_numpy(),
        )
        for name in ("base", "new")
    ]
    new_is_wider = ~(both[0][0] >= both[1][0])
    variance = np.where(new_is_wider, both[1][0], both[0][0])
    return variance, np.where(new_is_wider, both[1][1], both[0][1])


def _overall(
    rows: pd.DataFrame, base: Side, new: Side, cells: pd.DataFrame, judged: pd.DataFrame, smallest: Mapping[str, float]
) -> pd.DataFrame:
    """The one word for each cell, and the metric that decided."""
    flaky = _flaky(rows)
    same_code = set(base.commits) == set(new.commits)
    verdicts = {name: judged[f"{name}_verdict"].tolist() for name in smallest}
    words, metrics = [], []
    for at, transition in enumerate(cells["transition"]):
        word, metric = _STATUS_WORDS.get(transition), None
        if transition == Transition.BOTH_PASS.value:
            word, metric = _of_metrics({name: told[at] for name, told in verdicts.items()})
            if cells["testbed_changed"].iat[at] is True and word is not None:
                word = Outcome.ENVIRONMENT_CHANGED if same_code else Outcome.INCONCLUSIVE
            elif same_code and word in _CHANGES and _surroundings_differ(cells, at):
                word = Outcome.ENVIRONMENT_CHANGED
        elif word in (Outcome.BROKE, Outcome.FIXED) and cells["cell_id_new"].iat[at] in flaky:
            word = Outcome.FLAKY
        words.append(None if word is None else word.value)
        metrics.append(metric)
    return pd.DataFrame({"verdict": words, "verdict_metric": metrics}, index=cells.index, dtype=object)


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


def _surroundings_differ(cells: pd.DataFrame, at: int) -> bool:
    base, new = (cells[f"environment_id_{name}"].iat[at] for name in ("base", "new"))
    return isinstance(base, str) and isinstance(new, str) and base != new


def _flaky(rows: pd.DataFrame) -> set[str]:
    """Cells that broke, were fixed and broke again (or the other way), and have not ended the same way twice since."""
    failed = rows["status"].ne(Status.PASS.value).groupby([rows["cell_id"], rows["run"]], sort=False).any()
    told = failed.to_numpy()
    cell_ids = failed.index.get_level_values(0).to_numpy()
    found = set()
    for cell_id in dict.fromkeys(cell_ids[told]):  # who never failed is not flaky
        outcomes = told[cell_ids == cell_id]
        if np.sum(outcomes[1:] != outcomes[:-1]) >= 3 and outcomes[-1] != outcomes[-2]:
            found.add(str(cell_id))
    return found
