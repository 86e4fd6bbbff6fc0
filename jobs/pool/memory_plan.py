"""What cells will need of a device's memory: from earlier runs, from the cells of this one, else a part of the device.

A cell knows what it needs once its eager form has run. Before that this plan tells; a cell that needs more than it says ends
with `oom` at its own limit, before anything was compiled, and starts again with twice as much. No neighbour notices.
"""

from __future__ import annotations

from collections.abc import Callable

from collector.vocabulary import KEPT_BYTES, Cell, Measurement, Stage, Status

#: What a process takes of a device before it allocates anything: CUDA's context, the kernels of torch and of libraries. On
#: an H100 with torch 2.11 nvidia-smi shows 0.5 to 0.7 GB.
CONTEXT_BYTES = 700e6
#: Part of the device's memory that a model may take where nobody knows, to load and to run in eager mode, and the bytes that this
#: is at least: on a GPU with 24 GB free a 32nd would have most models of a billion weights start four times.
_UNKNOWN_PART = {Stage.LOAD_MODEL: 1 / 32, Stage.EAGER: 1 / 16}
_LEAST_BYTES = {Stage.LOAD_MODEL: 2e9, Stage.EAGER: 4e9}
#: By how much a process may need more than another of the same cell: the allocator's fragments, a library's workspace.
_MARGIN, _MORE_BYTES = 1.1, 256e6
#: What a cell asks for at most while it compiles and is timed, as a multiple of what its eager form takes
#: (`collector.measure.cell`).
_CALLS = 1.5
#: Stages whose needs are learned as they were recorded.
_LEARNED = frozenset({Stage.LOAD_MODEL.value, Stage.EAGER.value, Stage.CORRECTNESS.value})

#: Bytes of device memory that a cell needs in a stage, or None if that is not known: to compile, what it keeps between its calls.
MemoryOf = Callable[[Cell, Stage], float | None]

_Key = tuple[str, str, str, str, int, Stage]


class MemoryPlan:
    """The bytes that cells need in the stages in which they cannot know themselves.

    `total` is what all cells may have together, `memory_of` tells what earlier runs recorded.
    """

    def __init__(self, total: float, memory_of: MemoryOf) -> None:
        #: What one cell may have beside its context.
        self._most, self._memory_of = max(0.0, total - CONTEXT_BYTES), memory_of
        #: What cells of this run have shown, by model and stage: earlier runs may have had less.
        self._shown: dict[_Key, float] = {}

    def needs(self, cell: Cell, stage: Stage) -> float:
        """Return the bytes of a cell to load its model, or to run it in eager mode; 0 on a CPU."""
        if cell.device != "cuda":
            return 0.0
        stage = stage if stage is Stage.EAGER else Stage.LOAD_MODEL
        known = self._known(cell, stage)
        return self._unknown(stage) if known is None else known

    def most(self, cell: Cell) -> float:
        """Return the bytes that a cell needs at its peak, as far as that can be known before it runs."""
        if cell.device != "cuda":
            return 0.0
        calls, check = _CALLS * self.needs(cell, Stage.EAGER), self._known(cell, Stage.CORRECTNESS)
        return CONTEXT_BYTES + min(self._most, max(self.needs(cell, Stage.LOAD_MODEL), calls, check or 0.0))

    def _known(self, cell: Cell, stage: Stage) -> float | None:
        """Return what a cell needs in a stage, if its model was seen in it."""
        told = [self._memory_of(cell, stage), self._shown.get(_key(cell, stage))]
        known = [size for size in told if size is not None]
        return min(_MARGIN * max(known) + _MORE_BYTES, self._most) if known else None

    def keeps(self, cell: Cell) -> float | None:
        """Return the bytes that a cell keeps between its calls at most; None where its model has not shown that."""
        kept = self._known(cell, Stage.COMPILE) if cell.device == "cuda" else None
        return None if kept is None else CONTEXT_BYTES + kept

    def note(self, cell: Cell, kept: float, asked: float) -> None:
        """Keep what a cell has kept between its calls and asked for at most, for others of its model."""
        self._show(cell, Stage.COMPILE, kept)
        self._show(cell, Stage.CORRECTNESS, (asked - _MORE_BYTES) / _MARGIN)

    def learn(self, measurement: Measurement) -> None:
        """Keep what a cell took for others of its model."""
        if measurement.status is Status.OOM:
            return
        recorded, cell = measurement.details.get("stage_bytes", {}), measurement.cell
        for stage in _LEARNED & recorded.keys():
            self._show(cell, Stage(stage), float(recorded[stage]))
        if kept := measurement.details.get(KEPT_BYTES):
            self._show(cell, Stage.COMPILE, float(kept))

    def _show(self, cell: Cell, stage: Stage, size: float) -> None:
        key = _key(cell, stage)
        self._shown[key] = max(size, self._shown.get(key, 0.0))

    def grow(self, measurement: Measurement, promised: float) -> bool:
        """Return whether a cell ran out of what it was promised before it knew its needs, and promise twice as much."""
        failure = measurement.failure
        if measurement.status is not Status.OOM or failure is None or promised >= self._most:
            return False
        if failure.stage not in (Stage.LOAD_MODEL, Stage.EAGER):
            return False
        more = max(2 * promised, self._unknown(failure.stage))
        self._shown[_key(measurement.cell, failure.stage)] = (more - _MORE_BYTES) / _MARGIN
        return True

    def _unknown(self, stage: Stage) -> float:
        return min(max(self._most * _UNKNOWN_PART[stage], _LEAST_BYTES[stage]), self._most)


def _key(cell: Cell, stage: Stage) -> _Key:
    return cell.suite, cell.model, cell.phase.value, cell.dtype, cell.batch_size, stage
