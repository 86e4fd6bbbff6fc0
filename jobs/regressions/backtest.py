"""How long measured nights took against what the costs of their own cells predict: what a prediction must be multiplied by.

The factor holds what no cell's own clock sees: starting and ending its process, workers that wait for the device at the
same moment, and the end of a night when not every worker has a cell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from collector.bundle import BundleContents
from collector.vocabulary import Measurement, Status
from jobs.plan.cost import CostModel
from jobs.plan.duplicate_programs import SAME_PROGRAM
from jobs.plan.schedule import bounds


@dataclass(frozen=True, slots=True)
class Night:
    """What one GPU did in a run that had `gpus`: its cells, workers, and seconds, taken and predicted."""

    run_id: str
    gpu: int
    gpus: int
    cells: int
    workers: int
    took_s: float
    predicted_s: float


def backtest(contents: BundleContents) -> list[Night]:
    """A bundle against its own prediction, GPU by GPU; one with too few cells to keep its workers busy is left out."""
    by_gpu = _by_gpu(contents)
    gpus = max(len(by_gpu), *(_told_gpus(contents, item) for items in by_gpu.values() for item in items), 1)
    nights = (_night(contents, gpu, gpus, by_gpu[gpu]) for gpu in sorted(by_gpu))
    return [night for night in nights if night is not None]


def backtests(history: Sequence[BundleContents]) -> list[Night]:
    """Every bundle that can be held against its prediction, in the order of the history."""
    return [night for contents in history for night in backtest(contents)]


def measured(contents: BundleContents) -> list[Measurement]:
    """What a bundle's run did: its measurements without those taken over from a cell of the same program."""
    return [item for item in contents.measurements if SAME_PROGRAM not in item.details]


def slack(nights: Sequence[Night]) -> float:
    """Seconds taken over seconds predicted, over all nights together; 1 where there is none."""
    predicted = sum(night.predicted_s for night in nights)
    return sum(night.took_s for night in nights) / predicted if predicted else 1.0


def _by_gpu(contents: BundleContents) -> dict[int, list[Measurement]]:
    """The measurements of each GPU by its number; a cell that died before it could say goes to the only one there is."""
    found: dict[int | None, list[Measurement]] = defaultdict(list)
    for item in measured(contents):
        found[_surroundings(contents, item).get("gpu_index")].append(item)
    silent = found.pop(None, [])
    told = {int(gpu): items for gpu, items in found.items() if gpu is not None}
    if len(told) > 1:
        return told
    gpu = next(iter(told), 0)
    return {gpu: [*told.get(gpu, []), *silent]}


def _night(contents: BundleContents, gpu: int, gpus: int, items: Sequence[Measurement]) -> Night | None:
    spans = sorted(_spans(items))
    if not spans:
        return None
    told = [_surroundings(contents, item).get("workers") for item in items]
    workers = max((number for number in told if number), default=0) or _most_at_once(spans)
    took_s = max(end for _, end in spans) - spans[0][0]
    if len(spans) < 2 * workers or took_s <= 0 or any(map(_took_nobody_knows_what, items)):
        return None
    # A bundle has them in the order in which they ended; they were handed out in that of their starts.
    cells = [item.cell for item in sorted(items, key=lambda item: item.started_at)]
    model = CostModel.learn(items)
    # Longer than the night itself the device cannot have been held by one at a time: then cells tuned together.
    together = bounds(cells, model, workers).device_limited_s > took_s
    predicted = bounds(cells, model, workers, together).predicted_s
    return Night(contents.header.run_id, gpu, gpus, len(cells), workers, took_s, predicted) if predicted > 0 else None


def _took_nobody_knows_what(item: Measurement) -> bool:
    # Its time limit does not count what it stood, and bundles of before that was told do not say how long that was.
    return item.status is Status.TIMEOUT and "waited_s" not in item.details


def _told_gpus(contents: BundleContents, item: Measurement) -> int:
    """How many GPUs of the host were measured on at once: the others have bundles of their own."""
    told = _surroundings(contents, item).get("gpus")
    return told if isinstance(told, int) else 1


def _surroundings(contents: BundleContents, item: Measurement) -> Mapping[str, Any]:
    return contents.environments.get(item.environment_id or "", {})


def _spans(items: Sequence[Measurement]) -> list[tuple[float, float]]:
    """Start and end of each cell, in seconds since the epoch."""
    found = []
    for item in items:
        try:
            start = datetime.fromisoformat(item.started_at).timestamp()
        except ValueError:
            continue
        found.append((start, start + item.wall_s))
    return found


def _most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    # Starts are known to the second: a cell that ends within one of another's start did not run beside it.
    events = sorted([(start, 1) for start, _ in spans] + [(max(start, end - 1.0), -1) for start, end in spans])
    running = most = 0
    for _, change in events:
        running += change
        most = max(most, running)
    return max(most, 1)
