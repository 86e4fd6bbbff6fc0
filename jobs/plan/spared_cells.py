"""Cells that a run need not measure: equal programs under several names, and code that an earlier night measured.

Cells that differ only in the name of their config, and whose program is the same, are **duplicates**. The first in the
plan is measured, the others get its outcome. The exception is the A/A pair: template `triton` and mode `default` are one
program measured twice on purpose, so that every night has a comparison of equals.

A cell whose code an earlier night measured ends once it is compiled, if its code is the same as in the newest night that
measured the cell whole: its measurement has the results of compiling, `only: code`, and the name of that night. Everything that
latencies depend on is compared:

- testbed and settings (the first line of the bundle), and the version of this program;
- program and environment (`collector.code`): another wheel, library or variable is another environment;
- Python files of torch that act when the code runs, where a commit's files are laid over a wheel (`--source`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from collector.bundle import RunHeader, read_bundle
from collector.code import known_by
from collector.templates import resolve_config
from collector.usage_errors import ConfigError
from collector.vocabulary import Cell, Config, Measurement, Status, canonical_json
from jobs.plan.cost import bundles_below
from jobs.requested_options import RequestedOptions

#: A key in the details of a measurement that was taken under another config's name; its value is this name.
SAME_PROGRAM = "same_program_as"
#: The half of the A/A pair that is never the duplicate of another config.
_CONTROL = Config(template="triton")


@dataclass(frozen=True, slots=True)
class Work:
    """The work that is left of a plan: the `cells` to measure, in the plan's order, and their duplicates.

    `duplicates` are, by the `cell_id` of one of the cells, the cells that get its outcome; `copies` are the outcomes of the
    duplicates of cells that were measured before.
    """

    cells: list[Cell]
    duplicates: dict[str, list[Cell]] = field(default_factory=dict)
    copies: list[Measurement] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number of cells that get an outcome by this work."""
        return len(self.cells) + self.named_twice + len(self.copies)

    @property
    def named_twice(self) -> int:
        """The number of cells that wait for the outcome of another cell."""
        return sum(map(len, self.duplicates.values()))


