"""Play recorded nights with today's scheduler in simulated time, and print how long they take.

    python -m benchmarks played_night BUNDLE... [--workers 15] [--memory-gb 79] [--gpus 1] [--check-part 1.0]

For each program in the bundles one process is played, from the first bundle that has it: its recorded work without waits and
stops, the times for which it held the GPU, and the memory that it kept and needed. Waits and stops come from the scheduler,
which is the real one, with the order and the memory of a first night. Repeated measurements and the slowdown by cells on other
cores are not played. So the result compares schedulers, and is no forecast. With several GPUs each plays its share of the models,
each with this number of workers. `--check-part 0.5` plays checks that take half of the memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from collector.bundle import read_bundle
from collector.vocabulary import Cell, Measurement, Stage, Status
from jobs.plan.cost import is_whole, kept_bytes, shipped_costs
from jobs.plan.shards import longest_first, shares
from jobs.plan.spared_cells import SAME_PROGRAM
from jobs.pool import gpu_scheduler
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.session import memory_of
from tests.jobs.virtual import Script, Step, World

#: Purposes for which a cell has the GPU alone while it compiles, and when it is timed.
_COMPILING, _TIMING = ("tune", "choose"), ("measure", "profile")
#: The number of parts of the work of compiling, each followed by a part of the tuning.
_PARTS = 20
#: The parts of a cell's time on the GPU beside others (loading, eager form, check), and the check's part of the cell's work.
_LOAD_PART, _EAGER_PART, _CHECK_PART, _WORK_OF_CHECK = 0.15, 0.05, 0.8, 0.1
_CHECKS = 6
#: The part of a check's peak that stays between its calls, for the copies of outputs, and the memory that it requests for its
#: reference besides, in multiples of eager's memory.
_KEPT_IN_CHECK, _REFERENCE_TIMES = 0.5, 2.2
#: The part of the time for which cells hold the GPU beside others that is theirs: in the rest they stand still for one that has
#: it alone. In two checks on H200s (7ce112cd, 21f37d48) it was 0.42 and 0.39.
_OWN_PART = 0.4
#: Seconds of importing, and bytes for candidates of tuning.
_START_S, _TUNING_BYTES = 2.0, 1_000_000_000
#: The least seconds of timing; shorter tuning is not played.
_LEAST_S = 0.05


@dataclass(frozen=True, slots=True)
class Played:
    """A measurement to play, the device memory that a cell of its model keeps while it compiles, and the factor of its check."""

    found: Measurement
    keeps: int
    check_part: float = 1.0

    def script(self) -> Script:
        """Return the process's steps of work and of use of the device."""
        details = self.found.details
        held, sizes = details.get("held_s", {}), details.get("stage_bytes", {})
        alone = {purpose: float(held.get(purpose, 0.0)) for purpose in (*_COMPILING, *_TIMING)}
        shared = float(held.get("device", 0.0))
        on_device = _OWN_PART * shared
        spent = self.found.wall_s - details.get("waited_s", 0.0) - sum(alone.values()) - on_device - _START_S
        work, peak = max(1.0, spent), max(self.keeps, int(self.check_part * sizes.get("correctness", 0)))
        later = max(self.keeps, int(sizes.get("done", 0)))  # with a graph's pool
        steps = [
            Step("work", _START_S, stage=Stage.START),
            Step("device", _LOAD_PART * on_device, None, self.keeps, Stage.LOAD_MODEL, int(sizes.get("load_model", 0))),
            Step("device", _EAGER_PART * on_device, None, self.keeps, Stage.EAGER, int(sizes.get("eager", 0))),
        ]
        for _ in range(_PARTS):
            steps.append(Step("work", (1 - _WORK_OF_CHECK) * work / _PARTS))
            steps += [
                Step(purpose, alone[purpose] / _PARTS, self.keeps + _TUNING_BYTES, self.keeps)
                for purpose in _COMPILING
                if alone[purpose] > _LEAST_S
            ]
        timed = max(self.keeps, int(sizes.get("timing", 0)))
        steps += [Step(name, max(_LEAST_S, alone[name]), timed, later, Stage.TIMING) for name in _TIMING]
        copies = later + int(_KEPT_IN_CHECK * (peak - later))
        reference = copies + int(_REFERENCE_TIMES * int(sizes.get("eager", 0)))
        for number in range(_CHECKS):
            asked, kept = (timed, copies) if number == 0 else (reference, later if number == _CHECKS - 1 else copies)
            steps.append(Step("device", _CHECK_PART * on_device / _CHECKS, asked, kept, Stage.CORRECTNESS))
            steps.append(Step("work", _WORK_OF_CHECK * work / _CHECKS, stage=Stage.CORRECTNESS))
        return Script(steps)


