"""Which cells of a night need not be measured again: their code was measured in an earlier night.

Such a cell ends once it is compiled, if it compiled to the same code as in the newest night that measured it whole: its
measurement has what compiling tells, `only: code`, and the name of that night. All that latencies depend on is compared:

- testbed and settings (the first line of the bundle), and the version of this program;
- program and environment (`collector.code`): another wheel, library or variable is another environment;
- Python files of torch that act when the code runs, where a commit's files are laid over a wheel (`--source`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.bundle import RunHeader, read_bundle
from collector.code import known_by
from collector.vocabulary import Measurement, Status
from jobs.plan.cost import bundles_below
from jobs.requested_options import RequestedOptions

#: In the details of a measurement that was carried over: the night that measured the cell.
SAME_CODE_AS = "same_code_as"
#: The folder beside the bundles for what autotuning chose.
_TUNING = "tuning"


@dataclass(frozen=True, slots=True)
class Known:
    """The newest whole measurement of a cell: its night, and what it is known by (`collector.code`).

    `measurement` and `program` are as the night has them. `says_same`: all Python files of torch say the same as in that night.
    """

    night: str
    code: str
    measurement: Measurement | None = field(default=None, compare=False)
    program: Mapping[str, Any] = field(default_factory=dict, compare=False)
    says_same: bool = field(default=False, compare=False)

    def is_of(self, code_id: str | None, environment: Mapping[str, Any]) -> bool:
        """Whether a measurement with this code in this environment would be known by the same."""
        return self.measurement is not None and self.code == known_by(code_id, self.measurement.program_id, environment)


def carrying_over(requested: RequestedOptions, nights: int, history: Path) -> RequestedOptions:
    """The same, so that unchanged cells are carried over for so many nights; with shared tuning beside the bundles.

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
    """By `cell_id` what a run need not measure again, by the bundles below a folder: those of its last nights."""
    newest: dict[str, Known] = {}
    for path in _last_nights(folder, header, requested.execution.carried_nights):
        contents = read_bundle(path)
        acts_alike, says_same = _compare_files(contents.header, requested)
        for cell_id, item in contents.latest().items():
            if "only" in item.details:
                continue
            stands = acts_alike and item.status is Status.PASS and "disturbed" not in item.details
            environment = contents.environments.get(item.environment_id or "")
            code = known_by(item.code_id, item.program_id, environment) if stands and environment else ""
            program = contents.programs.get(item.program_id or "", {})
            newest.setdefault(cell_id, Known(_night_of(contents.header), code, item, program, says_same))
    return {cell_id: known for cell_id, known in newest.items() if known.code}


def _last_nights(folder: Path, header: RunHeader, nights: int) -> list[Path]:
    """The bundles of so many nights before a run, on its branch and testbed and with its settings; the newest first."""
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
    """The settings but for the user's own models: the environment of a cell has its own."""
    return {name: value for name, value in (settings or {}).items() if name != "own_models"}


def _compare_files(earlier: RunHeader, requested: RequestedOptions) -> tuple[bool, bool]:
    """Return whether the Python files of torch that act at run time are the same, and whether all files say the same.

    Neither is known where an overlay is gone.
    """
    before, now = (earlier.asked or {}).get("pace", {}).get("overlay", ""), requested.execution.overlay
    if before == now:
        return True, True  # an overlay is called by its content
    from jobs.builds.overlay import Wheel, acting, differing, saying

    try:
        # No commit has this file: it is the wheel's. This process imports torch from the overlay and cannot ask it.
        wheel = Wheel(Path(before or now, "torch", "version.py").resolve(strict=True).parents[1], "", "")
        base, new = (Path(side).resolve(strict=True) if side else wheel.folder for side in (before, now))
        files = differing(base, new, wheel)
        return not acting(base, new, files), not saying(base, new, files)
    except OSError:
        return False, False
