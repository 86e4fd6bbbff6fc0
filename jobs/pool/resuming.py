"""Which run is to be taken up again, what is left of it, and whether this machine may do so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from collector.bundle import BundleContents, BundleError, check_bundle, read_bundle
from collector.bundle_file import both_paths
from collector.machine.environment import extract_testbed
from collector.vocabulary import NOT_APPLICABLE, Status
from jobs.plan.duplicate_programs import Work, plan_work
from jobs.pool.requested_options import asked_pace, asked_settings

#: Outcomes that measuring again does not change: passed, not to be had here, contradictory.
_SETTLED = NOT_APPLICABLE | {Status.PASS, Status.CONFIG_ERROR}


class ResumeError(click.ClickException):
    """The run cannot be taken up here; the text says why and what to do."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that may have something left to do, and whether its failed cells are to be measured again."""

    path: Path
    contents: BundleContents
    retry_failed: bool = False

    def work(self, contents: BundleContents) -> Work:
        """What is left to do of a run when its bundle holds `contents`."""
        done = contents.latest()
        failed = [cell_id for cell_id, measurement in done.items() if measurement.status not in _SETTLED]
        return plan_work(contents.planned, done, failed if self.retry_failed else ())

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do: every planned cell is measured and the bundle is closed."""
        if self.contents.finished_at is None or both_paths(self.path)[0].exists():
            return False
        return self.work(self.contents).total == 0


def find_run(folder: Path, name: str | None, retry_failed: bool = False) -> Unfinished | None:
    """The run of this name or path, else the newest in the folder that is unfinished; None if nothing is left to do.

    Raises:
        ResumeError: no such run, or no run at all in the folder.
        BundleError: what the path names is no bundle.
    """
    paths = _named(folder, name) if name else _newest_first(folder)
    if not paths:
        raise ResumeError(
            f"no run in {folder}: name the folder of the bundles with --out, or start a run with `inductor-watch nightly`"
        )
    found = (Unfinished(path, read_bundle(path), retry_failed) for path in paths)
    return next((run for run in found if not run.is_done), None)


def find_night(folder: Path, name: str | None, retry_failed: bool = False) -> list[Unfinished]:
    """The unfinished run that `find_run` finds and, unless it was named, the others of its night: one a GPU.

    Raises what `find_run` raises.
    """
    found = find_run(folder, name, retry_failed)
    if found is None:
        return []
    night = found.contents.header.night
    if name or not night:
        return [found]
    runs = [Unfinished(path, read_bundle(path), retry_failed) for path in _newest_first(folder)]
    ours = [run for run in runs if run.contents.header.night == night and not run.is_done]
    return sorted(ours, key=lambda run: run.contents.header.run_id)


def asked_of(found: Unfinished) -> dict[str, Any]:
    """How the run was asked for. Raises `ResumeError` if its bundle does not say so in words that this program knows."""
    asked = found.contents.header.asked
    try:
        asked_settings(asked or {})
        asked_pace(asked or {}, 0)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ResumeError(
            f"{found.path} lacks the options of its run, or has those of another version of inductor-watch: "
            "start a new run with `nightly`"
        ) from error
    return asked or {}


def check_place(found: Unfinished, environment: Mapping[str, Any]) -> None:
    """Raises `ResumeError` where this machine or its torch is not the one that the run began on."""
    header = found.contents.header
    theirs, ours = str((header.asked or {}).get("torch_git")), str(environment["torch_git"])
    if theirs != ours:
        raise ResumeError(
            f"run {header.run_id} measures torch {theirs[:12]}, installed is {ours[:12]}: "
            "install that torch again, or start a new run with `nightly`"
        )
    here = extract_testbed(environment) | asked_settings(header.asked or {}).testbed()
    if "gpus" not in header.testbed:
        here.pop("gpus", None)  # bundles did not always say it
    differing = [key for key in {**header.testbed, **here} if header.testbed.get(key) != here.get(key)]
    if differing:
        pairs = ", ".join(f"{key} {header.testbed.get(key)} there and {here.get(key)} here" for key in differing)
        raise ResumeError(
            f"run {header.run_id} began on another testbed ({pairs}): resume it there, with as many workers"
            + (" and the same --shared-tuning" if "tuning" in differing else "")
        )


def _named(folder: Path, name: str) -> list[Path]:
    as_path = Path(name)
    bases = [as_path] if as_path.name.endswith((".jsonl", ".jsonl.gz")) else [folder / f"{name}.jsonl"]
    there = [path for base in bases for path in both_paths(base) if path.exists()]
    if not there:
        known = [path.name.partition(".jsonl")[0] for path in _newest_first(folder)][:3]
        hint = f"newest there: {', '.join(known)}" if known else "name the folder of the bundles with --out"
        raise ResumeError(f"no run {name!r} in {folder}: {hint}")
    return there[:1]


def _newest_first(folder: Path) -> list[Path]:
    plain = {both_paths(path)[0] for pattern in ("*.jsonl", "*.jsonl.gz") for path in folder.glob(pattern)}
    began: dict[Path, str] = {}
    for path in plain:
        path = path if path.exists() else both_paths(path)[1]
        try:
            began[path] = str(check_bundle(path).started_at)
        except BundleError:
            continue  # not one of ours, or cut in its first line: nothing was measured then
    return sorted(began, key=lambda path: (began[path], path.name), reverse=True)