def find_duplicates(planned: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the duplicates of each cell that is measured for others, by its `cell_id`; it precedes them in the plan."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in {cell.cell_id: cell for cell in planned}.values():
        subject = (cell.suite, cell.model, cell.phase, cell.dtype, cell.device, cell.batch_size)
        groups.setdefault((*subject, program_key(cell.config, cell.device)), []).append(cell)
    return {first.cell_id: others for first, *others in groups.values() if others}


def plan_work(
    planned: Sequence[Cell], done: Mapping[str, Measurement] | None = None, again: Collection[str] = ()
) -> Work:
    """Return the work that is left of a plan when `done` is recorded, by `cell_id`, and the cells in `again` are repeated.

    A duplicate gets the new outcome of its cell, or the recorded outcome if the duplicate's copy is lost or out of date.
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
    """Return the outcome of another cell under the name of `cell`."""
    return replace(measured, cell=cell, details={**measured.details, SAME_PROGRAM: measured.cell.config.name})


#: Parts of the names of the options that set the number of configurations among which a kernel is tuned.
_OF_TUNING = ("autotune", "coordinate_descent")


@cache
def tuning_key(config: Config, device: str) -> str:
    """Return a key that is equal for two configs if their kernels are tuned among the same candidates.

    The libraries that a matrix product may come from are no part of it: they are another choice of the same process.
    """
    if not config.is_inductors:
        return ""
    try:
        program = resolve_config(config, device).program
    except ConfigError:
        return ""  # the outcome of the cell will report the error
    names = (name for name in program if any(part in name for part in _OF_TUNING) and not name.endswith("_backends"))
    return canonical_json({name: program[name] for name in names})


#: Options under which a program compiles and times many candidates.
_LONG = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning")


@cache
def tunes_long(config: Config, device: str) -> bool:
    """Return whether a config compiles and times candidates for so long that a second process should wait for its choices."""
    with suppress(ConfigError):  # the outcome of the cell will report the error
        program = resolve_config(config, device).program
        return any(program.get(name) for name in _LONG)
    return False


#: Suite, model, phase, dtype, batch size, and how kernels are tuned (`tuning_key`).
TunedModel = tuple[str, str, str, str, int, str]


@cache
def tuned_model(cell: Cell) -> TunedModel:
    """Return a key that is equal for the cells of a run that share their choices of tuning on an accelerator."""
    key = tuning_key(cell.config, cell.device)
    return cell.suite, cell.model, cell.phase.value, cell.dtype, cell.batch_size, key


@cache
def program_key(config: Config, device: str) -> str:
    """Return a key that is equal for two configs if they are one program on a device, measured in one way.

    Requested options that are no part of the program count too: on a CPU the GPU's options decide whether a config is
    available, and the number of compiling threads decides how long it takes.
    """
    if not config.is_inductors:
        return config.config_id  # other back-ends take no options: only its name tells a back-end from another
    effective = resolve_config(config, device)
    beside = {key: value for key, value in effective.options.items() if key not in effective.program}
    is_control = replace(config, dynamic=None, fullgraph=False) == _CONTROL
    return canonical_json([effective.program_id, beside, config.dynamic, config.fullgraph, is_control])


#: A key in the details of a measurement that was carried over; its value is the night that measured the cell.
SAME_CODE_AS = "same_code_as"
#: The statuses of cells that are carried over. A model is ill-conditioned by its eager form, whatever the generated code is.
_CARRIED = frozenset({Status.PASS, Status.ILL_CONDITIONED})
#: The folder for the choices of autotuning, beside the bundles.
_TUNING = "tuning"


@dataclass(frozen=True, slots=True)
class Known:
    """The newest whole measurement of a cell: its night, and the `code` that it is known by (`collector.code.known_by`).

    `measurement` and `program` are as the night has them. `says_same`: all Python files of torch say the same as in that night.
    """

    night: str
    code: str
    measurement: Measurement | None = field(default=None, compare=False)
    program: Mapping[str, Any] = field(default_factory=dict, compare=False)
    says_same: bool = field(default=False, compare=False)

    def is_of(self, code_id: str | None, environment: Mapping[str, Any]) -> bool:
        """Return whether a measurement with this code in this environment would be known by the same `code`."""
        return self.measurement is not None and self.code == known_by(code_id, self.measurement.program_id, environment)

    def carry_over(self, measurement: Measurement) -> None:
        """Copy this night and status to a measurement that has the code alone."""
        measurement.details[SAME_CODE_AS] = self.night
        if self.measurement:
            measurement.status, measurement.failure = self.measurement.status, self.measurement.failure


def carrying_over(requested: RequestedOptions, nights: int, history: Path) -> RequestedOptions:
    """Return `requested` with carry-over enabled for `nights` nights, and with shared tuning beside the bundles.

    Raises:
        BuildError: torch is not installed, or is a working tree, whose files change under the same name.
    """
    from jobs.builds.build_options import BuildError  # here: an environment of another build lacks what it imports
    from jobs.builds.overlay import Wheel

    folder = Wheel.installed().folder
    if (folder / ".git").exists():
        raise BuildError(
            f"--unchanged-code skip: torch is the working tree {folder}, whose files may change between two nights: "
            "install a wheel and measure commits with --source, or leave the option out"
        )
    beside = history.parent if history.is_file() else history
    tuning = requested.settings.shared_tuning or str(beside.resolve() / _TUNING)
    return replace(
        requested,
        settings=replace(requested.settings, shared_tuning=tuning),
        execution=replace(requested.execution, carried_nights=nights),
    )


def known_cells(folder: Path, header: RunHeader, requested: RequestedOptions) -> dict[str, Known]:
    """Return, by `cell_id`, the measurements that a run need not repeat, from its last nights' bundles below a folder."""
    newest: dict[str, Known] = {}
    for path in _last_nights(folder, header, requested.execution.carried_nights):
        contents = read_bundle(path)
        acts_alike, says_same = _compare_files(contents.header, requested)
        for cell_id, item in contents.latest().items():
            if "only" in item.details:
                continue
            stands = acts_alike and item.status in _CARRIED and "disturbed" not in item.details
            environment = contents.environments.get(item.environment_id or "")
            code = known_by(item.code_id, item.program_id, environment) if stands and environment else ""
            program = contents.programs.get(item.program_id or "", {})
            newest.setdefault(cell_id, Known(_night_of(contents.header), code, item, program, says_same))
    return {cell_id: known for cell_id, known in newest.items() if known.code}


def _last_nights(folder: Path, header: RunHeader, nights: int) -> list[Path]:
    """Return the bundles of the last nights before a run on its branch and testbed with its settings, the newest first."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for earlier, path in bundles_below(folder) if nights else ():
        if earlier.started_at <= header.started_at and _is_comparable(earlier, header):
            found.setdefault(_night_of(earlier), []).append((earlier.started_at, path))
    last = sorted(found.values(), key=max, reverse=True)[:nights]
    return [path for _, path in sorted((run for night in last for run in night), reverse=True)]


def _night_of(header: RunHeader) -> str:
    return header.night or header.run_id


def _is_comparable(earlier: RunHeader, header: RunHeader) -> bool:
    names = ("repo", "branch", "testbed", "trigger", "tool_version")
    asked, same_asked = header.asked or {}, earlier.asked or {}
    return (
        _night_of(earlier) != _night_of(header)
        and all(getattr(earlier, name) == getattr(header, name) for name in names)
        and _without_models(same_asked.get("settings")) == _without_models(asked.get("settings"))
    )


def _without_models(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings without the user's own models: the environment of each cell has the cell's own model."""
    return {name: value for name, value in (settings or {}).items() if name != "own_models"}


def _compare_files(earlier: RunHeader, requested: RequestedOptions) -> tuple[bool, bool]:
    """Return whether the Python files of torch that act at run time are the same, and whether all files say the same.

    Both are False if an overlay is gone.
    """
    before, now = (earlier.asked or {}).get("pace", {}).get("overlay", ""), requested.execution.overlay
    if before == now:
        return True, True  # an overlay is named by its content
    from jobs.builds.overlay import Wheel, acting, differing, saying

    try:
        # No commit has version.py: an overlay links to the wheel's. This process imports torch from the overlay and cannot ask.
        wheel = Wheel(Path(before or now, "torch", "version.py").resolve(strict=True).parents[1], "", "")
        base, new = (Path(side).resolve(strict=True) if side else wheel.folder for side in (before, now))
        files = differing(base, new, wheel)
        return not acting(base, new, files), not saying(base, new, files)
    except OSError:
        return False, False
