"""Installs packages into another environment: with uv where it is on PATH, else with pip. Never into this one."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jobs.builds.options import BuildError, BuildOptions
from jobs.output.terminal import one_line
from jobs.pool.child import clean_environment

#: Packages that come with a CUDA build of torch: gigabytes of libraries.
_CUDA = ("nvidia-", "nvidia_", "cuda-toolkit", "cuda-bindings", "cuda_")
_LONGEST = 300
#: How pip begins its list of conflicting requirements, and how it marks those of the command line and of constraints.
_CONFLICT = "The conflict is caused by:"
_REQUESTED = "The user requested "
_CONSTRAINT = "(constraint) "


class Installer:
    """Makes an empty environment and installs into it. Every method raises BuildError with the installer's own message."""

    def __init__(self, options: BuildOptions) -> None:
        self._options = options
        self._uv = shutil.which("uv")
        # pip installs from here into any environment; where this one has none the new one gets its own.
        self._own_pip = importlib.util.find_spec("pip") is None

    def create(self, folder: Path) -> Path:
        """An empty environment of the base Python; returns its interpreter."""
        base = str(self._options.base)
        if self._uv:
            command = [self._uv, "venv", "--quiet", "--python", base, str(folder)]
        else:
            command = [base, "-m", "venv", *([] if self._own_pip else ["--without-pip"]), str(folder)]
        _run(command, f"no environment can be made with {base}")
        return folder / "bin" / "python"

    def install(
        self, python: Path, packages: Sequence[str], constraints: Sequence[str] = (), *, of_torch: bool = True
    ) -> None:
        """Installs packages in one go; `of_torch`: they come from the index that was named for torch."""
        words = [*self._target(python), *self._options.words(of_torch)]
        if constraints:
            file = python.parent.parent / "constraints.txt"
            file.write_text("\n".join(constraints) + "\n")
            words += ["--constraint", str(file)]
        # pip compiles what it installs; without that the first process to import torch would do it.
        compiled = ["--compile-bytecode"] if self._uv else []
        self._install(python, [*compiled, *words, *packages], packages[0], constraints)

    def is_cuda(self, python: Path, requirement: str) -> bool:
        """Whether a build of torch would bring CUDA's libraries; they are not downloaded to find that out."""
        words = ["--dry-run", *self._target(python), *self._options.words()]
        if self._uv:
            output = self._install(python, [*words, requirement], requirement)
            return any(line.strip().removeprefix("+ ").startswith(_CUDA) for line in output.splitlines())
        report = python.parent.parent / "report.json"
        words += ["--no-deps", "--report", str(report)]
        self._install(python, [*words, requirement], requirement)
        (torch,) = json.loads(report.read_text())["install"]
        return any(name.startswith(_CUDA) for name in torch["metadata"].get("requires_dist", ()))

    def _install(self, python: Path, words: Sequence[str], what: str, constraints: Sequence[str] = ()) -> str:
        def explain(output: str) -> str:
            return conflict(output, self._constraint_files(python), constraints) or last_message(output)

        return _run([*self._command(python), "install", *words], f"{what} does not install", explain=explain)

    def _constraint_files(self, python: Path) -> list[str]:
        """The constraints files that pip is configured with; uv has no command that tells its own."""
        if self._uv:
            return []
        return constraint_files(_run([*self._command(python), "config", "list"], "pip config fails", errors=False))

    def _command(self, python: Path) -> list[str]:
        if self._uv:
            return [self._uv, "pip"]
        if self._own_pip:
            return [str(python), "-m", "pip"]
        return [sys.executable, "-m", "pip", "--python", str(python)]

    def _target(self, python: Path) -> list[str]:
        return ["--python", str(python)] if self._uv else []


def torch_of(python: Path, variables: Mapping[str, str]) -> tuple[str, str]:
    """Version and git commit of the torch that an interpreter imports. Raises `BuildError` if it imports none."""
    code = "import json, torch; print(json.dumps([torch.__version__, torch.version.git_version]))"
    output = _run([str(python), "-c", code], "torch does not import", variables, errors=False)
    version, commit = json.loads(output.splitlines()[-1])
    return str(version), str(commit)


def last_message(output: str) -> str:
    """The line of an installer's output that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for index, line in reversed(list(enumerate(lines))):
        if line.startswith(("cause:", "╰─▶")):  # uv's cause goes on until its hints
            cause = " ".join(lines[index:]).partition(" hint:")[0]
            return one_line(cause.removeprefix("cause:").removeprefix("╰─▶").strip(), _LONGEST)
    # pip's very last line on a conflict is where to read about conflicts.
    marked = [line for line in lines if line.startswith(("ERROR:", "error:")) and "ResolutionImpossible" not in line]
    return one_line(re.sub(r"^(ERROR:|error:)\s*", "", (marked or lines or ["no output"])[-1]), _LONGEST)


def conflict(output: str, files: Sequence[str], own: Sequence[str] = ()) -> str | None:
    """The requirements that exclude each other by pip's output, None where it names none.

    A constraint comes with the one of `files` that holds it; `own` are the constraints that this program gave.
    """
    _, marker, after = output.partition(_CONFLICT)
    if not marker:
        return None
    listed = [line.strip().removeprefix(_REQUESTED) for line in after.strip().partition("\n\n")[0].splitlines()]
    return one_line("these exclude each other: " + "; ".join(_located(item, files, own) for item in listed), _LONGEST)


def constraint_files(config_list: str) -> list[str]:
    """The files and addresses that `pip config list` names as constraints, those of variables first."""
    lines = [line.partition("=") for line in sorted(config_list.splitlines())]
    return [
        file for name, _, value in lines if name.endswith(".constraint") for file in ast.literal_eval(value).split()
    ]


def _located(item: str, files: Sequence[str], own: Sequence[str]) -> str:
    if not item.startswith(_CONSTRAINT):
        return item
    constraint = item.removeprefix(_CONSTRAINT)
    if _plain(constraint) in map(_plain, own):
        return f"the constraint {constraint}, as it is installed here"
    holding = [file for file in files if _plain(constraint) in _lines_of(file)]
    # Else it is in a file that another one names, or behind an address.
    likely = holding or (files if len(files) == 1 else [])
    return f"the constraint {constraint}" + (f" in {likely[0]}" if likely else "")


def _lines_of(file: str) -> set[str]:
    with suppress(OSError, ValueError):
        return {_plain(line.partition("#")[0]) for line in Path(file).read_text().splitlines()}
    return set()


def _plain(requirement: str) -> str:
    return re.sub(r"\s", "", requirement).replace("_", "-").lower()


def _run(
    command: Sequence[str],
    problem: str,
    variables: Mapping[str, str] | None = None,
    errors: bool = True,
    explain: Callable[[str], str] = last_message,
) -> str:
    """The output of a command (with `errors`, of both streams). Where it fails, `explain` makes a reason of the output."""
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
        raise BuildError(f"{problem}: " + explain(f"{done.stdout}\n{done.stderr}"))
    return done.stdout + (done.stderr if errors else "")
