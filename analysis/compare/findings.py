"""What became of a cell in each dimension: it may be faster and larger, and neither hides the other.

A dimension is latency, memory, compile, correctness or graphs (`collector.metrics.Dimension`). Its metrics are judged one by
one (`analysis.compare.verdicts`); this module makes one finding of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.compare.cell_outcome import CHANGES, CONCLUSIVE, OF_STATUS, Outcome
from analysis.compare.results import plain
from collector.metrics import METRICS, Dimension

#: The two latencies, which are one finding.
_WALL, _DEVICE = "compiled_ms", "compiled_kernel_ms"
#: What of a metric's judgement a finding has.
_PARTS = ("verdict", "adjusted", "low", "high", "q")
#: Of several verdicts on one dimension the first that occurs counts.
_ORDER = (
    *(Outcome.REGRESSED, Outcome.IMPROVED, Outcome.ENVIRONMENT_CHANGED),
    *(Outcome.INCONCLUSIVE, Outcome.UNCHANGED),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a cell in one dimension, by the metric that tells it best.

    `change` is relative to base (0.02 is 2 %), without the machine's part, with its 95 % interval `low` to `high`; `q` is the
    false discovery rate. Without a metric the status or the generated code decided.
    """

    dimension: Dimension
    verdict: Outcome
    metric: str | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    q: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; every key is there."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def size(self) -> float:
        """Return how large the change is, for sorting."""
        return abs(self.change) if self.change is not None else 0.0


@dataclass(frozen=True, slots=True)
class _Judged:
    """One metric of a cell."""

    metric: str
    verdict: Outcome
    change: float | None
    low: float | None
    high: float | None
    q: float | None

    @property
    def width(self) -> float:
        """Return the width of the interval; infinite where there is none."""
        return float("inf") if self.low is None or self.high is None else self.high - self.low


def findings(row: Mapping[Any, Any]) -> tuple[Finding, ...]:
    """Return a cell's findings, in the order of the dimensions, from its row of `Judgement.cells` and of the comparison's."""
    overall = row["verdict"]
    if not isinstance(overall, str):
        return ()
    if overall in OF_STATUS:
        return (Finding(Dimension.CORRECTNESS, Outcome(overall)),)
    found = {Dimension.CORRECTNESS: Finding(Dimension.CORRECTNESS, Outcome.UNCHANGED)}
    for dimension, judged in _by_dimension(row).items():
        verdict = _latency(row, judged) if dimension is Dimension.LATENCY else _first(one.verdict for one in judged)
        shown = min((one for one in judged if one.verdict is verdict), key=lambda one: one.width, default=judged[0])
        found[dimension] = Finding(
            dimension, _elsewhere(row, verdict), shown.metric, shown.change, shown.low, shown.high, shown.q
        )
    if Dimension.LATENCY not in found and overall == Outcome.UNCHANGED.value:
        found[Dimension.LATENCY] = Finding(Dimension.LATENCY, Outcome.UNCHANGED)  # the same code, which was not timed
    return tuple(found[dimension] for dimension in Dimension if dimension in found)


def of_findings() -> list[str]:
    """Return the names of the columns that `findings` reads."""
    judged = [name for name, metric in METRICS.items() if metric.dimension is not None]
    return ["verdict", "verdict_metric", "testbed_changed", *(f"{name}_{part}" for name in judged for part in _PARTS)]


def count_findings(found: Iterable[Iterable[Finding]]) -> dict[Dimension, dict[str, int]]:
    """Return how many cells have which verdict in each dimension that occurs."""
    counts: dict[Dimension, Counter[str]] = {}
    for finding in (one for of_cell in found for one in of_cell):
        counts.setdefault(finding.dimension, Counter())[finding.verdict.value] += 1
    return {
        dimension: {
            outcome.value: counts[dimension][outcome.value] for outcome in Outcome if counts[dimension][outcome.value]
        }
        for dimension in Dimension
        if dimension in counts
    }


def _by_dimension(row: Mapping[Any, Any]) -> dict[Dimension, list[_Judged]]:
    by_dimension: dict[Dimension, list[_Judged]] = {}
    for name, metric in METRICS.items():
        verdict = row.get(f"{name}_verdict")
        if metric.dimension is None or not isinstance(verdict, str):
            continue
        change, low, high, q = (_number(row.get(f"{name}_{part}")) for part in ("adjusted", "low", "high", "q"))
        by_dimension.setdefault(metric.dimension, []).append(_Judged(name, Outcome(verdict), change, low, high, q))
    return by_dimension


def _latency(row: Mapping[Any, Any], judged: list[_Judged]) -> Outcome:
    """Return the verdict on latency: wall time is what a user waits for, device time decides where that is open.

    It stays open where a change of wall time must be seen in a second run (`analysis.compare.verdicts`).
    """
    if row["verdict"] == Outcome.INCONCLUSIVE.value and row.get("verdict_metric") == _WALL:
        return Outcome.INCONCLUSIVE
    verdicts = {one.metric: one.verdict for one in judged}
    if verdicts.get(_WALL) in CONCLUSIVE:
        return verdicts[_WALL]
    return verdicts.get(_DEVICE, verdicts.get(_WALL, Outcome.INCONCLUSIVE))


def _first(verdicts: Iterable[Outcome]) -> Outcome:
    return min(verdicts, key=_ORDER.index)


def _elsewhere(row: Mapping[Any, Any], verdict: Outcome) -> Outcome:
    """Return the verdict where machine or libraries differ between the sides, as that of the whole cell was changed."""
    moved = row.get("testbed_changed") is True
    if row["verdict"] == Outcome.ENVIRONMENT_CHANGED.value and (moved or verdict in CHANGES):
        return Outcome.ENVIRONMENT_CHANGED
    return Outcome.INCONCLUSIVE if moved else verdict


def _number(value: Any) -> float | None:
    known = plain(value) if value is not None and not pd.isna(value) else None
    return None if known is None else float(known)
