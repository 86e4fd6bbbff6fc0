"""Measure in a child process: with the Python of another torch build, or on a node of a cluster.

The parent writes a `Request` as one line of JSON to the standard input of `python -m jobs.pool.child` and keeps that open.
When it closes, because the parent ended or was killed, the child ends as if it had been interrupted, and its cells with it.
The child writes bundles to the request's folder.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from collector.bundle import BundleContents, read_bundle
from collector.usage_errors import BundleError, ConfigError
from collector.vocabulary import Cell, short_hash
from jobs import tool_version
from jobs.output.terminal import one_line, report_error
from jobs.requested_options import RequestedOptions, RunNames, Selection

#: Exit code of a child that was interrupted.
INTERRUPTED = 130

#: Seconds between two looks at a running child: Ray interrupts a task only between two steps of Python.
_LOOK_S = 0.5
#: Seconds that a child has to end its cells before it is killed.
_PATIENCE_S = 20
#: Variables that would lead an interpreter to the packages of another environment.
_MISLEADING = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "UV_NO_PROGRESS": "1"}
#: The packages of this program that measuring imports.
_PACKAGES = ("collector", "jobs", "db", "analysis")


class ChildError(click.ClickException):
    """An error for a child process that could not measure; its text is one line that says why."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Request:
    """A run that a child measures: its cells, its names, its options, and the folder for its bundles.

    `selection` and `configs` are as the user typed them, since their meaning depends on the torch that measures; `cells`, if
    there are any, are measured instead. The child refuses if its torch or its inductor-watch differs from `torch_git` or
    `tool`, unless these are empty. No cell starts after `until` (seconds since the epoch).
    """

    selection: Selection
    configs: tuple[str, ...]
    names: RunNames
    requested: RequestedOptions
    folder: str = ""
    cells: Sequence[Cell] = field(default=(), hash=False)
    torch_git: str = ""
    tool: str = ""
    until: float | None = None

    @property
    def key(self) -> str:
        """Six hexadecimal digits for selection, configs and options, equal whatever the build, the names and the folder are."""
        data = self.to_json()
        return short_hash([data[name] for name in ("selection", "configs", "settings", "pace")])[:6]

    @property
    def left_s(self) -> float:
        """Seconds in which cells may still be started, by this machine's clock."""
        return float("inf") if self.until is None else max(0.0, self.until - time.time())

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `from_json` reads back. It has `until` and no budget."""
        return {
            "selection": self.selection.to_json(),
            "configs": list(self.configs),
            "names": asdict(self.names),
            **self.requested.to_json(),
            "folder": self.folder,
            "cells": [cell.to_json() for cell in self.cells],
            "torch_git": self.torch_git,
            "tool": self.tool,
            "until": self.until,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Request:
        """Return the request that `to_json` wrote."""
        return cls(
            Selection.from_json(data["selection"]),
            tuple(data["configs"]),
            RunNames(**data["names"]),
            RequestedOptions.from_json(data),
            data["folder"],
            tuple(map(Cell.from_json, data["cells"])),
            data["torch_git"],
            data["tool"],
            data["until"],
        )

    def called(self, **names: Any) -> Request:
        """Return the request with other names, given as fields of `RunNames`."""
        return replace(self, names=replace(self.names, **names))


def measure_in(python: Path, request: Request, folder: Path, log: Path | None = None) -> list[BundleContents]:
    """Measure a request with another Python into a folder of its own, and return its bundles.

    A folder whose bundles are complete is not measured again; an unfinished run in it is continued. The child prints
    to `log`, else to standard error.

    Raises:
        ChildError: the child failed; the text has its last line.
    """
    if bundles := complete_bundles(folder):
        return bundles
    folder.mkdir(parents=True, exist_ok=True)
    request = replace(request, folder=str(folder.absolute()))
    with log.open("a", encoding="utf-8") if log else nullcontext() as stream:
        code, last_line = run_child(python, request, clean_environment(code_path()), stream)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise ChildError(f"measuring ended with exit code {code}: {last_line}")
    bundles = complete_bundles(folder)
    if not bundles:
        raise ChildError(f"measuring left no complete bundle in {folder}: the same command continues it")
    return bundles


def complete_bundles(folder: Path) -> list[BundleContents]:
    """Return the bundles of a folder if each is closed and has an outcome for every planned cell, else an empty list."""
    if any(folder.glob("*.jsonl")):
        return []
    try:
        bundles = [read_bundle(path) for path in bundle_files(folder)]
    except BundleError:
        return []
    done = (item.finished_at and {cell.cell_id for cell in item.planned} <= item.latest().keys() for item in bundles)
    return bundles if all(done) else []


def bundle_files(folder: Path) -> list[Path]:
    """Return the paths of the closed bundles of a folder, in the order of their names."""
    return sorted(folder.glob("*.jsonl.gz"))


def run_child(
    python: Path, request: Request, environ: Mapping[str, str], log: IO[str] | None = None
) -> tuple[int, str]:
    """Measure a request in a child and wait for it; return its exit code and the last line of its standard error.

    Raises:
        ChildError: the interpreter cannot be started.
    """
    line = json.dumps(request.to_json()) + "\n"
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                [str(python), "-m", "jobs.pool.child"],
                stdin=subprocess.PIPE,
                stdout=log or 2,
                stderr=errors,
                env=environ,
            )
        except OSError as error:
            raise ChildError(f"{python} cannot be started: {error.strerror}") from error
        try:
            with suppress(BrokenPipeError):
                assert child.stdin is not None  # noqa: S101 - it is a pipe
                child.stdin.write(line.encode())
                child.stdin.flush()
            while child.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_LOOK_S)
        finally:
            _end(child)
        errors.seek(0)
        lines = [text.strip() for text in errors.read().decode(errors="replace").splitlines() if text.strip()]
    return child.returncode, one_line(lines[-1] if lines else "no output", 300)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment variables without those of its own Python, with `extra` added."""
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return kept | _QUIET | dict(extra or {})


