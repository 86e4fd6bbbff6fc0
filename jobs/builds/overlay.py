"""A PyTorch commit without a build: its Python files laid over the installed wheel, and the files that act at run time.

A wheel knows the commit that it was built from. The files in which that commit and another one differ come from git; all
other files are links into the wheel. So an overlay is made in about a second, and a process that has it first in PYTHONPATH
imports the other commit's Python with the wheel's libraries. Neither the wheel nor the working tree is written to.

Equal generated code proves equal speed only where nothing changed that works beside that code: the kernels' launchers,
cudagraphs, guards, AOTAutograd's wrappers, eager operators. The rule is a list of what is **known** to work at compile time
only; any other file acts at run time.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from collector.vocabulary import short_hash
from jobs.builds.build_options import BuildError
from jobs.git_log import GitError, Repository
from jobs.output.terminal import several, the_first

#: The packages of a wheel whose files come from a repository.
PACKAGES = ("torch", "functorch")
#: The folder beside the package in which the wheel's libraries look for CUDA's.
_CUDA = "nvidia"
#: The folder in which Python keeps the bytecode of a folder's files.
_BYTECODE = "__pycache__"
#: Files whose change needs a build: sources of libraries, of generated files, and the version of Triton.
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
        """Return the installed torch of this Python, without importing it. Raises `BuildError` if there is none."""
        spec = find_spec("torch")
        if spec is None or spec.origin is None:
            raise BuildError("--source needs an installed torch to lay Python files over: pip install torch")
        package = Path(spec.origin).parent
        values = dict(_VALUE.findall((package / "version.py").read_text()))
        return cls(package.parent, values.get("__version__", "?"), values.get("git_version", "?"))


@dataclass(frozen=True, slots=True)
class Overlay:
    """An overlay in `folder`, and the names of its runs.

    `commit` is the source's; a working tree that differs from its commit adds `-dirty-` and a hash of its content, and has
    no `date` (ISO 8601). `files` counts the files that differ from the wheel's, `left_out` those that
    are left out because they need a build.
    """

    folder: Path
    commit: str
    branch: str
    title: str
    date: str | None
    wheel_commit: str
    files: int
    left_out: int

    def words(self) -> str:
        """Return a description for messages, such as `9800ddd936, no file differs from the installed torch`."""
        differ = (
            f"{several(self.files, 'file')} {'differs' if self.files == 1 else 'differ'}"
            if self.files
            else "no file differs"
        )
        left_out = f", {several(self.left_out, 'file')} left out that need a build" if self.left_out else ""
        return f"{self.commit[:10]}{self.commit[40:]}, {differ} from the installed torch{left_out}"

    def __str__(self) -> str:
        """Return the description in the environment of a run. Older versions compare it, so it must not change."""
        left_out = f", without {self.left_out} that need a build" if self.left_out else ""
        commit = self.commit[:10] + self.commit[40:]
        return f"{self.files} files of {commit} over {self.wheel_commit[:10]}{left_out}"


def make_overlay(
    source: str, cache: Path, *, python_only: bool = False, wheel_commit: str = "", wheel: Wheel | None = None
) -> Overlay:
    """Return the overlay of `REPO@REF`, or of a working tree (`REPO@.`). Make it in `cache` if it does not exist.

    `wheel_commit` names the commit that the wheel (the installed torch) was built from, if the wheel's own is not in the clone.

    Raises:
        BuildError: `source` has another form, there is no torch, or files differ that need a build without `python_only`.
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
    """Make the folder completely or not at all, even if two processes make it."""
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
    """Make a folder of links to the original's entries, except for `files`: these are written, or left out for None."""
    target.mkdir()
    names = {path.partition("/")[0] for path in files}
    for entry in os.scandir(original) if original.is_dir() else ():
        if entry.name not in names and entry.name != _BYTECODE:
            (target / entry.name).symlink_to(entry.path)
    _link_bytecode(original / _BYTECODE, target / _BYTECODE, names)
    for name in names:
        if inner := _below(name, files):
            _lay(original / name, target / name, inner)
        elif (content := files[name]) is not None:
            (target / name).write_bytes(content)


def _link_bytecode(original: Path, target: Path, changed: Collection[str]) -> None:
    """Link the wheel's bytecode of the files that are linked, else each new process compiles hundreds of files again.

    The folder itself is no link: a file that Python writes there replaces a link, so the wheel is never written to.
    """
    if original.is_dir():
        target.mkdir()
        for entry in os.scandir(original):
            if f"{entry.name.partition('.')[0]}.py" not in changed:
                (target / entry.name).symlink_to(entry.path)


