"""A census as a run: cells that share a generation, the bundle that takes the outcomes, and what is said of each cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from collector.bundle import CENSUS, BundleWriter, RunHeader
from collector.census.questions import PAD_MM
from collector.configs.templates import resolve_config
from collector.errors import ConfigError
from collector.process.outcome import Outcome
from collector.vocabulary import Cell, Measurement, Status
from jobs.census.census_cache import CachedPool
from jobs.census.census_pool import Answers
from jobs.pool.requested_options import RequestedOptions, RunNames
from jobs.pool.runner import make_header, now, record

#: What of the environment is the testbed of a census: code does not depend on the host that generates it.
_TESTBED = ("device", "gpu", CENSUS)
#: Times that a cell is generated with other answers, at most.
_MOST_TRIES = 15


@dataclass(frozen=True, slots=True)
class CensusCell:
    """What a census knows of one cell, and the environment that its code is from."""

    measurement: Measurement
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        """The cell."""
        return self.measurement.cell

    @property
    def code_id(self) -> str | None:
        """The code, also where it is not known to be the GPU's; None where none was generated."""
        return self.measurement.code_id

    @property
    def is_known(self) -> bool:
        """Whether the code is what the device itself would get, given the answers to the questions."""
        return bool(self._facts.get("known"))

    @property
    def is_cached(self) -> bool:
        """Whether it was generated before from the same files."""
        return bool(self._facts.get("cached"))

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The questions that only the device decides, with the answers that were taken."""
        return list(self._facts.get("questions", ()))

    @property
    def reason(self) -> str:
        """Why there is no known code; empty where there is."""
        failure = self.measurement.failure
        return f"{failure.message.splitlines()[0]}" if failure and failure.message else ""

    @property
    def _facts(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self.measurement.details.get(CENSUS, {})
        return facts

    def describe(self) -> str:
        """Return the outcome in a few words."""
        if self.is_known:
            asked = len(self.questions)
            return f"{self.code_id}" + (f"  {asked} question{'s' * (asked != 1)}" if asked else "")
        status = self.measurement.status
        return self.reason if status is Status.UNAVAILABLE else f"{status}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        cell = self.cell
        return {
            "suite": cell.suite,
            "model": cell.model,
            "phase": cell.phase.value,
            "dtype": cell.dtype,
            "device": cell.device,
            "batch_size": cell.batch_size,
            "config": cell.config.name,
            "code_id": self.code_id,
            "known": self.is_known,
            "reason": self.reason,
            "questions": self.questions,
            "seconds": self.measurement.wall_s,
        }


class CensusRun:
    """A census of some cells into a bundle of its own; use it as a context, which closes the bundle.

    Cells that are one program are generated once, and what was generated before from the same files is not generated again.
    `path` is the bundle; None as long as there is no outcome.
    """

    def __init__(
        self, pool: CachedPool, cells: Sequence[Cell], names: RunNames, requested: RequestedOptions, folder: Path
    ) -> None:
        groups = share(cells)
        self.cells, self._pool, self._folder = cells, pool, folder
        self._others = {group[0].cell_id: group[1:] for group in groups}
        self._cells = [group[0] for group in groups]
        self._names, self._requested = names, requested
        self._writer: BundleWriter | None = None
        self.path: Path | None = None

    def __enter__(self) -> CensusRun:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer and kind is None:
            self.path = self._writer.close(now())
        elif self._writer:
            self._writer.abandon()

    def take(self, answers: Mapping[str, Answers]) -> Iterator[CensusCell]:
        """Yield each cell as it comes, once it is in the bundle. Raises what `CachedPool.generate` raises."""
        for outcome in self._generate(self._cells, answers):
            yield from self._record(outcome)

    def correct(
        self, cells: Mapping[str, CensusCell], source: str, codes: Mapping[str, set[str]]
    ) -> Iterator[CensusCell]:
        """Yield the cells, by `cell_id`, that have one of their codes under other answers to their questions.

        `source` is where such answers are from. The bundle gets the new outcome of these cells and of no other.
        """
        generated = [cells[cell_id] for cell_id in self._others if cell_id in cells]
        tries = {one.cell.cell_id: other_answers(one.questions, source) for one in generated}
        while tries:
            answers = {cell_id: answer for cell_id, left in tries.items() if (answer := next(left, None))}
            tries = {cell_id: tries[cell_id] for cell_id in answers}
            for outcome in self._generate([cells[cell_id].cell for cell_id in answers], answers):
                cell_id, code_id = outcome.measurement.cell.cell_id, outcome.measurement.code_id
                if code_id in codes.get(cell_id, ()):
                    del tries[cell_id]
                    yield from self._record(outcome)

    def _generate(self, cells: Sequence[Cell], answers: Mapping[str, Answers]) -> Iterator[Outcome]:
        found = set()
        for outcome in self._pool.find(cells, answers):
            found.add(outcome.measurement.cell.cell_id)
            yield outcome
        yield from self._pool.generate([cell for cell in cells if cell.cell_id not in found], answers)

    def _record(self, outcome: Outcome) -> Iterator[CensusCell]:
        if self._writer is None:
            header = census_header(outcome.environment, self._names, self._requested)
            self._writer = BundleWriter(self._folder, header, self.cells)
            self.path = self._writer.path
        others = self._others[outcome.measurement.cell.cell_id]
        for measurement in record(self._writer, outcome, others):
            yield CensusCell(measurement, outcome.environment)


def other_answers(questions: Sequence[Mapping[str, Any]], source: str) -> Iterator[Answers]:
    """Yield other answers to the questions of a cell, those that change the fewest first."""
    asked = {question["key"]: bool(question["answer"]) for question in questions if question["kind"] == PAD_MM}
    flips = (chosen for count in range(1, len(asked) + 1) for chosen in combinations(asked, count))
    for chosen in islice(flips, _MOST_TRIES):
        yield {key: (answer != (key in chosen), source) for key, answer in asked.items()}


def census_header(environment: Mapping[str, Any], names: RunNames, requested: RequestedOptions) -> RunHeader:
    """Return the first record of a census: its trigger says what it is, and its testbed is the device that it is for."""
    header = make_header(environment, replace(names, trigger=CENSUS), requested)
    return replace(header, testbed={key: environment[key] for key in _TESTBED if key in environment})


def share(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Return the cells in groups that are one program: the first of a group is generated for all."""
    groups: dict[object, list[Cell]] = {}
    for cell in {cell.cell_id: cell for cell in cells}.values():
        groups.setdefault(_program(cell), []).append(cell)
    return list(groups.values())


def _program(cell: Cell) -> tuple[Any, ...]:
    subject = (cell.suite, cell.model, cell.phase, cell.dtype, cell.device, cell.batch_size)
    if cell.config.backend != "inductor":
        return (*subject, cell.config.config_id)
    try:
        program = resolve_config(cell.config, cell.device).program_id
    except ConfigError:  # it fails in its own cell
        program = cell.config.config_id
    return (*subject, program, cell.config.dynamic, cell.config.fullgraph)
