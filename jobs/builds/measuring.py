"""Measures in another environment, in a process of its own, and reads what came out: bundles, which tell what is done."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from collector.bundle import BundleContents, BundleError, read_bundle
from collector.bundle_file import both_paths
from jobs.builds.build import BuildError
from jobs.builds.installer import clean_environment
from jobs.builds.own_code import code_path
from jobs.builds.request import Request
from jobs.output.terminal import one_line


def measure_in(python: Path, request: Request, folder: Path, log: Path | None = None) -> list[BundleContents]:
    """Measures a request with another Python into a folder of its own, and returns its bundles.

    A folder whose bundles are complete is not measured again, one with a run that was cut off is gone on with. `log`
    takes what the process prints, which goes to standard error otherwise.

    Raises:
        BuildError: the process failed; the text has its last words.
    """
    if done := complete_bundles(folder):
        return done
    folder.mkdir(parents=True, exist_ok=True)
    words = [str(python), "-m", "jobs.builds.worker"]
    line = json.dumps(replace(request, folder=str(folder.absolute())).to_json()) + "\n"
    code, said = _run(words, line, code_path(), log)
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise BuildError(f"measuring ended with exit code {code}: {said}")
    done = complete_bundles(folder)
    if not done:
        raise BuildError(f"measuring left no complete bundle in {folder}: the same command goes on with it")
    return done


def complete_bundles(folder: Path) -> list[BundleContents]:
    """The bundles of a folder if each is closed and has an outcome for every planned cell, else none."""
    found = []
    for path in sorted(folder.glob("*.jsonl*")):
        if both_paths(path)[0].exists() and path == both_paths(path)[0]:
            return []
        try:
            contents = read_bundle(path)
        except BundleError:
            return []
        if contents.finished_at is None or {cell.cell_id for cell in contents.planned} - contents.latest().keys():
            return []
        found.append(contents)
    return found


def bundle_files(folder: Path) -> list[Path]:
    """The closed bundles of a folder."""
    return sorted(folder.glob("*.jsonl.gz"))


def _run(words: list[str], line: str, variables: Mapping[str, str], log: Path | None) -> tuple[int, str]:
    """Runs the worker with the request; its standard input stays open as long as this process lives."""
    stream = log.open("a", encoding="utf-8") if log else None
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=stream or 2,  # standard output is for what the verb itself says
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=clean_environment(variables),
        )
    except OSError as error:
        raise BuildError(f"{words[0]} cannot be started: {error.strerror}") from error
    finally:
        if stream:
            stream.close()
    assert process.stdin is not None and process.stderr is not None  # noqa: S101 - pipes were asked for
    try:
        process.stdin.write(line)
        process.stdin.flush()
        last = "no word"
        for said in process.stderr:
            last = said.strip() or last
        return process.wait(), one_line(last, 300)
    except BrokenPipeError:
        return process.wait() or 1, "it ended before it was told what to measure"
    finally:
        # Its standard input ends with this, and so does a process that still measures, its cells with it.
        process.stdin.close()
        process.wait()