def played(measurements: Iterable[Measurement], check_part: float = 1.0) -> dict[str, Played]:
    """Return by `cell_id` the first whole measurement of each cell, to be played; checks take `check_part` of their memory."""
    whole = dict[str, Measurement]()
    for found in measurements:
        is_own = is_whole(found) and SAME_PROGRAM not in found.details and "held_s" in found.details
        if is_own and found.status in (Status.PASS, Status.ILL_CONDITIONED):
            whole.setdefault(found.cell.cell_id, found)
    kept = dict[str, float]()
    for found in whole.values():
        if (size := kept_bytes(found)) is not None:
            kept[_model(found.cell)] = min(size, kept.get(_model(found.cell), size))
    return {cell_id: Played(one, int(kept.get(_model(one.cell), 0)), check_part) for cell_id, one in whole.items()}


def _model(cell: Cell) -> str:
    return json.dumps({name: value for name, value in cell.to_json().items() if name != "config"})


def play(found: Mapping[str, Played], cells: Sequence[Cell], workers: int, memory_bytes: float, extra: int) -> World:
    """Play cells on one GPU with a free core and `extra` more cells than workers; return the simulated world with its times."""
    costs = shipped_costs()
    cells = longest_first(cells, costs, workers)
    of_number, known, tuned = dict(enumerate(cells, 1)), memory_of(costs), gpu_scheduler.tuned_model

    def needs(cell: Cell, stage: Stage) -> float | None:
        of_night = of_number[cell.batch_size]
        part = found[of_night.cell_id].check_part if stage is Stage.CORRECTNESS else 1.0
        size = known(of_night, stage)
        return None if size is None else part * size

    def model(cell: Cell) -> Any:
        return tuned(of_number[cell.batch_size])

    slot = DeviceSlot([[core] for core in range(workers)], {}, memory_bytes, [workers], extra)
    with patch.object(gpu_scheduler, "tuned_model", model):
        world = World((found[cell.cell_id].script() for cell in cells), slot, needs)
        world.run()
    return world


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--workers", default=15, show_default=True, type=click.IntRange(1))
@click.option("--extra-cells", default=5, show_default=True, type=click.IntRange(0))
@click.option("--memory-gb", default=79.0, show_default=True, type=click.FloatRange(1.0))
@click.option("--gpus", default=1, show_default=True, type=click.IntRange(1))
@click.option("--check-part", default=1.0, show_default=True, type=click.FloatRange(0.0, 1.0))
def main(
    bundles: tuple[Path, ...], workers: int, extra_cells: int, memory_gb: float, gpus: int, check_part: float
) -> None:
    """Play the programs of these bundles."""
    found = played((one for bundle in bundles for one in read_bundle(bundle).measurements), check_part)
    for cells in shares([one.found.cell for one in found.values()], shipped_costs(), gpus):
        world = play(found, cells, workers, 1e9 * memory_gb, extra_cells)
        busy = sum(end - begin for _, begin, end in world.lives) / ((workers + extra_cells) * world.now)
        ends = sorted(end for _, _, end in world.lives)
        *others, longest = sorted(world.lives, key=lambda life: life[2] - life[1])
        rest_s = max((end for _, _, end in others), default=0.0)
        print(f"{len(cells)} programs in {world.now:.0f} s, half of them after {ends[len(ends) // 2]:.0f} s")
        print(f"the longest took {longest[2] - longest[1]:.0f} s, the last of the others ended after {rest_s:.0f} s")
        print(f"places with a cell: {busy:.0%}; sent back for want of memory: {sum(world.sent_back.values())}")


if __name__ == "__main__":
    main()