def code_path() -> dict[str, str]:
    """Return PYTHONPATH with this program first: other environments have torch and the models, but not this program."""
    rest = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(_code_folder()), *([rest] if rest else [])])}


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child and its cells by closing its standard input; kill it if that takes too long."""
    assert child.stdin is not None  # noqa: S101 - it is a pipe
    with suppress(BrokenPipeError):
        child.stdin.close()
    try:
        child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@cache
def _code_folder() -> Path:
    """Return a folder that holds this program and no torch: for an installed program, a copy that ends with this process."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "torch").exists() and not root.name.endswith("-packages"):
        return root
    folder = Path(tempfile.mkdtemp(prefix="inductor-watch-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in _PACKAGES:
        shutil.copytree(root / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / f"inductor_watch-{tool_version()}.dist-info"  # where importlib.metadata finds the version
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: inductor-watch\nVersion: {tool_version()}\n")
    return folder


def measure(request: Request) -> None:
    """Measure the cells of the request, or the cells that are left of it, in this process.

    Raises:
        ConfigError: this host has another torch, another inductor-watch, or lacks the library of a model.
    """
    from jobs.plan.models_file import local_models
    from jobs.plan.planning import Plan, planned_night
    from jobs.pool.device_slots import holding_for
    from jobs.pool.resuming import find_night
    from jobs.pool.session import measure_and_store, resume_and_store
    from jobs.pool.testbeds import find_testbeds, testbeds_of

    folder = Path(request.folder)
    if any(folder.glob("*.jsonl*")):
        own = request.requested.settings.own_models
        local = local_models(request.selection.models_file, request.selection.models) | {one.name: one for one in own}
        local |= local_models("", [cell.model for cell in request.cells])
        settings, overlay = request.requested.settings, request.requested.execution.overlay
        folders = tuple(Path(name) for name in (settings.trace, settings.shared_tuning) if name)
        overlays = (Path(overlay),) if overlay else ()
        if runs := [
            replace(run, own_models=local, overlays=overlays, folders=folders) for run in find_night(folder, None)
        ]:
            resume_and_store(runs, testbeds_of(runs, serve=True), None)
        return
    if not request.left_s:
        return
    device = request.cells[0].device if request.cells else request.selection.device
    with holding_for(device, request.requested.execution.gpus):
        testbeds = find_testbeds(device, replace(request.requested.execution, budget_s=request.left_s), serve=True)
        _check_requirements(request, str(testbeds[0].environment["torch_git"]))
        plan = Plan(list(request.cells))
        if not request.cells:
            plan = planned_night(testbeds[0].device, request.selection, request.configs)
        measure_and_store(plan, testbeds, request.names, request.requested.settings, folder, None)


def _check_requirements(request: Request, torch_git: str) -> None:
    from collector.zoo.registry import find

    if request.tool not in ("", tool_version()):
        raise ConfigError(f"inductor-watch {tool_version()} there, {request.tool} where the night was planned")
    if request.torch_git not in ("", torch_git):
        raise ConfigError(f"torch {torch_git[:12]} there, {request.torch_git[:12]} where the night was planned")
    own = request.requested.settings.own_models
    missing = {name for cell in request.cells for name in find(cell.suite, cell.model, own).missing()}
    if missing:
        raise ConfigError(f"{', '.join(sorted(missing))} not installed there, and planned models need it")


def main() -> NoReturn:
    """Measure the request on standard input, and exit with the exit codes of the command line."""
    request = Request.from_json(json.loads(sys.stdin.readline()))
    # A shell makes the processes that it starts in the background, and their children, ignore this signal; Ray blocks it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    code = 0
    try:
        measure(request)
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        code = report_error(error)
    sys.exit(code)


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
