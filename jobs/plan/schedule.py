"""In what order, and on which GPU, cells are measured, and how long that takes by what they are known to cost.

Pure: no process, no clock, no torch. Predictions assume that

- a worker takes the next cell as soon as it is free (list scheduling),
- the device is held by one cell at a time, and while one *measures* every other cell stands still,
- what else holds the device (tuning, running the model) overlaps with the other cells' work on the CPU completely.

The last is what makes them a lower bound: several cells that all tune at the same moment wait for each other.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.vocabulary import Cell
from jobs.plan.cost import CostModel

#: Suite, model, phase: what stays together on one GPU, since configs of one model are compared with each other.
Group = tuple[str, str, str]

#: A budget counts as met by a prediction with this much to spare.
_SPARE = 1.2
#: How much longer than the best share the longest lane may be for groups to stay where they were.
_STICKY = 1.1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What limits a plan on one GPU, in seconds: work on the CPU by its workers, or the device that is held by one."""

    cpu_limited_s: float
    device_limited_s: float

    @property
    def predicted_s(self) -> float:
        """The larger of the two: what is slower sets the pace."""
        return max(self.cpu_limited_s, self.device_limited_s)


def bounds(cells: Sequence[Cell], model: CostModel, workers: int, tune_together: bool = False) -> Bounds:
    """Both limits of a plan in its order. With `tune_together`, tuning does not count as holding the device.

    Raises:
        ValueError: no worker.
    """
    _, cpu_limited_s = _list_schedule(cells, model, workers)
    device = 0.0
    for cell in cells:
        cost = model.estimate(cell)
        device += (cost.device_s or 0.0) - ((cost.tune_s or 0.0) if tune_together else 0.0)
    return Bounds(cpu_limited_s, device)


def predicted_s(cells: Sequence[Cell], model: CostModel, workers: int, tune_together: bool = False) -> float:
    """Seconds from the first cell's start to the last one's end on one GPU, under this module's assumptions.

    Raises:
        ValueError: no worker.
    """
    return bounds(cells, model, workers, tune_together).predicted_s


def started_within(
    cells: Sequence[Cell], model: CostModel, workers: int, budget_s: float, tune_together: bool = False
) -> int:
    """How many cells of a plan, in its order, are started within `budget_s` seconds.

    Raises:
        ValueError: no worker.
    """
    starts, makespan = _list_schedule(cells, model, workers)
    # Where the device sets the pace, every start is later by the same factor.
    stretch = predicted_s(cells, model, workers, tune_together) / makespan if makespan else 1.0
    return sum(start * stretch <= budget_s for start in starts)


def longest_first(cells: Sequence[Cell], model: CostModel, workers: int, budget_s: float = float("inf")) -> list[Cell]:
    """The cells with the longest first, so that no worker is left alone with one at the end; equals keep their order.

    Where the budget may cut the plan short, its own order is kept: that order says what matters most.
    """
    ordered = sorted(cells, key=lambda cell: -model.estimate(cell).worker_s)
    if budget_s < _SPARE * predicted_s(ordered, model, workers):
        return list(cells)
    return ordered


def shares(
    cells: Sequence[Cell], model: CostModel, lanes: int, sticky: Mapping[Group, int] | None = None
) -> list[list[Cell]]:
    """The plan divided among `lanes` GPUs, each share in the plan's order; all cells of a group are in one share.

    The dearest group first, each to the lane with the least seconds of a worker. With `sticky`, groups keep the lane on
    which they were measured last, unless the longest lane is then more than a tenth longer.

    Raises:
        ValueError: no lane.
    """
    if lanes < 1:
        raise ValueError("a plan is divided among at least one lane")
    costs: dict[Group, float] = defaultdict(float)
    for cell in cells:
        costs[group_of(cell)] += model.estimate(cell).worker_s
    chosen = _assign(costs, lanes, {})
    if kept := {group: lane for group, lane in (sticky or {}).items() if group in costs and 0 <= lane < lanes}:
        stayed = _assign(costs, lanes, kept)
        if _longest(costs, stayed) <= _STICKY * _longest(costs, chosen):
            chosen = stayed
    found: list[list[Cell]] = [[] for _ in range(lanes)]
    for cell in cells:
        found[chosen[group_of(cell)]].append(cell)
    return found


def group_of(cell: Cell) -> Group:
    """The group whose cells stay on one GPU."""
    return cell.suite, cell.model, cell.phase.value


def _assign(costs: Mapping[Group, float], lanes: int, kept: Mapping[Group, int]) -> dict[Group, int]:
    chosen = dict(kept)
    loads = [0.0] * lanes
    for group, lane in kept.items():
        loads[lane] += costs[group]
    for group in sorted(costs.keys() - kept.keys(), key=lambda group: (-costs[group], group)):
        chosen[group] = min(range(lanes), key=loads.__getitem__)
        loads[chosen[group]] += costs[group]
    return chosen


def _longest(costs: Mapping[Group, float], chosen: Mapping[Group, int]) -> float:
    loads: dict[int, float] = defaultdict(float)
    for group, lane in chosen.items():
        loads[lane] += costs[group]
    return max(loads.values(), default=0.0)


def _list_schedule(cells: Sequence[Cell], model: CostModel, workers: int) -> tuple[list[float], float]:
    """Seconds at which each cell starts, and at which the last one ends.

    While a cell measures, nobody else works: its measuring is added to the time that all share, so far as it is spent.
    """
    if workers < 1:
        raise ValueError("a plan needs at least one worker")
    free = [0.0] * workers
    starts, alone, end = [], 0.0, 0.0
    for cell in cells:
        cost = model.estimate(cell)
        measuring = min(cost.measure_s or 0.0, cost.worker_s)
        start = heapq.heappop(free)
        starts.append(start + alone)
        alone += measuring
        heapq.heappush(free, start + cost.worker_s - measuring)
        end = max(end, start + cost.worker_s - measuring)
    return starts, end + alone
