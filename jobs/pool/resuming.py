"""The runs to resume, the work that is left of them, and the checks that this machine may resume them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.bundle import BundleContents, RunHeader, check_bundle, read_bundle
from collector.machine.environment import extract_testbed
from collector.output_file import both_paths
from collector.own_models import USER, OwnModel
from collector.usage_errors import BundleError, ConfigError
from collector.vocabulary import NOT_APPLICABLE, Status
from jobs.output.terminal import one_line
from jobs.plan.models_file import check_local
from jobs.plan.spared_cells import Work, plan_work
from jobs.requested_options import RequestedOptions

#: Outcomes that measuring again does not change: passed, unavailable here, contradictory options.
_SETTLED = NOT_APPLICABLE | {Status.PASS, Status.CONFIG_ERROR}


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that may have work left, and the options for resuming it.

    `own_models` are the definitions of this machine: those in the bundle are never called. `overlays` are the folders that hold
    this machine's overlays, commits laid over its torch. `folders` are the folders that runs may write to besides the current
    one. Whatever the bundle names, torch is imported from no other overlay, and nothing is written elsewhere.
    """

    path: Path
    contents: BundleContents
    retry_failed: bool = False
    budget_s: float = float("inf")
    own_models: Mapping[str, OwnModel] = field(default_factory=dict)
    overlays: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()

    def work(self, contents: BundleContents) -> Work:
        """Return the work that is left of the run if its bundle holds `contents`.

        It includes, once, each cell that was disturbed (`jobs.pool.usage`) and not measured again.
        """
        done, times = contents.latest(), Counter(measurement.cell.cell_id for measurement in contents.measurements)
        failed = [cell_id for cell_id, measurement in done.items() if measurement.status not in _SETTLED]
        disturbed = [
            cell_id
            for cell_id, measurement in done.items()
            if "disturbed" in measurement.details and "repeated" not in measurement.details and times[cell_id] == 1
        ]
        return plan_work(contents.planned, done, [*disturbed, *(failed if self.retry_failed else ())])

    @property
    def is_done(self) -> bool:
        """Return whether no work is left: every planned cell is measured and the bundle is closed."""
        if self.contents.finished_at is None or both_paths(self.path)[0].exists():
            return False
        return self.work(self.contents).total == 0

    @property
    def requested(self) -> RequestedOptions:
        """The options that the run began with, with this attempt's budget.

        Raises:
            ConfigError: the bundle lacks its options or has those of another version, or one of its cells calls a model that
                only the bundle defines, or it names a folder that this machine does not allow.
        """
        try:
            asked = RequestedOptions.from_json(self.contents.header.asked or {}, self.budget_s)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"{self.path} lacks the options of its run, or has those of another version of inductor-watch: "
                "start a new run with `nightly`"
            ) from error
        _check_folder(self.path, "--overlays", asked.execution.overlay, self.overlays)
        for option, folder in (("--trace", asked.settings.trace), ("--shared-tuning", asked.settings.shared_tuning)):
            _check_folder(self.path, option, folder, (Path(), *self.folders))
        cells = self.work(self.contents).cells
        check_local(cells, self.own_models, asked.settings.own_models)
        named = {cell.model for cell in cells if cell.suite == USER}
        own_models = tuple(model for name, model in self.own_models.items() if name in named)
        return replace(asked, settings=replace(asked.settings, own_models=own_models))


def _check_folder(bundle: Path, option: str, folder: str, allowed: Iterable[Path]) -> None:
    """Raise `ConfigError` for a folder that a bundle names and that is not inside an allowed folder."""
    place = Path(folder).resolve()
    if folder and not any(place.is_relative_to(path.expanduser().resolve()) for path in allowed):
        own = place.parent if option == "--overlays" else folder
        raise ConfigError(
            f"{bundle} names {one_line(folder, 200)}, and a folder that only a bundle names is not used: if it is yours, "
            f"pass {option} {one_line(str(own), 200)}"
        )


def find_night(folder: Path, name: str | None, retry_failed: bool = False) -> list[Unfinished]:
    """Return the run of this name or path, else the newest unfinished run and the others of its night, one for each GPU.

    Empty if nothing is left to do.

    Raises:
        ConfigError: no such run, or no run at all in the folder.
        BundleError: the path names a file that is no bundle.
    """
    paths = [bundle_named(folder, name)] if name else newest_first(folder)
    if not paths:
        raise ConfigError(
            f"no run in {folder}: name the folder of the bundles with --out, or start a run with `inductor-watch nightly`"
        )
    runs = (Unfinished(path, read_bundle(path), retry_failed) for path in paths)
    first = next((run for run in runs if not run.is_done), None)
    night = first.contents.header.night if first else ""
    if first is None or not night:
        return [first] if first else []
    others = [run for run in runs if run.contents.header.night == night and not run.is_done]
    return sorted([first, *others], key=lambda run: run.contents.header.run_id)


def check_testbed(run: Unfinished, environment: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if this machine or its torch is not the one that the run began on."""
    header = run.contents.header
    check_torch(header, str(environment["torch_git"]))
    here = extract_testbed(environment) | run.requested.settings.testbed()
    differing = [key for key in {**header.testbed, **here} if header.testbed.get(key) != here.get(key)]
    if differing:
        pairs = ", ".join(f"{key} {header.testbed.get(key)} there and {here.get(key)} here" for key in differing)
        raise ConfigError(
            f"run {header.run_id} began on another testbed ({pairs}): resume it there, with as many workers"
        )


def check_torch(header: RunHeader, installed: str) -> None:
    """Raise `ConfigError` if the installed torch, by its git commit, is not the one that a run measures."""
    theirs = str((header.asked or {}).get("torch_git"))
    if theirs != installed:
        raise ConfigError(
            f"run {header.run_id} measures torch {theirs[:12]}, installed is {installed[:12]}: "
            "install that torch again, or start a new run with `nightly`"
        )


def bundle_named(folder: Path, name: str) -> Path:
    """Return the path of the bundle of this name or path, the plain file if there are both. Raises `ConfigError` without one."""
    as_path = Path(name)
    base = as_path if as_path.name.endswith((".jsonl", ".jsonl.gz")) else folder / f"{name}.jsonl"
    existing = [path for path in both_paths(base) if path.exists()]
    if not existing:
        known = [path.name.partition(".jsonl")[0] for path in newest_first(folder)][:3]
        hint = f"newest there: {', '.join(known)}" if known else "name the folder of the bundles with --out"
        raise ConfigError(f"no run {name!r} in {folder}: {hint}")
    return existing[0]


def newest_first(folder: Path) -> list[Path]:
    """Return the paths of a folder's bundles, the run that started last first; files that are no bundles are left out."""
    plain = {both_paths(path)[0] for pattern in ("*.jsonl", "*.jsonl.gz") for path in folder.glob(pattern)}
    began: dict[Path, str] = {}
    for path in plain:
        path = path if path.exists() else both_paths(path)[1]
        try:
            began[path] = str(check_bundle(path).started_at)
        except BundleError:
            continue  # not one of ours, or cut in its first line: nothing was measured then
    return sorted(began, key=lambda path: (began[path], path.name), reverse=True)
