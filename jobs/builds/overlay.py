"""A PyTorch commit without a build: its Python files laid over the installed wheel.

A wheel knows the commit that it was built from. The files in which that commit and another one differ come from git; all
others are links into the wheel. So an overlay is made in about a second, and a process that has it first in PYTHONPATH
imports the other commit's Python with the wheel's libraries. Neither the wheel nor the working tree is written to.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from collector.vocabulary import short_hash
from jobs.builds.options import BuildError
from jobs.git.log import GitError, Repository
from jobs.output.terminal import the_first

#: The packages of a wheel whose files come from a repository.
PACKAGES = ("torch", "functorch")
#: The wheel's libraries look for CUDA's beside the package.
_CUDA = "nvidia"
#: What a change of needs a build: sources of libraries, of generated files, and the version of Triton.
_BUILT = (
    *(
        "torch/csrc/",
        "torch/lib/",
        "aten/",
        "c10/",
        "caffe2/",
        "cmake/",
        "third_party/",
        "torchgen/",
        "tools/autograd/",
    ),
    *("CMakeLists.txt", "setup.py", ".ci/docker/triton_version.txt", ".ci/docker/ci_commit_pins/triton"),
)
_VALUE = re.compile(r"^(__version__|git_version)\b.*= *['\"](.+)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Wheel:
    """An installed torch: the folder that holds the package, its version, and the commit that it was built from."""

    folder: Path
    version: str
    commit: str

    @classmethod
    def installed(cls) -> Wheel:
        """The one of this Python. Does not import torch. Raises `BuildError` where there is none."""
        spec = find_spec("torch")
        if spec is None or spec.origin is None:
            raise BuildError("--source needs an installed torch to lay Python files over: pip install torch")
        package = Path(spec.origin).parent
        values = dict(_VALUE.findall((package / "version.py").read_text()))
        return cls(package.parent, values.get("__version__", "?"), values.get("git_version", "?"))


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay in `folder`, and what its runs are called.

    `commit` is the source's; a working tree that differs from its commit adds `-dirty-` and a hash of its content, and has
    no `date` (ISO 8601). `files` counts the files that differ from the wheel's, `left_out` those that need a build.
    """

    folder: Path
    commit: str
    branch: str
    title: str
    date: str | None
    wheel_commit: str
    files: int
    left_out: int

    def __str__(self) -> str:
        left_out = f", without {self.left_out} that need a build" if self.left_out else ""
        commit = self.commit[:10] + self.commit[40:]
        return f"{self.files} files of {commit} over {self.wheel_commit[:10]}{left_out}"


def make_overlay(
    source: str, cache: Path, *, python_only: bool = False, wheel_commit: str = "", wheel: Wheel | None = None
) -> Overlay:
    """The overlay of `REPO@REF`, or of a working tree with `REPO@.`, made in `cache` if it is not there.

    `wheel_commit` names a commit that the repository has in place of the one that the wheel (the installed torch) knows.

    Raises:
        BuildError: another form, no torch, or files differ that need a build and `python_only` is not set.
        GitError: no clone, or it lacks the ref or the wheel's commit.
    """
    path, _, ref = source.rpartition("@")
    if not path or not ref:
        raise BuildError(f"--source {source}: write REPO@REF, or REPO@. for the working tree as it is")
    wheel, repository = wheel or Wheel.installed(), Repository(Path(path).expanduser())
    try:
        base = repository.sha_of(wheel_commit or wheel.commit)
    except GitError as error:
        raise GitError(f"{error}: torch {wheel.version} was built from it; fetch it, or pass --wheel-commit") from error
    head = repository.sha_of("HEAD" if ref == "." else ref)
    tree = repository.working_tree() if ref == "." else head
    is_dirty = ref == "." and bool(repository.changed(head, tree))
    changed = repository.changed(base, tree)
    built = sorted(name for name in changed if name.startswith(_BUILT))
    if built and not python_only:
        raise BuildError(
            f"--source {source}: {the_first(built)} differ from torch {wheel.version} and need a build: "
            "install a wheel of a nearer commit, or leave them out with --python-only"
        )
    files = {name: blob for name, blob in changed.items() if _is_laid(name, wheel) and name not in built}
    folder = cache.expanduser().absolute() / short_hash([str(wheel.folder), wheel.version, wheel.commit, files])
    if not folder.exists():
        there = [blob for blob in files.values() if blob]
        contents = dict(zip(there, repository.contents(there), strict=True))
        _make(folder, wheel, {name: contents[blob] if blob else None for name, blob in files.items()})
    (landed,) = repository.commits([(0, head)])
    has_date = not is_dirty and landed.committed_at is not None
    return Overlay(
        folder=folder,
        commit=f"{head}-dirty-{tree[:8]}" if is_dirty else head,
        branch=repository.branch_of("HEAD" if ref == "." else ref),
        title=landed.subject,
        date=datetime.fromtimestamp(landed.committed_at or 0, UTC).isoformat() if has_date else None,
        wheel_commit=wheel.commit,
        files=len(files),
        left_out=len(built),
    )


def _is_laid(name: str, wheel: Wheel) -> bool:
    package = name.partition("/")[0]
    return package in PACKAGES and (wheel.folder / package).is_dir()


def _make(folder: Path, wheel: Wheel, files: Mapping[str, bytes | None]) -> None:
    """Makes the folder whole or not at all, also where two processes make it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
    try:
        for package in PACKAGES:
            inner = _below(package, files)
            if inner or package == "torch":
                _lay(wheel.folder / package, partial / package, inner)
        if (wheel.folder / _CUDA).is_dir():
            (partial / _CUDA).symlink_to(wheel.folder / _CUDA)
        partial.chmod(0o755)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _lay(original: Path, target: Path, files: Mapping[str, bytes | None]) -> None:
    """Makes a folder of links to all that is in the original one, but for the files: their contents, None for those gone."""
    target.mkdir()
    names = {path.partition("/")[0] for path in files}
    for entry in os.scandir(original) if original.is_dir() else ():
        if entry.name not in names and entry.name != "__pycache__":
            (target / entry.name).symlink_to(entry.path)
    for name in names:
        if inner := _below(name, files):
            _lay(original / name, target / name, inner)
        elif (content := files[name]) is not None:
            (target / name).write_bytes(content)


def _below(folder: str, files: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    return {
        path.removeprefix(f"{folder}/"): content for path, content in files.items() if path.startswith(f"{folder}/")
    }
