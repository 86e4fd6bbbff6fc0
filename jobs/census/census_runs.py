"""A census as a run: cells that share a generation, the bundle that takes the outcomes, and what is said of each cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any

from collector.bundle import CENSUS, BundleWriter, RunHeader
from collector.census.questions import PAD_MM
from collector.configs.templates import resolve_config
from collector.errors import ConfigError
from collector.process.outcome import Outcome
from collector.vocabulary import Cell, Measurement, Status
from jobs.census.census_pool import Answers, CensusPool
from jobs.pool.requested_options import RequestedOptions, RunNames
from jobs.pool.runner import make_header, now, record

#: What of the environment is the testbed of a census: code does not depend on the host that generates it.
_TESTBED = ("device", "gpu", CENSUS)
#: Times that a cell is generated with other answers, at most.
_MOST_TRIES = 7


@dataclass(frozen=True, slots=True)
class CensusCell:
    """What a census knows of one cell."""

    measurement: Measurement

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
        return self.measurement.details.get(CENSUS, {})

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

    Cells that are one program are generated once.
    """

    def __init__(
        self, pool: CensusPool, cells: Sequence[Cell], names: RunNames, requested: RequestedOptions, folder: Path
    ) -> None:
        groups = share(cells)
        self._pool, self.cells = pool, cells
        self._others = {group[0].cell_id: group[1:] for group in groups}
        self._cells = [group[0] for group in groups]
        pool.start(len(groups))
        self.header = census_header(pool.environment, names, requested)
        self._writer = BundleWriter(folder, self.header, cells)
        self.path = self._writer.path

    def __enter__(self) -> CensusRun:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.path = self._writer.close(now())
        else:
            self._writer.abandon()

    def take(self, answers: Mapping[str, Answers] | None = None) -> Iterator[CensusCell]:
        """Yield each cell as it comes, once it is in the bundle. Raises what `CensusPool.start` raises."""
        for outcome in self._pool.generate(self._cells, answers):
            yield from self._record(outcome)

    def correct(
        self, cells: Mapping[str, CensusCell], source: str, codes: Mapping[str, set[str]]
    ) -> Iterator[CensusCell]:
        """Yield the cells, by `cell_id`, that have one of their codes under other answers to their questions.

        `source` is where such answers are from. The bundle gets the new outcome of these cells and of no other.
        """
        tries = {cell_id: other_answers(one.questions, source) for cell_id, one in cells.items()}
        tries = {cell_id: tries[cell_id] for cell_id in self._others if cell_id in tries}
        while tries:
            answers = {cell_id: next(left, None) for cell_id, left in tries.items()}
            again = {cell_id: answer for cell_id, answer in answers.items() if answer}
            tries = {cell_id: tries[cell_id] for cell_id in again}
            for outcome in self._pool.generate([cells[cell_id].cell for cell_id in again], again):
                cell_id, code_id = outcome.measurement.cell.cell_id, outcome.measurement.code_id
                if code_id in codes.get(cell_id, ()):
                    del tries[cell_id]
                    yield from self._record(outcome)

    def _record(self, outcome: Outcome) -> Iterator[CensusCell]:
        others = self._others[outcome.measurement.cell.cell_id]
        yield from map(CensusCell, record(self._writer, outcome, others))


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
