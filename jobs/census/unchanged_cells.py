"""Which cells of a night need not even be compiled: their code is the same as in the night that measured them whole.

It is the same where all Python files of torch say the same. Else the census generates it, on the cores that the cells would
compile on. Of those cells one in ten is compiled all the same, so that a night says whether compiling takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collector.census.gpu_models import CensusError, device_word
from collector.device import CPU
from collector.machine.environment import environment_id
from collector.masking import ENV, is_recorded
from collector.own_models import described
from collector.process.launcher import FORKABLE
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Measurement, Status
from jobs.builds.overlay import Wheel
from jobs.census.census_pool import CachedPool, CensusPlace
from jobs.census.census_runs import CensusCell, CensusMemory
from jobs.output.terminal import tell
from jobs.plan.spared_cells import SAME_CODE_AS, Known
from jobs.pool.runner import now
from jobs.pool.testbeds import Testbed
from jobs.requested_options import DEFAULT_CACHE

#: Of the cells whose code the census knows, every so many is compiled.
_COMPILED = 10


def unchanged_cells(
    cells: Sequence[Cell], known: Mapping[str, Known], testbed: Testbed, settings: Settings
) -> Iterator[Outcome]:
    """Yield what is recorded of each cell that is carried over without being compiled.

    `known` are the measurements of earlier nights by `cell_id`. Only a cell whose measurement would have the same program and
    environment is carried over.
    """
    of_server = {f"{ENV}{name}": value for name, value in FORKABLE.items() if is_recorded(name)}
    beside = testbed.environment | settings.testbed() | (of_server if testbed.execution.start == "fork" else {})
    environments = {
        cell.cell_id: beside | described(cell.suite, cell.model, settings.own_models)
        for cell in cells
        if cell.cell_id in known
    }
    asked = []
    for cell in cells:
        environment, one = environments.get(cell.cell_id), known.get(cell.cell_id)
        if environment is None or one is None or one.measurement is None:
            continue
        if not one.is_of(one.measurement.code_id, environment):
            continue
        if one.says_same:
            yield _carried(cell, one, environment, "its files say the same")
        else:
            asked.append(cell)
    asked = [cell for number, cell in enumerate(asked) if number % _COMPILED]
    for outcome in _generated(asked, testbed, settings):
        cell = outcome.measurement.cell
        if CensusCell(outcome.measurement).is_known:
            one, environment = known[cell.cell_id], environments[cell.cell_id]
            if one.is_of(outcome.measurement.code_id, environment):
                yield _carried(cell, one, environment, "the census generated the same")


def _generated(cells: Sequence[Cell], testbed: Testbed, settings: Settings) -> Iterator[Outcome]:
    """Yield the code of cells as the census knows it; nothing, with a line, where it cannot be taken."""
    word = device_word(testbed.device, testbed.environment.get("gpu"))
    if not cells or not word:
        return
    threads = int(testbed.environment.get("torch_threads", 1)) if word == CPU else 1
    execution = testbed.execution
    place = CensusPlace(word, execution.overlay, execution.source, DEFAULT_CACHE, threads=threads)
    memory = CensusMemory.read(place, Wheel.installed().version)
    cells = [cell for cell in cells if cell.cell_id not in memory.differing]
    tell(f"census: the code of {len(cells)} cells, before they are measured")
    try:
        with CachedPool(place, settings) as pool:
            found = list(pool.find(cells, memory.answers))
            yield from found
            there = {outcome.measurement.cell.cell_id for outcome in found}
            yield from pool.generate([cell for cell in cells if cell.cell_id not in there], memory.answers)
    except CensusError as error:
        tell(f"no census: {error}")


def _carried(cell: Cell, known: Known, environment: Mapping[str, Any], why: str) -> Outcome:
    before = known.measurement
    program_id, code_id = (before.program_id, before.code_id) if before else (None, None)
    measurement = Measurement(
        cell,
        Status.PASS,
        now(),
        0.0,
        details={"only": "code", SAME_CODE_AS: known.night, "not_compiled": why},
        program_id=program_id,
        environment_id=environment_id(environment),
        code_id=code_id,
    )
    return Outcome(measurement, dict(environment), dict(known.program))
