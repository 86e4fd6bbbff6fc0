"""What became of a cell in each dimension: it may be faster and larger, and neither hides the other.

A dimension is latency, memory, compile, correctness or graphs (`collector.metrics.Dimension`). Its metrics are judged one by
one (`analysis.compare.verdicts`); this module makes one finding of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.cell_outcome import CHANGES, CONCLUSIVE, OF_STATUS, Outcome
from analysis.compare.judged import Judged
from collector.metrics import METRICS, Dimension

#: The two latencies, which are one finding.
WALL, DEVICE = "compiled_ms", "compiled_kernel_ms"
#: Of several verdicts on one dimension the first that occurs counts.
ORDER = (
    *(Outcome.REGRESSED, Outcome.IMPROVED, Outcome.ENVIRONMENT_CHANGED),
    *(Outcome.INCONCLUSIVE, Outcome.UNCHANGED),
)
#: The dimensions by what a user waits for first.
_FIRST = (Dimension.LATENCY, Dimension.MEMORY, Dimension.GRAPHS, Dimension.COMPILE, Dimension.CORRECTNESS)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a cell in one dimension, by the metric that tells it best.

    `judged` is that metric, `beside` the other latency. Without a metric the status or the generated code decided.
    """

    dimension: Dimension
    verdict: Outcome
    judged: Judged | None = None
    beside: Judged | None = None

    @property
    def metric(self) -> str | None:
        """The metric that tells it best."""
        return self.judged.metric if self.judged else None

    @property
    def change(self) -> float | None:
        """The relative change (0.02 is 2 %) without the machine's part."""
        return self.judged.adjusted if self.judged else None

    @property
    def size(self) -> float:
        """How large the change is, for sorting; infinite for one that has no ratio, since it began at 0."""
        if self.judged is None:
            return 0.0
        begins_at_zero = self.verdict in CHANGES and self.judged.shown is None
        return float("inf") if begins_at_zero else abs(self.judged.shown or 0.0)

    @property
    def is_host_overhead(self) -> bool:
        """Whether the calls take longer or shorter while the device is busy for as long as before."""
        is_wall = self.metric == WALL and self.verdict in CHANGES
        return is_wall and self.beside is not None and self.beside.verdict is Outcome.UNCHANGED

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands among the findings of its cell, what matters most first: a status, then a change, then latency."""
        place = CHANGES.index(self.verdict) + 1 if self.verdict in CHANGES else 0 if self.verdict in OF_STATUS else 3
        return place, _FIRST.index(self.dimension)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; every key is there."""
        parts = {name: getattr(self.judged, name, None) for name in ("low", "high", "q")}
        return {
            **{"dimension": self.dimension, "verdict": self.verdict, "metric": self.metric, "change": self.change},
            **parts,
        }


def findings(
    outcome: Outcome,
    metric: str | None,
    judged: Mapping[str, Judged],
    *,
    moved: bool = False,
    ran: bool = True,
) -> tuple[Finding, ...]:
    """Return a cell's findings, in the order of the dimensions; none where nothing can be said of the cell.

    `metric` decided the outcome. `moved`: the sides measured the cell on different testbeds. `ran`: it ran on both sides; of a
    cell that did not only equal code says anything.
    """
    if outcome.verdict is None or (not ran and outcome is not Outcome.UNCHANGED):
        return ()
    if outcome.verdict in OF_STATUS:
        return (Finding(Dimension.CORRECTNESS, outcome.verdict),)
    found = {Dimension.CORRECTNESS: Finding(Dimension.CORRECTNESS, Outcome.UNCHANGED)}
    for dimension, of_dimension in _by_dimension(judged).items():
        # Where a change of wall time must be seen in a second run, latency stays open.
        is_open = outcome is Outcome.INCONCLUSIVE and metric == WALL
        verdict = _latency(judged, is_open) if dimension is Dimension.LATENCY else _first(of_dimension)
        shown = min((one for one in of_dimension if one.verdict is verdict), key=_width, default=of_dimension[0])
        beside = next((one for one in of_dimension if one is not shown), None)
        found[dimension] = Finding(
            dimension,
            _elsewhere(outcome, verdict, moved),
            shown,
            beside if dimension is Dimension.LATENCY else None,
        )
    if Dimension.LATENCY not in found and outcome is Outcome.UNCHANGED:
        found[Dimension.LATENCY] = Finding(Dimension.LATENCY, Outcome.UNCHANGED)  # the same code, which was not timed
    return tuple(found[dimension] for dimension in Dimension if dimension in found)


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


def _by_dimension(judged: Mapping[str, Judged]) -> dict[Dimension, list[Judged]]:
    by_dimension: dict[Dimension, list[Judged]] = {}
    for name, one in judged.items():
        if (dimension := METRICS[name].dimension) is not None:
            by_dimension.setdefault(dimension, []).append(one)
    return by_dimension


def _latency(judged: Mapping[str, Judged], is_open: bool) -> Outcome:
    """Return the verdict on latency: wall time is what a user waits for, device time decides where that is open."""
    verdicts = {name: judged[name].verdict for name in (WALL, DEVICE) if name in judged}
    if is_open:
        return Outcome.INCONCLUSIVE
    if verdicts.get(WALL) in CONCLUSIVE:
        return verdicts[WALL]
    return verdicts.get(DEVICE, verdicts.get(WALL, Outcome.INCONCLUSIVE))


def _first(of_dimension: Sequence[Judged]) -> Outcome:
    return min((one.verdict for one in of_dimension), key=ORDER.index)


def _width(one: Judged) -> tuple[float, bool]:
    return one.width, one.metric == WALL  # device time is the steadier one


def _elsewhere(outcome: Outcome, verdict: Outcome, moved: bool) -> Outcome:
    """Return the verdict where machine or libraries differ between the sides, as that of the whole cell was changed."""
    if outcome is Outcome.ENVIRONMENT_CHANGED and (moved or verdict in CHANGES):
        return Outcome.ENVIRONMENT_CHANGED
    return Outcome.INCONCLUSIVE if moved else verdict
