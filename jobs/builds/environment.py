"""One environment a torch build: made when it is first needed, kept in a folder, complete or not there at all."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.version import Version

from collector.output_file import write_output
from collector.vocabulary import short_hash
from jobs.builds.installer import Installer, torch_of
from jobs.builds.options import BuildError, BuildOptions
from jobs.pool.child import code_path
from jobs.pool.device_slots import list_gpus

#: Written last: an environment without it is incomplete, and made anew.
_MARKER = "inductor-watch.json"
#: What measuring needs: the libraries of the command line, and those of the models where they are installed here.
_NEEDED = ("click", "rich", "numpy", "transformers")


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that can be used: its Python, the torch in it, torch's git commit, and whether it was made just now."""

    python: Path
    torch: str
    commit: str
    is_new: bool = False


class Environments:
    """The environments below a folder, each named for its build and a hash of all that was requested in it.

    Besides torch each gets `options.packages`, else those of `pins_here`. CUDA builds are refused on a host without a GPU,
    or as `cuda_builds` says.
    """

    def __init__(self, options: BuildOptions, device: str | None) -> None:
        # Links in the folder are not resolved: a Python that is called by its real name forgets its environment.
        self.folder, self._options = options.envs.absolute(), options
        self._packages = options.packages or tuple(pins_here())
        has_gpu = device != "cpu" and bool(list_gpus())
        self._cuda_builds = has_gpu if options.cuda_builds is None else options.cuda_builds

    def path_of(self, build: Version) -> Path:
        """The folder of a build's environment, whether it is there or not."""
        options = self._options
        requested = [f"torch=={build}", str(options.base), self._packages, options.words()]
        return self.folder / f"torch-{build}-{short_hash(requested)[:8]}"

    def ready(self, build: Version) -> Environment:
        """The environment of a build, made if it is not there.

        Raises:
            BuildError: torch or another package does not install, or torch does not import. Nothing is left then.
        """
        path = self.path_of(build)
        with _locked(path):
            if (environment := _read(path)) is not None:
                return environment
            shutil.rmtree(path, ignore_errors=True)
            try:
                return self._make(path, build)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise

    def _make(self, path: Path, build: Version) -> Environment:
        installer, requirement = Installer(self._options), f"torch=={build}"
        python = installer.create(path)
        if not self._cuda_builds and installer.is_cuda(python, requirement):
            raise BuildError(
                f"{requirement} is there as a CUDA build only, with gigabytes of libraries: name an index of CPU "
                "wheels with --index-url, or say --cuda-builds"
            )
        installer.install(python, [requirement])
        torch, commit = torch_of(python, code_path())
        if torch.partition("+")[0] != build.public:
            raise BuildError(f"{requirement} was asked for and torch {torch} is imported: see PYTHONPATH")
        if self._packages:
            installer.install(python, [f"torch=={torch}", *self._packages], of_torch=False)
        write_output(path / _MARKER, json.dumps({"torch": torch, "commit": commit}) + "\n")
        return Environment(python, torch, commit, is_new=True)


def pins_here() -> list[str]:
    """`name==version` of what measuring needs, as far as it is installed here, and `setuptools`."""
    pins = []
    for name in _NEEDED:
        with suppress(PackageNotFoundError):
            pins.append(f"{name}=={version(name)}")
    # Older builds import it to compile C++ and say so for Python 3.12 and later only; which version, each says itself.
    return [*pins, "setuptools"]


def _read(path: Path) -> Environment | None:
    """The environment in a folder; None where there is none that is complete."""
    python = path / "bin" / "python"
    with suppress(OSError, ValueError, KeyError, TypeError):
        contents: dict[str, Any] = json.loads((path / _MARKER).read_text())
        if python.exists():  # its base Python may be gone
            return Environment(python, str(contents["torch"]), str(contents["commit"]))
    return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits until no other process makes this environment; the lock of a dead process is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