def _below(folder: str, files: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    return {
        path.removeprefix(f"{folder}/"): content for path, content in files.items() if path.startswith(f"{folder}/")
    }


#: Files that decide about the graph and its code, and are not called by the compiled program. Only Python files count: a header
#: or a template of another language may be read when a kernel is built.
_COMPILE_TIME = (
    "torch/_inductor/",
    "torch/_decomp/",
    "torch/_refs/",
    "torch/_prims/",
    "torch/_prims_common/",
    "torch/_meta_registrations.py",
    "torch/_subclasses/",
    "torch/fx/",
    "torch/_dynamo/variables/",
    "torch/_dynamo/polyfills/",
    "torch/_dynamo/symbolic_convert.py",
    "torch/_dynamo/bytecode_analysis.py",
    "torch/_dynamo/trace_rules.py",
    "torch/_dynamo/exc.py",
    "torch/_dynamo/graph_break_hints.py",
    "torch/_dynamo/repro/",
    "torch/_functorch/partitioners.py",
    "torch/_functorch/_activation_checkpointing/",
    "torch/export/",
    "torch/_export/",
    "torch/onnx/",
    "torch/testing/",
)
#: Files below `_COMPILE_TIME` that the compiled program calls all the same.
_RUN_TIME = (
    "torch/_inductor/runtime/",
    "torch/_inductor/package/",
    "torch/_inductor/kernel/",  # choices beside a library's kernel are Python functions
    "torch/_inductor/codegen/multi_kernel.py",  # chooses between kernels while it runs
    "torch/_inductor/__init__.py",
    "torch/_inductor/aoti_eager.py",
    "torch/_inductor/codecache.py",  # loads kernels, and generates C++ that calls them
    "torch/_inductor/codegen/memory_planning.py",
    "torch/_inductor/compile_fx.py",  # aligns inputs, decides on cudagraphs and wraps them
    "torch/_inductor/cpp_builder.py",  # flags of the C++ compiler
    "torch/_inductor/cpu_vec_isa.py",
    "torch/_inductor/cudagraph_trees.py",
    "torch/_inductor/cudagraph_utils.py",
    "torch/_inductor/hooks.py",
    "torch/_inductor/inductor_prims.py",
    "torch/_inductor/output_code.py",
    "torch/_inductor/select_algorithm.py",  # the table of library kernels that generated code calls
    "torch/_inductor/standalone_compile.py",
    "torch/_inductor/stream_utils.py",
    "torch/_inductor/triton_bundler.py",
    "torch/_inductor/utils.py",  # copies misaligned inputs
)
#: Definitions in files of `_RUN_TIME` that work at compile time only, by the beginnings of their names.
_COMPILE_TIME_PARTS = {
    "torch/_inductor/compile_fx.py": (
        *("fx_codegen_and_compile", "FxCompile", "run_pre_grad_passes", "partition_fn", "split_const_gm"),
        *("_recursive_", "fake_tensor_prop", "record_original_output_strides", "_check_triton_bf16_support"),
    )
}
#: The folder in which a function that no file names is never called, and the files there whose definitions are found by listing.
_BY_NAME, _LISTED = "torch/_inductor/", ("config.py", "autoheuristic/")
#: Endings of files that only people and type checkers read.
_NEVER = (".pyi", ".md", ".rst", ".txt")
#: The file of options, and the part of a line that sets an option which acts without a trace in the generated code.
_OPTIONS, _ACTING_OPTION = "torch/_inductor/config.py", "cudagraph"


def differing(base: Path, new: Path, wheel: Wheel | None = None) -> list[str]:
    """Return the files of torch that differ between two overlays, by their paths in the repository."""
    names: list[str] = []
    for package in PACKAGES:
        # An overlay without a package leaves it to the wheel.
        installed = (wheel or Wheel.installed()).folder / package
        sides = [folder / package if (folder / package).exists() else installed for folder in (base, new)]
        names += _differing(sides[0], sides[1], package)
    return names


def acting(base: Path, new: Path, files: list[str]) -> list[str]:
    """Return the files that may change how fast a program runs although its generated code is the same."""
    return [name for name in files if _acts(name, base, new)]


def changes_compiling(base: Path, new: Path, files: list[str]) -> bool:
    """Return whether compile times may differ: a file differs in more than comments, layout and definitions never called."""
    return any(not _adds_unused(name, base, new) for name in saying(base, new, files))


def saying(base: Path, new: Path, files: list[str]) -> list[str]:
    """Return the files that differ in more than comments and layout."""
    return [
        name
        for name in files
        if not name.endswith(_NEVER)
        and (not name.endswith(".py") or _meaning(_read(base / name)) != _meaning(_read(new / name)))
    ]


def _differing(base: Path, new: Path, name: str) -> Iterator[str]:
    if os.path.realpath(base) == os.path.realpath(new):
        return
    if base.is_dir() and new.is_dir():
        inner = {entry.name for folder in (base, new) for entry in os.scandir(folder)}
        for entry in sorted(inner - {_BYTECODE}):
            yield from _differing(base / entry, new / entry, f"{name}/{entry}")
    elif base.is_dir() or new.is_dir():
        folder = base if base.is_dir() else new
        files = (file for file in sorted(folder.rglob("*")) if file.is_file() and _BYTECODE not in file.parts)
        yield from (f"{name}/{file.relative_to(folder)}" for file in files)
    elif _read(base) != _read(new):
        yield name


def _acts(name: str, base: Path, new: Path) -> bool:
    if name.endswith(_NEVER):
        return False
    before, after = _read(base / name), _read(new / name)
    if not name.endswith(".py"):
        return True
    if _meaning(before) == _meaning(after) or _adds_unused(name, base, new):
        return False
    if name == _OPTIONS:
        return _options(before) != _options(after)
    if name in _COMPILE_TIME_PARTS:
        changed = set(_parts(before).items()) ^ set(_parts(after).items())
        return not all(part.startswith(_COMPILE_TIME_PARTS[name]) for part, _ in changed)
    return not name.startswith(_COMPILE_TIME) or name.startswith(_RUN_TIME)


@lru_cache(64)  # a bisection compares a commit with several others
def _meaning(source: bytes | None) -> str | None:
    """Return a text that is equal for sources that differ in comments and layout only."""
    return None if source is None else repr(_parts(source))


def _adds_unused(name: str, base: Path, new: Path) -> bool:
    """Return whether a file differs only by functions and plain constants that no source of torch in either overlay names."""
    if not name.startswith(_BY_NAME) or any(part in name for part in _LISTED):
        return False
    sides = [_statements(_read(folder / name)) for folder in (base, new)]
    if None in sides:
        return False
    before, after = (dict(side or ()) for side in sides)
    rest = [[text for text, _ in side or () if text in before and text in after] for side in sides]
    names = {_unused_name(one) for text, one in {**before, **after}.items() if not (text in before and text in after)}
    if rest[0] != rest[1] or "" in names or not names:
        return False
    wanted = [one.encode() for one in sorted(names)]
    word = re.compile(rb"\b(?:" + b"|".join(map(re.escape, wanted)) + rb")\b")
    texts = ((file, path.read_bytes()) for file, path in _sources(base, new))
    # Few files have any of the names, and looking for a plain text is ten times as fast.
    found = Counter(file for file, text in texts if any(one in text for one in wanted) for _ in word.findall(text))
    return found == {name: len(names)}


def _sources(*overlays: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each source of torch; a source that overlays share comes once."""
    seen: set[str] = set()
    for overlay in overlays:
        for folder, _, files in os.walk(overlay / "torch", followlinks=True):
            for path in (Path(folder, file) for file in files if file.endswith((".py", ".jinja"))):
                if (real := os.path.realpath(path)) not in seen:
                    seen.add(real)
                    yield path.relative_to(overlay).as_posix(), path


def _statements(source: bytes | None) -> list[tuple[str, ast.stmt]] | None:
    """Return the statements of a module, each with the dump of its syntax tree; None if there is no valid module."""
    try:
        return None if source is None else [(ast.dump(one), one) for one in ast.parse(source).body]
    except (SyntaxError, ValueError):
        return None


def _unused_name(one: ast.stmt) -> str:
    """Return the name of a definition that has no effect until it is used; empty for any other statement."""
    if isinstance(one, ast.FunctionDef) and not one.decorator_list:
        given = (*one.args.defaults, *filter(None, one.args.kw_defaults))
        return one.name if all(isinstance(value, ast.Constant) for value in given) and one.name[:2] != "__" else ""
    if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant) and len(one.targets) == 1:
        target = one.targets[0]
        return target.id if isinstance(target, ast.Name) and target.id[:2] != "__" else ""
    return ""


def _parts(source: bytes | None) -> dict[str, str]:
    """Return the dump of each definition of a module, by its name, and the dump of all other code under an empty name."""
    try:
        body = ast.parse(source or b"").body
    except (SyntaxError, ValueError):
        return {"": repr(source)}
    parts = {"": ""}
    for node in body:
        name = getattr(node, "name", "")
        parts[name] = parts.get(name, "") + ast.dump(node)
    return parts


def _options(source: bytes | None) -> list[bytes]:
    lines = [line.partition(b"#")[0].strip() for line in (source or b"").splitlines()]
    return [line for line in lines if _ACTING_OPTION.encode() in line]


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
