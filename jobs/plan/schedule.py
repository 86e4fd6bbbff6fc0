"""In what order, and on which GPU, cells are measured, and how long that takes by what they are known to cost.

Pure: no process, no clock, no torch. Predictions assume that

- a worker takes the next cell as soon as it is free (list scheduling),
- one cell at a time tunes or measures; on a CPU every other cell stands still meanwhile, on a GPU the others compile on,
- running the model overlaps with the other cells' work on the CPU completely.

The last is what makes them a lower bound.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collector.bundle import BundleContents
from collector.vocabulary import Cell
from jobs.plan.cost import CostModel

#: Suite, model, phase: what stays together on one GPU, since configs of one model are compared with each other.
Group = tuple[str, str, str]

#: A budget counts as met by a prediction with this much to spare.
_SPARE = 1.2
#: By how much the longest share may exceed the best division so that groups stay where they were.
_STICKY = 1.1
#: By how much the predicted time of a plan whose long cells are spread may exceed that with all of them first.
_MIXED = 1.02
#: The part of a plan's time within which its long cells start: the short ones after it fill the gaps at the end.
_LONG_WITHIN = 0.8


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a plan takes on one GPU, in seconds, by the work on the CPU and by the time for which cells hold the device.

    `starts` has when each cell starts where the CPU is the limit.
    """

    cpu_limited_s: float
    device_limited_s: float
    starts: list[float]

    @property
    def total_s(self) -> float:
        """From the first cell's start to the last one's end: the larger of the two limits."""
        return max(self.cpu_limited_s, self.device_limited_s)

    def started_within(self, budget_s: float) -> int:
        """How many cells are started within so many seconds; where the device is the limit, each start is later by one factor."""
        stretch = self.total_s / self.cpu_limited_s if self.cpu_limited_s else 1.0
        return sum(start * stretch <= budget_s for start in self.starts)


def predict(cells: Sequence[Cell], model: CostModel, workers: int) -> Prediction:
    """What a plan takes in its order."""
    free = [0.0] * workers
    starts, shared_s, device_s, end = [], 0.0, 0.0, 0.0
    for cell in cells:
        cost = model.estimate(cell)
        # While a cell of a CPU works alone no other cell does: that is added to the time that all share.
        alone = min(cost.alone_s or 0.0, cost.worker_s) if cell.device == "cpu" else 0.0
        start = heapq.heappop(free)
        starts.append(start + shared_s)
        shared_s += alone
        heapq.heappush(free, start + cost.worker_s - alone)
        end = max(end, start + cost.worker_s - alone)
        device_s += (cost.device_s if cell.device == "cpu" else cost.alone_s) or 0.0
    return Prediction(end + shared_s, device_s, starts)


def longest_first(cells: Sequence[Cell], model: CostModel, workers: int, budget_s: float = float("inf")) -> list[Cell]:
    """Return the cells with the longest first, so that no worker is left alone with one at the end.

    Among them come the others, so that not all workers are at the longest cells at once, which tune most and wait for
    each other, and so that an interrupted night has more than its longest cells; unless that makes the whole longer.
    Where the budget may cut the plan short, its own order is kept: that order says what matters most.
    """
    ordered = sorted(cells, key=lambda cell: -model.estimate(cell).worker_s)
    total_s = predict(ordered, model, workers).total_s
    if budget_s < _SPARE * total_s:
        return list(cells)
    mixed = _mixed(ordered, model)
    return mixed if predict(mixed, model, workers).total_s <= _MIXED * total_s else ordered


def shares(
    cells: Sequence[Cell], model: CostModel, gpus: int, sticky: Mapping[Group, int] | None = None
) -> list[list[Cell]]:
    """The plan divided among `gpus` GPUs, each share in the plan's order; all cells of a group are in one share.

    The most expensive group goes first, to the GPU with the least so far. Groups in `sticky` keep the GPU that measured
    them last, unless the longest share then gets more than a tenth longer.
    """
    costs: dict[Group, float] = defaultdict(float)
    for cell in cells:
        costs[group_of(cell)] += model.estimate(cell).worker_s
    chosen = _assign(costs, gpus, {})
    if kept := {group: gpu for group, gpu in (sticky or {}).items() if group in costs and 0 <= gpu < gpus}:
        stayed = _assign(costs, gpus, kept)
        if max(_loads(costs, gpus, stayed)) <= _STICKY * max(_loads(costs, gpus, chosen)):
            chosen = stayed
    return [[cell for cell in cells if chosen[group_of(cell)] == gpu] for gpu in range(gpus)]


def group_of(cell: Cell) -> Group:
    """The group whose cells stay on one GPU."""
    return cell.suite, cell.model, cell.phase.value


def last_places(
    history: Iterable[BundleContents], place_of: Callable[[Mapping[str, Any]], int | None]
) -> dict[Group, int]:
    """By group the place that measured it last, of earlier runs, the newest first; `place_of` tells it from a testbed."""
    last: dict[Group, int] = {}
    for run in history:
        if (place := place_of(run.header.testbed)) is not None:
            last = {group_of(item.cell): place for item in run.measurements} | last
    return last


def _mixed(ordered: Sequence[Cell], model: CostModel) -> list[Cell]:
    """Return the cells with those that take longer than the mean spread over the first four fifths of the plan's time."""
    seconds = [model.estimate(cell).worker_s for cell in ordered]
    mean = sum(seconds) / (len(seconds) or 1)
    total_s = {True: sum(took for took in seconds if took > mean) / _LONG_WITHIN}
    total_s[False] = sum(took for took in seconds if took <= mean)
    places, placed_s = [], {True: 0.0, False: 0.0}
    for took in seconds:
        places.append(placed_s[took > mean] / (total_s[took > mean] or 1.0))
        placed_s[took > mean] += took
    return [ordered[index] for index in sorted(range(len(ordered)), key=places.__getitem__)]


def _assign(costs: Mapping[Group, float], gpus: int, kept: Mapping[Group, int]) -> dict[Group, int]:
    chosen, loads = dict(kept), _loads(costs, gpus, kept)
    for group in sorted(costs.keys() - kept.keys(), key=lambda group: (-costs[group], group)):
        chosen[group] = min(range(gpus), key=loads.__getitem__)
        loads[chosen[group]] += costs[group]
    return chosen


def _loads(costs: Mapping[Group, float], gpus: int, chosen: Mapping[Group, int]) -> list[float]:
    loads = [0.0] * gpus
    for group, gpu in chosen.items():
        loads[gpu] += costs[group]
    return loads
