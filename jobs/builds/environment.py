"""One environment a torch build: made when it is first asked for, kept in a folder, whole or not there at all."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.vocabulary import short_hash
from jobs.builds.build import Build, BuildError, parse_build
from jobs.builds.installer import Installer, Origin, torch_of
from jobs.builds.own_code import code_path

#: Written last: an environment without it is half made, and made anew.
_MARKER = "inductor-watch.json"


@dataclass(frozen=True, slots=True)
class Ready:
    """An environment that can be used: its Python, the torch in it, and torch's git commit."""

    python: Path
    torch: str
    commit: str
    made: bool = False


@dataclass(frozen=True, slots=True)
class Wishes:
    """What every environment is made of, besides torch.

    `base` is the Python to make them with; `packages` are requirements that each gets, `constraints` hold what these bring
    along to one version; without `cuda_builds` a torch that brings CUDA's libraries is refused.
    """

    base: Path
    origin: Origin
    packages: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    cuda_builds: bool = False


class Environments:
    """The environments below a folder, each named for its build and a hash of all that was asked for in it."""

    def __init__(self, folder: Path, wishes: Wishes) -> None:
        # No links resolved in the folder: a Python that is called by its real name forgets its environment.
        self.folder, self._wishes = folder.absolute(), wishes

    def path_of(self, build: Build) -> Path:
        """Where the environment of a build is, or would be."""
        wishes = self._wishes
        asked = [build.requirement, str(wishes.base), wishes.packages, wishes.constraints, wishes.origin.words()]
        return self.folder / f"{build.name}-{short_hash(asked)[:8]}"

    def ready(self, build: Build) -> Ready:
        """The environment of a build, made if it is not there.

        Raises:
            BuildError: torch or what else is asked for does not install, or torch does not import. Nothing is left then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.path_of(build)
        with _locked(place.with_name(place.name + ".lock")):
            if (found := _read(place)) is not None:
                return found
            shutil.rmtree(place, ignore_errors=True)
            try:
                return self._make(place, build)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise

    def remove(self, builds: Sequence[Build] = ()) -> list[str]:
        """Deletes the environments of these builds, or all that were made here; returns the names of the folders."""
        removed = []
        for place in sorted(self.folder.glob("torch-*/")):
            build = _build_of(place.name)
            if build is None or (builds and build not in builds):
                continue
            with _locked(place.with_name(place.name + ".lock")):
                shutil.rmtree(place)
            place.with_name(place.name + ".lock").unlink(missing_ok=True)
            removed.append(place.name)
        return removed

    def _make(self, place: Path, build: Build) -> Ready:
        wishes = self._wishes
        installer = Installer(wishes.base, wishes.origin)
        python = installer.create(place)
        if not wishes.cuda_builds and installer.is_cuda(python, build):
            raise BuildError(
                f"{build.requirement} is there as a CUDA build only, with gigabytes of libraries: name an index of CPU "
                "wheels with --index-url, or say --cuda-builds"
            )
        installer.install(python, [build.requirement])
        torch, commit = torch_of(python, code_path())
        if torch.partition("+")[0] != build.public:
            raise BuildError(f"{build.requirement} was asked for and torch {torch} is imported: see PYTHONPATH")
        if wishes.packages:
            kept = [f"torch=={torch}", *wishes.constraints]
            installer.install(python, wishes.packages, kept, of_torch=False)
        _write(place, {"torch": torch, "commit": commit, "requirement": build.requirement, "with": wishes.packages})
        return Ready(python, torch, commit, made=True)


def _read(place: Path) -> Ready | None:
    """The environment at a place; None where there is none that is whole."""
    python = place / "bin" / "python"
    with suppress(OSError, ValueError, KeyError, TypeError):
        told: dict[str, Any] = json.loads((place / _MARKER).read_text())
        if python.exists():  # its base Python may have gone
            return Ready(python, str(told["torch"]), str(told["commit"]))
    return None


def _write(place: Path, told: dict[str, Any]) -> None:
    partial = place / f"{_MARKER}.partial"
    partial.write_text(json.dumps(told) + "\n")
    partial.replace(place / _MARKER)


def _build_of(name: str) -> Build | None:
    """The build of a folder's name, None for a folder that is none of ours."""
    version, _, digest = name.removeprefix("torch-").rpartition("-")
    try:
        return parse_build(version) if len(digest) == 8 else None
    except BuildError:
        return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits for whoever makes, or removes, the same environment; the kernel takes the lock back from a dead process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
