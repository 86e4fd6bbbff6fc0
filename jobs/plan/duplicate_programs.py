"""Equal programs under several names: measured once, shown under each.

Cells that differ only in the name of their config, and whose program is the same, are **duplicates**. The first in the
plan is measured, the others get its outcome. The exception is the A/A pair: template `triton` and mode `default` are one
program measured twice on purpose, so that every night has a comparison of equals.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Measurement, canonical_json

#: In the details of a measurement that was taken under another name: the name of that config.
SAME_PROGRAM = "same_program_as"
#: The half of the A/A pair that is never the duplicate of another config.
_CONTROL = Config(template="triton")


@dataclass(frozen=True, slots=True)
class Work:
    """What is left of a plan: `cells` to measure, in its order, and duplicates.

    `duplicates` get the outcome of one of the cells, by its `cell_id`; `copies` are the outcomes of duplicates of what was
    measured before.
    """

    cells: list[Cell]
    duplicates: dict[str, list[Cell]] = field(default_factory=dict)
    copies: list[Measurement] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many cells will have an outcome when all is done."""
        return len(self.cells) + self.named_twice + len(self.copies)

    @property
    def named_twice(self) -> int:
        """How many cells wait for the outcome of another."""
        return sum(map(len, self.duplicates.values()))


def find_duplicates(planned: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The duplicates of every cell that is measured for others, by its `cell_id`; it comes before them in the plan."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in {cell.cell_id: cell for cell in planned}.values():
        subject = (cell.suite, cell.model, cell.phase, cell.dtype, cell.device, cell.batch_size)
        groups.setdefault((*subject, program_key(cell.config, cell.device)), []).append(cell)
    return {first.cell_id: others for first, *others in groups.values() if others}


def plan_work(
    planned: Sequence[Cell], done: Mapping[str, Measurement] | None = None, again: Collection[str] = ()
) -> Work:
    """What is left of a plan when `done` is recorded, by `cell_id`, of which `again` is to be measured once more.

    A duplicate gets the new outcome of its cell, or the recorded one where its copy is lost or out of date.
    """
    done = done or {}
    duplicates = find_duplicates(planned)
    follows = {cell.cell_id for others in duplicates.values() for cell in others}
    work = Work([])
    for cell_id, cell in {cell.cell_id: cell for cell in planned}.items():
        if cell_id in follows:
            continue
        others = duplicates.get(cell_id, [])
        if cell_id not in done or cell_id in again:
            work.cells.append(cell)
            if others:
                work.duplicates[cell_id] = others
            continue
        copies = [copy_for(other, done[cell_id]) for other in others]
        work.copies.extend(copy for copy in copies if done.get(copy.cell.cell_id) != copy)
    return work


def copy_for(cell: Cell, measured: Measurement) -> Measurement:
    """The outcome of another cell under the name of `cell`."""
    return replace(measured, cell=cell, details={**measured.details, SAME_PROGRAM: measured.cell.config.name})


@cache
def program_key(config: Config, device: str) -> str:
    """What two configs must share to be one program on a device, measured in one way.

    Requested options that are no part of the program count too: on a CPU the GPU's options decide whether a config is
    available, and the number of compiling threads decides how long it takes.
    """
    if not config.is_inductors:
        return config.config_id  # other back-ends take no options: nothing but the name of one says what it does
    effective = resolve_config(config, device)
    beside = {key: value for key, value in effective.options.items() if key not in effective.program}
    is_control = replace(config, dynamic=None, fullgraph=False) == _CONTROL
    return canonical_json([effective.program_id, beside, config.dynamic, config.fullgraph, is_control])
