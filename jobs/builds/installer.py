"""Installs packages into another environment: with uv where it is on PATH, else with pip. Never into this one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.builds import complaints, index
from jobs.builds.build import Build, BuildError

#: What shows that a torch is a CUDA build: several gigabytes of these come with it.
_CUDA = ("nvidia-", "nvidia_", "cuda-toolkit", "cuda-bindings", "cuda_")
_QUIET = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "UV_NO_PROGRESS": "1"}
#: What would lead an interpreter to packages of another environment.
_MISLEADING = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where packages come from, as pip and uv take it; without `index_url` what these are configured with."""

    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    no_index: bool = False

    def words(self, with_index: bool = True) -> list[str]:
        """The options of an installer; `with_index=False` for what an index of torch wheels does not have."""
        found = ["--index-url", self.index_url] if self.index_url and with_index else []
        found += [word for place in self.find_links for word in ("--find-links", place)]
        return [*found, *(["--no-index"] if self.no_index else [])]


class Installer:
    """Makes an empty environment and installs into it. Every method raises BuildError with the installer's own last words."""

    def __init__(self, base: Path, origin: Origin) -> None:
        self._base, self._origin = base, origin
        self._uv = shutil.which("uv")
        # pip installs from here into any environment; where this one has none the new one gets its own.
        self._own_pip = importlib.util.find_spec("pip") is None

    @property
    def name(self) -> str:
        """`uv` or `pip`."""
        return "uv" if self._uv else "pip"

    def create(self, folder: Path) -> Path:
        """An empty environment of the base Python; returns its interpreter."""
        if self._uv:
            command = [self._uv, "venv", "--quiet", "--python", str(self._base), str(folder)]
        else:
            command = [str(self._base), "-m", "venv", *([] if self._own_pip else ["--without-pip"]), str(folder)]
        _run(command, f"no environment can be made with {self._base}")
        return folder / "bin" / "python"

    def install(
        self, python: Path, packages: Sequence[str], constraints: Sequence[str] = (), *, of_torch: bool = True
    ) -> None:
        """Installs packages in one go; `of_torch`: they come from the index that was named for torch."""
        words = self._origin.words(with_index=of_torch)
        file = python.parent.parent / "constraints.txt"
        if constraints:
            file.write_text("\n".join(constraints) + "\n")
            words += ["--constraint", str(file)]
        # pip compiles what it installs; without that the first process to import torch would do it.
        compiled = ["--compile-bytecode"] if self._uv else []
        command = [*self._command(python), "install", *compiled, *self._target(python), *words, *packages]

        def why(said: str) -> str:
            return complaints.conflict(said, self._places(python), constraints) or complaints.last_words(said)

        _run(command, f"{packages[0]} does not install", why=why)

    def is_cuda(self, python: Path, build: Build) -> bool:
        """Whether what would be installed is a CUDA build; nothing is downloaded to find that out, its metadata apart."""
        if not self._uv:
            needs = index.ask(self._origin.words(), build.version).needs
            return any(name.startswith(_CUDA) for name in needs)
        command = [*self._command(python), "install", "--dry-run", *self._target(python), *self._origin.words()]
        said = _run([*command, build.requirement], f"{build.requirement} does not install")
        return any(line.strip().removeprefix("+ ").startswith(_CUDA) for line in said.splitlines())

    def _places(self, python: Path) -> list[str]:
        """The constraints files that pip is configured with; uv tells nobody."""
        if self._uv:
            return []
        said = _run([*self._command(python), "config", "list"], "pip does not tell its configuration", errors=False)
        return complaints.constraint_places(said)

    def _command(self, python: Path) -> list[str]:
        if self._uv:
            return [self._uv, "pip"]
        if self._own_pip:
            return [str(python), "-m", "pip"]
        return [sys.executable, "-m", "pip", "--python", str(python)]

    def _target(self, python: Path) -> list[str]:
        return ["--python", str(python)] if self._uv else []


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment variables without what belongs to its own Python."""
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return kept | _QUIET | dict(extra or {})


def torch_of(python: Path, variables: Mapping[str, str]) -> tuple[str, str]:
    """Version and git commit of the torch that an interpreter imports.

    Raises:
        BuildError: it imports none.
    """
    ask = "import json, torch; print(json.dumps([torch.__version__, torch.version.git_version]))"
    said = _run([str(python), "-c", ask], "torch does not import", variables, errors=False)
    version, commit = json.loads(said.splitlines()[-1])
    return str(version), str(commit)


def _run(
    command: Sequence[str],
    wrong: str,
    variables: Mapping[str, str] | None = None,
    errors: bool = True,
    why: Callable[[str], str] = complaints.last_words,
) -> str:
    """What a command prints (with `errors` on either stream). Where it fails, `why` makes a reason of all that it printed."""
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
        raise BuildError(f"{wrong}: {error.strerror or error}") from error
    if done.returncode:
        raise BuildError(f"{wrong}: " + why(f"{done.stdout}\n{done.stderr}"))
    return done.stdout + (done.stderr if errors else "")
