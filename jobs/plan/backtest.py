"""How long measured nights took against what the costs of their own cells predict: the factor for other predictions.

The factor covers what no cell's own clock measures: starting and ending its process, workers that wait for the device at
the same moment, and the end of a night when not every worker has a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from collector.bundle import BundleContents
from collector.vocabulary import Measurement, Status
from jobs.plan.cost import CostModel
from jobs.plan.duplicate_programs import SAME_PROGRAM
from jobs.plan.schedule import predict


@dataclass(frozen=True, slots=True)
class Night:
    """What one GPU did in a run: its cells, workers, and seconds, taken and predicted."""

    run_id: str
    cells: int
    workers: int
    took_s: float
    predicted_s: float


def backtest(contents: BundleContents) -> Night | None:
    """A bundle against its own prediction; None where it has too few cells to keep its workers busy."""
    items = [item for item in contents.measurements if SAME_PROGRAM not in item.details]
    spans = sorted(span for item in items if (span := _span(item)))
    if not spans or any(map(_waited_unknown_time, items)):
        return None
    workers = contents.header.testbed.get("workers") or 1
    took_s = max(end for _, end in spans) - spans[0][0]
    if len(spans) < 2 * workers or took_s <= 0:
        return None
    # A bundle has cells in the order in which they ended; they were started in another.
    cells = [item.cell for item in sorted(items, key=lambda item: item.started_at)]
    model = CostModel.learn(items)
    # The device cannot have been held one cell at a time for longer than the night: then cells tuned together.
    together = predict(cells, model, workers).device_limited_s > took_s
    predicted_s = predict(cells, model, workers, together).total_s
    return Night(contents.header.run_id, len(cells), workers, took_s, predicted_s) if predicted_s > 0 else None


def backtests(history: Iterable[BundleContents]) -> list[Night]:
    """Every bundle that can be compared with its prediction, in the order of the history."""
    return [night for contents in history if (night := backtest(contents))]


def slack(nights: Sequence[Night]) -> float:
    """Seconds taken over seconds predicted, over all nights together; 1 where there is none."""
    predicted = sum(night.predicted_s for night in nights)
    return sum(night.took_s for night in nights) / predicted if predicted else 1.0


def _waited_unknown_time(item: Measurement) -> bool:
    # Waiting does not count against the time limit, and the first bundles do not say how long it was.
    return item.status is Status.TIMEOUT and "waited_s" not in item.details


def _span(item: Measurement) -> tuple[float, float] | None:
    """Start and end of a cell, in seconds since the epoch."""
    try:
        start = datetime.fromisoformat(item.started_at).timestamp()
    except ValueError:
        return None
    return start, start + item.wall_s
