"""Installs packages into another environment: with uv where it is on PATH, else with pip. Never into this one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.builds.options import BuildError, BuildOptions
from jobs.output.terminal import one_line
from jobs.pool.child import clean_environment

#: Packages that come with a CUDA build of torch: gigabytes of libraries.
_CUDA = ("nvidia-", "nvidia_", "cuda-toolkit", "cuda-bindings", "cuda_")
_LONGEST = 300


class Installer:
    """Makes an empty environment and installs into it. Every method raises BuildError with the installer's own message."""

    def __init__(self, options: BuildOptions) -> None:
        self._options = options
        self._uv = shutil.which("uv")

    def create(self, folder: Path) -> Path:
        """An empty environment of the base Python; returns its interpreter."""
        base = str(self._options.base)
        if self._uv:
            command = [self._uv, "venv", "--quiet", "--python", base, str(folder)]
        else:
            command = [base, "-m", "venv", "--without-pip", str(folder)]
        _run(command, f"no environment can be made with {base}")
        return folder / "bin" / "python"

    def install(self, python: Path, packages: Sequence[str], *, of_torch: bool = True) -> None:
        """Installs packages in one go; `of_torch`: they come from the index that was named for torch."""
        # pip compiles what it installs; without that the first process to import torch would do it.
        compiled = ["--compile-bytecode"] if self._uv else []
        self._install(python, [*compiled, *self._target(python), *self._options.words(of_torch)], packages)

    def is_cuda(self, python: Path, requirement: str) -> bool:
        """Whether a build of torch would bring CUDA's libraries; they are not downloaded to find that out."""
        words = ["--dry-run", *self._target(python), *self._options.words()]
        if self._uv:
            output = self._install(python, words, [requirement])
            return any(line.strip().removeprefix("+ ").startswith(_CUDA) for line in output.splitlines())
        report = python.parent.parent / "report.json"
        words += ["--no-deps", "--report", str(report)]
        self._install(python, words, [requirement])
        (torch,) = json.loads(report.read_text())["install"]
        return any(name.startswith(_CUDA) for name in torch["metadata"].get("requires_dist", ()))

    def _install(self, python: Path, words: Sequence[str], packages: Sequence[str]) -> str:
        command = [*self._command(python), "install", *words, *packages]
        return _run(command, f"{' '.join(packages)} does not install")

    def _command(self, python: Path) -> list[str]:
        if self._uv:
            return [self._uv, "pip"]
        return [sys.executable, "-m", "pip", "--python", str(python)]  # pip installs from here into any environment

    def _target(self, python: Path) -> list[str]:
        return ["--python", str(python)] if self._uv else []


def torch_of(python: Path, variables: Mapping[str, str]) -> tuple[str, str]:
    """Version and git commit of the torch that an interpreter imports. Raises `BuildError` if it imports none."""
    code = "import json, torch; print(json.dumps([torch.__version__, torch.version.git_version]))"
    output = _run([str(python), "-c", code], "torch does not import", variables, errors=False)
    version, commit = json.loads(output.splitlines()[-1])
    return str(version), str(commit)


def last_message(output: str) -> str:
    """The line of an installer's output that says what is wrong; of pip's conflicts, the requirements."""
    _, is_conflict, listed = output.partition("The conflict is caused by:")
    if is_conflict:
        excluding = listed.strip().partition("\n\n")[0].splitlines()
        return one_line(f"these exclude each other: {'; '.join(map(str.strip, excluding))}", _LONGEST)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for index, line in reversed(list(enumerate(lines))):
        if line.startswith(("cause:", "╰─▶")):  # uv's cause goes on until its hints
            cause = " ".join(lines[index:]).partition(" hint:")[0]
            return one_line(cause.removeprefix("cause:").removeprefix("╰─▶").strip(), _LONGEST)
    marked = [line for line in lines if line.startswith(("ERROR:", "error:"))]
    return one_line(re.sub(r"^(ERROR:|error:)\s*", "", (marked or lines or ["no output"])[-1]), _LONGEST)


def _run(command: Sequence[str], problem: str, variables: Mapping[str, str] | None = None, errors: bool = True) -> str:
    """The output of a command (with `errors`, of both streams). Raises `BuildError` where it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            env=clean_environment(variables),
        )
    except OSError as error:
        raise BuildError(f"{problem}: {error.strerror or error}") from error
    if done.returncode:
        raise BuildError(f"{problem}: " + last_message(f"{done.stdout}\n{done.stderr}"))
    return done.stdout + (done.stderr if errors else "")
