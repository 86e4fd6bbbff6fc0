"""Asks the census for the code of both sides of a check, before anything is compiled or timed.

Both sides are generated side by side, in the order of importance, and a cell is answered as soon as both have its code. What
was generated before from the same files is not generated again: the base of another check costs nothing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from collector.bundle import BundleWriter
from collector.census.gpu_models import CPU, CensusError, device_word
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell
from jobs.builds.overlay import Wheel
from jobs.census.census_cache import CachedPool
from jobs.census.census_pool import Answers, CensusPlace
from jobs.census.census_runs import CensusCell, CensusMemory, census_header, share
from jobs.checking.check_sides import CheckedSide
from jobs.plan.duplicate_programs import copy_for
from jobs.pool.runner import now, record
from jobs.pool.testbeds import Testbed
from jobs.requested_options import RequestedOptions


@dataclass(frozen=True, slots=True)
class CodeAnswer:
    """What the census says of one cell: the outcome on base and on new."""

    cell: Cell
    base: Outcome
    new: Outcome

    @property
    def is_same(self) -> bool | None:
        """Whether both sides get the same code; None where that of a side is not known."""
        sides = [CensusCell(outcome.measurement) for outcome in (self.base, self.new)]
        return sides[0].code_id == sides[1].code_id if all(one.is_known for one in sides) else None

    @property
    def reason(self) -> str:
        """Why the code of a side is not known; empty where both are."""
        sides = [CensusCell(outcome.measurement) for outcome in (self.base, self.new)]
        return next((one.reason or one.measurement.status for one in sides if not one.is_known), "")

    def taken_now(self) -> CodeAnswer:
        """Return the answer as one of this moment, which counts before what was measured until now."""
        moment = now()
        base, new = (
            replace(one, measurement=replace(one.measurement, started_at=moment)) for one in (self.base, self.new)
        )
        return CodeAnswer(self.cell, base, new)


def census_place(testbed: Testbed, side: CheckedSide, cache: Path) -> CensusPlace:
    """Return where the code of a side is generated for a testbed. Raises `CensusError` for a GPU that is not known."""
    environment = testbed.environment
    word = device_word(testbed.device, environment.get("gpu"))
    if not word:
        raise CensusError(f"the census does not know {environment.get('gpu')}")
    # C++ is written for as many threads as a cell has; a GPU's code is not.
    threads = int(environment.get("torch_threads", 1)) if word == CPU else 1
    execution = side.testbeds[0].execution
    return CensusPlace(word, execution.overlay, execution.source, cache, threads=threads)


class CodeCensus:
    """The census of both sides of a check, by what GPU nights taught it.

    `is_alike`: their files say the same, so that what was generated for one side is found for the other. `on_new` are the
    cells of new by the `cell_id` of those of base, where they have other configs.
    """

    def __init__(
        self,
        places: tuple[CensusPlace, CensusPlace],
        settings: Settings,
        is_alike: bool = False,
        on_new: Mapping[str, Cell] = MappingProxyType({}),
    ) -> None:
        self._places, self._settings, self._on_new = places, settings, on_new
        self._is_alike = is_alike and CachedPool(places[1], settings).keeps
        self._memory = CensusMemory.read(places[0], Wheel.installed().version)

    def ask(self, cells: Sequence[Cell], until: float = float("inf")) -> Generator[CodeAnswer]:
        """Yield the answer for each cell as it comes, until a moment of `time.monotonic`; those that were kept first.

        A cell whose code differed from that of a GPU is not asked for. Raises `CensusError` where no census can be taken.
        """
        differing = self._memory.differing
        pairs = [(cell, self._on_new.get(cell.cell_id, cell)) for cell in cells]
        waiting = [pair for pair in pairs if not any(one.cell_id in differing for one in pair)]
        leaders: list[list[Cell]] = []
        leader_of: list[dict[str, str]] = []
        for side in (0, 1):
            groups = share([pair[side] for pair in waiting])
            leaders.append([group[0] for group in groups])
            leader_of.append({cell.cell_id: group[0].cell_id for group in groups for cell in group})
        known: tuple[dict[str, Outcome], dict[str, Outcome]] = ({}, {})
        with ExitStack() as stack:
            for side, outcome in self._outcomes(leaders, until, stack):
                known[side][outcome.measurement.cell.cell_id] = outcome
                for pair in list(waiting):
                    base, new = (known[at].get(leader_of[at][pair[at].cell_id]) for at in (0, 1))
                    if base and new:
                        waiting.remove(pair)
                        yield CodeAnswer(pair[0], _named(base, pair[0]), _named(new, pair[1]))

    def _outcomes(
        self, leaders: Sequence[Sequence[Cell]], until: float, stack: ExitStack
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield the number of a side and an outcome; the processes of both sides end with `stack`."""
        answers = self._memory.answers
        missing: list[list[Cell]] = []
        for side, (place, cells) in enumerate(zip(self._places, leaders, strict=True)):
            kept = list(CachedPool(place, self._settings).find(cells, answers))
            yield from ((side, outcome) for outcome in kept)
            there = {outcome.measurement.cell.cell_id for outcome in kept}
            missing.append([cell for cell in cells if cell.cell_id not in there])
        if self._is_alike and len(missing[1]) >= len(missing[0]):
            missing[1] = [cell for cell in missing[1] if cell not in missing[0]]
        busy = sum(map(bool, missing))
        done: queue.SimpleQueue[tuple[int, Outcome | Exception]] = queue.SimpleQueue()
        for side, (place, rest) in enumerate(zip(self._places, missing, strict=True)):
            if rest:
                here = replace(place, workers=max(1, place.workers // busy))
                pool = stack.enter_context(CachedPool(here, self._settings))
                threading.Thread(target=_generate, args=(side, pool, rest, answers, done.put), daemon=True).start()
        for _ in range(sum(map(len, missing))):
            left_s = min(until - time.monotonic(), threading.TIMEOUT_MAX)
            try:
                side, outcome = done.get(timeout=max(0.0, left_s))
            except queue.Empty:
                return
            if isinstance(outcome, Exception):
                raise outcome
            yield side, outcome
            if self._is_alike and side == 0:
                cell = outcome.measurement.cell
                yield from ((1, same) for same in CachedPool(self._places[1], self._settings).find([cell], answers))


class CodeRecord:
    """The bundle of a side with the code that the census generated for it; it plans all cells of the check."""

    def __init__(self, side: CheckedSide, cells: Sequence[Cell], settings: Settings, folder: Path) -> None:
        self._side, self._cells, self._folder = side, cells, folder
        self._requested = RequestedOptions(settings, side.testbeds[0].execution)
        self._writer: BundleWriter | None = None

    def add(self, outcome: Outcome) -> None:
        """Record one outcome."""
        if self._writer is None:
            header = census_header(outcome.environment, self._side.names, self._requested)
            self._writer = BundleWriter(self._folder, header, self._cells)
        record(self._writer, outcome)

    def close(self) -> Path | None:
        """Close the bundle and return its path; None where nothing was recorded."""
        writer, self._writer = self._writer, None
        return writer.close(now()) if writer else None


def _generate(
    side: int,
    pool: CachedPool,
    cells: Sequence[Cell],
    answers: Mapping[str, Answers],
    put: Callable[[tuple[int, Outcome | Exception]], None],
) -> None:
    try:
        for outcome in pool.generate(cells, answers):
            put((side, outcome))
    except Exception as error:
        put((side, error))


def _named(outcome: Outcome, cell: Cell) -> Outcome:
    """Return the outcome of a program under the name of another cell of it."""
    if cell == outcome.measurement.cell:
        return outcome
    return replace(outcome, measurement=copy_for(cell, outcome.measurement))
