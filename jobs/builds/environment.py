"""One environment a torch build: made when it is first needed, kept in a folder, complete or not there at all."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from collector.vocabulary import short_hash
from jobs.builds.installer import Installer, torch_of
from jobs.builds.options import BuildError, BuildOptions, parse_build
from jobs.pool.child import code_path
from jobs.pool.device_slots import list_gpus

#: Written last: an environment without it is incomplete, and made anew.
_MARKER = "inductor-watch.json"
#: What measuring needs: the libraries of the command line, and those of the models where they are installed here.
_NEEDED = ("click", "rich", "numpy", "transformers")
#: Packages that belong to one torch build.
_OF_TORCH = re.compile(r"(torch|triton|torchvision|torchaudio|inductor-watch)$|(nvidia|cuda)-|pytorch-triton")
#: What torch requires, also where it is not installed here.
_TORCH_REQUIRES = {"filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"}


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that can be used: its Python, the torch in it, torch's git commit, and whether it was made just now."""

    python: Path
    torch: str
    commit: str
    is_new: bool = False


class Environments:
    """The environments below a folder, each named for its build and a hash of all that was requested in it.

    Besides torch each gets `options.packages`, else those of `pins_here`, with all that they require in the versions
    installed here. CUDA builds are refused on a host without a GPU, or as `cuda_builds` says.
    """

    def __init__(self, options: BuildOptions, device: str | None) -> None:
        # Links in the folder are not resolved: a Python that is called by its real name forgets its environment.
        self.folder, self._options = options.envs.absolute(), options
        self._packages = options.packages or tuple(pins_here())
        self._constraints = () if options.packages else tuple(constraints_here())
        has_gpu = device != "cpu" and bool(list_gpus())
        self._cuda_builds = has_gpu if options.cuda_builds is None else options.cuda_builds

    def path_of(self, build: Version) -> Path:
        """The folder of a build's environment, whether it is there or not."""
        options = self._options
        requested = [f"torch=={build}", str(options.base), self._packages, self._constraints, options.words()]
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

    def remove(self, builds: Sequence[Version] = ()) -> list[str]:
        """Deletes the environments of these builds, or all that were made here; returns the names of the folders."""
        removed = []
        for path in sorted(self.folder.glob("torch-*/")):
            build = _build_of(path.name)
            if build is None or (builds and build not in builds):
                continue
            with _locked(path):
                shutil.rmtree(path)
            _lock_of(path).unlink(missing_ok=True)
            removed.append(path.name)
        return removed

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
            installer.install(python, self._packages, [f"torch=={torch}", *self._constraints], of_torch=False)
        contents = {"torch": torch, "commit": commit, "requirement": requirement, "with": self._packages}
        partial = path / f"{_MARKER}.partial"
        partial.write_text(json.dumps(contents) + "\n")
        partial.replace(path / _MARKER)
        return Environment(python, torch, commit, is_new=True)


def pins_here() -> list[str]:
    """`name==version` of what measuring needs, as far as it is installed here, and `setuptools`."""
    pins = []
    for name in _NEEDED:
        with suppress(PackageNotFoundError):
            pins.append(f"{name}=={version(name)}")
    # Older builds import it to compile C++ and say so for Python 3.12 and later only; which version, each says itself.
    return [*pins, "setuptools"]


def constraints_here() -> list[str]:
    """`name==version` of all that is installed here, without torch and its requirements, of which builds need different ones.

    Local versions such as 0.28.0+cpu are left out, since an index may not have them.
    """
    of_torch = set(_TORCH_REQUIRES)
    with suppress(PackageNotFoundError):
        of_torch |= {canonicalize_name(Requirement(text).name) for text in requires("torch") or []}
    installed = {
        canonicalize_name(dist.metadata["Name"]): dist.version for dist in distributions() if dist.metadata["Name"]
    }
    return [
        f"{name}=={number}"
        for name, number in sorted(installed.items())
        if "+" not in number and name not in of_torch and not _OF_TORCH.match(name)
    ]


def _read(path: Path) -> Environment | None:
    """The environment in a folder; None where there is none that is complete."""
    python = path / "bin" / "python"
    with suppress(OSError, ValueError, KeyError, TypeError):
        contents: dict[str, Any] = json.loads((path / _MARKER).read_text())
        if python.exists():  # its base Python may be gone
            return Environment(python, str(contents["torch"]), str(contents["commit"]))
    return None


def _build_of(name: str) -> Version | None:
    """The build of a folder's name, None for a folder that was not made here."""
    version, _, digest = name.removeprefix("torch-").rpartition("-")
    with suppress(BuildError):
        return parse_build(version) if len(digest) == 8 else None
    return None


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits until no other process makes or removes this environment; the lock of a dead process is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_of(path).open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
