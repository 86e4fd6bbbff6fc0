"""A census as a run: its bundle, its outcome for each cell, and the answers that it learned from nights on a GPU.

The learned answers are a file beside the cache, one for each device and version of torch. Without this file each question has
the same assumed answer.

A night asks which of its cells need not even be compiled, because their code is the same as in the night that measured them
completely. The code is the same if all Python files of torch say the same. Else the census generates the code, on the cores that
would compile the cells. Of these cells one in ten is compiled all the same, so that a night shows whether compiling takes longer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.bundle import CENSUS, BundleContents, BundleWriter, RunHeader, read_bundle
from collector.census.gpu_models import CensusError, device_word
from collector.device import CPU
from collector.machine.environment import environment_id
from collector.machine.toolchain import SKIP_VARIABLE
from collector.masking import ENV, is_recorded
from collector.output_file import write_output
from collector.own_models import described
from collector.process.launcher import FORKABLE
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.templates import resolve_config
from collector.usage_errors import ConfigError
from collector.vocabulary import PADDING, Cell, Measurement, Status
from jobs.builds.overlay import Wheel
from jobs.census.census_pool import Answers, CensusPlace, CensusPool
from jobs.output.terminal import tell
from jobs.plan.cost import bundles_below
from jobs.plan.planning import Plan
from jobs.plan.spared_cells import Known
from jobs.pool.runner import make_header, now, record
from jobs.pool.testbeds import Testbed
from jobs.requested_options import DEFAULT_CACHE, RequestedOptions, RunNames

#: Keys of the environment that form the testbed of a census: code does not depend on the host that generates it.
_TESTBED = ("device", "gpu", CENSUS)


@dataclass(frozen=True, slots=True)
class CensusCell:
    """The measurement of one cell by a census, and the environment that generated the code."""

    measurement: Measurement
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        """The cell of the measurement."""
        return self.measurement.cell

    @property
    def code_id(self) -> str | None:
        """The `code_id`, even if the GPU may get other code; None if no code was generated."""
        return self.measurement.code_id

    @property
    def is_known(self) -> bool:
        """Return whether the device itself would get this code, given the answers to the questions."""
        return bool(self._facts.get("known"))

    @property
    def is_cached(self) -> bool:
        """Return whether the code was taken from the cache: an earlier census generated it from the same files."""
        return bool(self._facts.get("cached"))

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The questions that only the device decides, with the answers that were taken."""
        return list(self._facts.get("questions", ()))

    @property
    def reason(self) -> str:
        """The reason why there is no known code; empty if there is known code."""
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
        """Return a JSON object with stable keys."""
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
    """A census of some cells with a bundle of its own; a context manager that closes the bundle.

    Cells that are one program are generated once, and code that was generated from the same files before is not generated again.
    `path` is the path of the bundle; None until there is an outcome.
    """

    def __init__(
        self, pool: CensusPool, cells: Sequence[Cell], names: RunNames, requested: RequestedOptions, folder: Path
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
        """Yield each cell as it comes, after recording it in the bundle. Raises what `CensusPool.generate` raises."""
        for outcome in self._pool.generate(self._cells, answers):
            yield from self._record(outcome)

    def _record(self, outcome: Outcome) -> Iterator[CensusCell]:
        if self._writer is None:
            header = census_header(outcome.environment, self._names, self._requested)
            self._writer = BundleWriter(self._folder, header, self.cells)
            self.path = self._writer.path
        others = self._others[outcome.measurement.cell.cell_id]
        for measurement in record(self._writer, outcome, others):
            yield CensusCell(measurement, outcome.environment)


def recorded_answers(measurement: Measurement, source: str) -> Answers:
    """Return the answers that a measurement on a GPU recorded, with `source` as where they are from; empty if it has none."""
    found = measurement.details.get(PADDING)
    items = found.items() if isinstance(found, dict) else ()
    return {str(key): (answer, source) for key, answer in items if isinstance(answer, bool)}


def census_header(environment: Mapping[str, Any], names: RunNames, requested: RequestedOptions) -> RunHeader:
    """Return the header of a census's bundle. Its trigger is `CENSUS`, its testbed is the device that the code is for."""
    header = make_header(environment, replace(names, trigger=CENSUS), requested)
    return replace(header, testbed={key: environment[key] for key in _TESTBED if key in environment})


def share(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group the cells that are one program, and return the groups; the first cell of a group is generated for all of it."""
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
    except ConfigError:  # the error is reported when the cell is generated
        program = cell.config.config_id
    return (*subject, program, cell.config.dynamic, cell.config.fullgraph)


@dataclass(slots=True)
class CensusMemory:
    """The answers learned from GPU nights, and the night that had other code than the census, both by `cell_id`."""

    path: Path
    answers: dict[str, dict[str, tuple[bool, str]]] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, place: CensusPlace, torch_version: str) -> CensusMemory:
        """Return the memory for a device under a version of torch; empty if its file cannot be read."""
        name = f"{place.device_name}-torch-{torch_version}.json"
        memory = cls(place.cache.expanduser() / name)
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            data = json.loads(memory.path.read_text())
            memory.answers = {
                cell_id: {key: (bool(answer), str(source)) for key, (answer, source) in known.items()}
                for cell_id, known in data["answers"].items()
            }
            memory.differing = {str(cell_id): str(night) for cell_id, night in data["differing"].items()}
        return memory

    def without_differing(self, plan: Plan) -> Plan:
        """Return the plan without the cells whose code is known to differ from that of a GPU."""
        nights = {cell: self.differing[cell.cell_id] for cell in plan.cells if cell.cell_id in self.differing}
        lines = [
            f"{cell}: its code differed from that of night {night}, until --against finds it equal"
            for cell, night in nights.items()
        ]
        kept = [cell for cell in plan.cells if cell not in nights]
        return replace(plan, cells=kept, left_out=[*plan.left_out, *lines])

    def learn(self, night: str, equal: Iterable[CensusCell], differing: Iterable[str]) -> None:
        """Store the results of a comparison with a night: the night's answers in cells that are equal, and which cells differ."""
        for one in equal:
            if any(question["source"] == night for question in one.questions):
                answers = {question["key"]: (bool(question["answer"]), night) for question in one.questions}
                self.answers[one.cell.cell_id] = answers
            self.differing.pop(one.cell.cell_id, None)
        self.differing |= dict.fromkeys(differing, night)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_output(self.path, json.dumps({"answers": self.answers, "differing": self.differing}, indent=1) + "\n")


#: Keys of the environment that must be equal in a census and a night if their code is to be compared.
_SOFTWARE = ("torch", "torch_git", "triton", "transformers", "timm", "torchvision", "gpu")
#: The word for a cell whose code equals the code of the night.
EQUAL = "equal"


@dataclass(frozen=True, slots=True)
class CodeTruth:
    """The cells of some measured runs, by `cell_id`, and their codes; a cell has several codes if timings decided about it."""

    name: str
    runs: Sequence[BundleContents]
    cells: dict[str, Cell] = field(default_factory=dict)

    @classmethod
    def of_runs(cls, name: str, runs: Sequence[BundleContents]) -> CodeTruth:
        """Return the measured code of these runs, leaving out runs that are a census themselves."""
        measured = [run for run in runs if run.header.trigger != CENSUS]
        cells = {item.cell.cell_id: item.cell for run in measured for item in run.measurements if item.code_id}
        return cls(name, measured, cells)

    @property
    def device_name(self) -> str:
        """The device of the runs as `--device-name` takes it; empty if the census does not know it."""
        words = (device_word(str(run.header.testbed.get("device")), run.header.testbed.get("gpu")) for run in self.runs)
        return next(filter(None, words), "")

    @property
    def threads(self) -> int | None:
        """The number of threads that torch had in these runs; None if it is not recorded."""
        counts = [data.get("torch_threads") for run in self.runs for data in run.environments.values()]
        return next((count for count in counts if isinstance(count, int)), None)

    @property
    def answers(self) -> dict[str, Answers]:
        """The answers that these runs recorded to the questions of their cells, by `cell_id`; of several runs the first one's."""
        found: dict[str, Answers] = {}
        for item in (item for run in self.runs for item in run.measurements):
            if item.code_id and (answers := recorded_answers(item, self.name)):
                found.setdefault(item.cell.cell_id, answers)
        return found

    def codes(self, environment: Mapping[str, Any]) -> dict[str, set[str]]:
        """Return, by `cell_id`, the codes of the runs whose software is the same as in this environment."""
        found: dict[str, set[str]] = {}
        for run in self.runs:
            alike = {key for key, data in run.environments.items() if _software(data) == _software(environment)}
            for item in run.measurements:
                if item.code_id and item.environment_id in alike:
                    found.setdefault(item.cell.cell_id, set()).add(item.code_id)
        return found


def read_truth(text: str, database: str) -> CodeTruth:
    """Return the measured code of a bundle, of the bundles below a folder, or of a night in the database.

    Raises `BundleError` for a file that is no bundle, and `SideError` for a night that is not in the database.
    """
    path = Path(text)
    if path.is_dir():
        return CodeTruth.of_runs(path.name, [read_bundle(bundle) for _, bundle in sorted(bundles_below(path), key=str)])
    if path.is_file():
        contents = read_bundle(path)
        return CodeTruth.of_runs(contents.header.night or contents.header.run_id, [contents])
    from db.engine import open_store
    from db.exporter import stored_run
    from db.queries.sides import resolve_side

    engine = open_store(database, write=False)
    return CodeTruth.of_runs(text, [stored_run(engine, run_id) for run_id in resolve_side(engine, text).run_ids])


@dataclass(slots=True)
class Agreement:
    """The agreement of a census with a night, in numbers of cells. `asked` are cells with a question that only a GPU answers."""

    truth: CodeTruth
    codes: dict[str, set[str]] = field(default_factory=dict)
    cells: int = 0
    known: int = 0
    equal: int = 0
    asked: int = 0
    not_measured: int = 0
    differing: dict[str, CensusCell] = field(default_factory=dict)

    def took(self, one: CensusCell) -> str:
        """Count a cell, and return the word for its agreement; empty if its code is not known."""
        if not self.codes:
            self.codes = self.truth.codes(one.environment)
        codes = self.codes.get(one.cell.cell_id)
        self.cells += 1
        self.known += one.is_known
        self.asked += bool(one.questions)
        if codes is None:
            self.not_measured += 1
            return "not in the night"
        if not one.is_known:
            return ""
        if one.code_id in codes:
            self.equal += 1
            return EQUAL
        self.differing[one.cell.cell_id] = one
        return "DIFFERS"

    @property
    def compared(self) -> int:
        """The number of cells with known code that the night has, too."""
        return self.equal + len(self.differing)


def _software(environment: Mapping[str, Any]) -> tuple[Any, ...]:
    source = environment.get("source") or ""
    # A source that changes no file of torch is the installed torch.
    return (*(environment.get(key) for key in _SOFTWARE), "" if source.startswith("0 files") else source)


#: The source of answers that the earlier measurement of a cell recorded.
_EARLIER = "the earlier measurement"
#: Of the cells whose code the census would generate, one in so many is compiled instead.
_COMPILED = 10


def unchanged_cells(
    cells: Sequence[Cell], known: Mapping[str, Known], testbed: Testbed, settings: Settings
) -> Iterator[Outcome]:
    """Yield the outcome to record for each cell that is carried over without being compiled.

    `known` are the measurements of earlier nights by `cell_id`. Only a cell whose measurement would have the same code,
    program and environment is carried over.
    """
    beside = _environments(testbed, settings)
    environments: dict[str, dict[str, Any]] = {}
    asked = []
    recorded: dict[str, Answers] = {}
    for cell in cells:
        one = known.get(cell.cell_id)
        if one is None or one.measurement is None:
            continue
        model = described(cell.suite, cell.model, settings.own_models)
        alike = (found | model for found in beside if one.is_of(one.measurement.code_id, found | model))
        if (environment := next(alike, None)) is None:
            continue
        environments[cell.cell_id] = environment
        if answers := recorded_answers(one.measurement, _EARLIER):
            recorded[cell.cell_id] = answers
        if one.says_same:
            yield _carried(cell, one, environment, "its files say the same")
        else:
            asked.append(cell)
    asked = [cell for number, cell in enumerate(asked) if number % _COMPILED]
    for outcome in _generated(asked, recorded, testbed, settings):
        cell = outcome.measurement.cell
        if CensusCell(outcome.measurement).is_known:
            one, environment = known[cell.cell_id], environments[cell.cell_id]
            if one.is_of(outcome.measurement.code_id, environment):
                yield _carried(cell, one, environment, "the census generated the same")


def _environments(testbed: Testbed, settings: Settings) -> list[dict[str, Any]]:
    """Return the environments that cells may run in, without the entries that a model adds.

    If the compiler accepts the CPU's flags, the server or the run sets `SKIP_VARIABLE` for the cells
    (`collector.machine.toolchain`). Whether it does is known only when the first cell is measured, so both cases are returned.
    """
    of_server = {f"{ENV}{name}": value for name, value in FORKABLE.items() if is_recorded(name)}
    beside = testbed.environment | settings.testbed() | (of_server if testbed.execution.start == "fork" else {})
    skips = f"{ENV}{SKIP_VARIABLE}"
    return [beside] if skips in beside else [beside, beside | {skips: "1"}]


def _generated(
    cells: Sequence[Cell], recorded: dict[str, Answers], testbed: Testbed, settings: Settings
) -> Iterator[Outcome]:
    """Yield the outcome of the census for each cell; if no census can be taken, print a line and stop.

    `recorded` are the answers of an earlier night by `cell_id`.
    """
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
        with CensusPool(place, settings) as pool:
            yield from pool.generate(cells, {**memory.answers, **recorded})
    except CensusError as error:
        tell(f"no census: {error}")


def _carried(cell: Cell, known: Known, environment: Mapping[str, Any], why: str) -> Outcome:
    before = known.measurement
    measurement = Measurement(
        cell,
        Status.PASS,
        now(),
        0.0,
        details={"only": "code", "not_compiled": why},
        program_id=before.program_id if before else None,
        environment_id=environment_id(environment),
        code_id=before.code_id if before else None,
    )
    known.carry_over(measurement)
    return Outcome(measurement, dict(environment), dict(known.program))
