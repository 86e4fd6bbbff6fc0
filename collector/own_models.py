"""A user's own models: their names, their definitions for the process that measures them, and their versions.

Nothing here imports a user's module. The command that measures a cell again runs no model and no program that only a bundle
defines.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from collector.usage_errors import ZooError
from collector.vocabulary import OWN_BATCH, Cell, Config, OptionValue, short_hash

#: The suite of a user's own models.
USER = "user"
#: The key of an environment with the definition and the version of the measured model.
MODEL = "model"
#: The arguments of a shape that give the batch size.
BATCH_ARGUMENTS = ("batch_size", "batch")
#: The fields that identify a model: models that differ in one of them are different models.
_IDENTITY = ("target", "arguments", "version")
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_GIT_S = 60


def is_user_model(name: str) -> bool:
    """Return whether a name is spelt `module:function`, as no name of a zoo model is."""
    return _TARGET.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model that a user's function `target` (`module:function`) builds, under a name of its own.

    `arguments` are passed to the function besides the arguments that it always gets. `folder` is searched first for its module;
    `source` is the folder or package whose commit or content is the model's version (empty: the module's own package). Both
    folders are relative to the folder in which the command runs. `tolerance` replaces the suite's tolerance
    (`collector.correctness.pytorch_accuracy`).
    """

    name: str
    target: str
    arguments: Mapping[str, OptionValue] = field(default_factory=dict, hash=False)
    folder: str = ""
    source: str = ""
    tolerance: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object of the fields that are not empty; `from_json` reads it back."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None, {})}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OwnModel:
        """Build a model from the object that `to_json` made; ignore other keys. Raises `TypeError` or `ValueError`."""
        known = {item.name for item in fields(cls)}
        model = cls(**{name: value for name, value in data.items() if name in known})
        if not is_user_model(model.target):
            raise ValueError(f"target {model.target!r} is no module:function")
        return model

    @classmethod
    def parse(cls, text: str) -> OwnModel:
        """Parse the JSON text that `spelled` returns. Raises `ZooError` for any other text."""
        try:
            return cls.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ZooError(
                f"{text[:80]!r} is no model of your own ({error}): write module:function, or copy the command that "
                "measures the cell again as a whole"
            ) from error

    @property
    def spelled(self) -> str:
        """The model's definition in JSON, which `--model` takes without a models file."""
        return json.dumps(self.to_json())


def own_model(name: str, own_models: Iterable[OwnModel] = ()) -> OwnModel:
    """Return the model of this name: one of `own_models`, or else a name spelt `module:function`. Raises `ZooError`."""
    for model in own_models:
        if model.name == name:
            return model
    if is_user_model(name):
        return OwnModel(name, name)
    raise ZooError(
        f"{name!r} is no model of your own here: write module:function, e.g. my_models:tiny, or name the file that defines "
        "it with --models-file"
    )


def described(suite: str, name: str, own_models: Iterable[OwnModel] = ()) -> dict[str, Any]:
    """Return the definition and version of a user's own model for a measurement's environment; {} for another suite's model."""
    if suite != USER:
        return {}
    model = own_model(name, own_models)
    return {MODEL: {name: {**model.to_json(), "version": version_of(model)}}}


def identity_in(environment: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the fields that identify a model, from an environment; None if the environment does not describe the model."""
    told = environment.get(MODEL)
    known = told.get(name) if isinstance(told, Mapping) else None
    return {key: known.get(key) for key in _IDENTITY} if isinstance(known, Mapping) else None


def names_another_model(key: str, base: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether a dotted key in which two environments differ means another model; `base` and `new` are its values."""
    if not key.startswith(f"{MODEL}."):
        return False
    # Bundles from before November 2026 do not describe the model, so an empty side means nothing.
    return ".arguments." in key or (key.rpartition(".")[2] in _IDENTITY and bool(base) and bool(new))


def version_of(model: OwnModel) -> str:
    """Return `commit 0123456789ab`, with a hash of uncommitted changes if any, or `content 0123456789ab`, or `unknown`.

    A commit is given if `source` is a folder in a git repository. The content is a hash of the Python files of `source`, or,
    without a `source`, of the package in which the function is.
    """
    package = find_package(model.target.partition(":")[0], model.folder)
    if model.source and Path(model.source).is_dir():
        return _commit(Path(model.source), package) or f"content {_content([Path(model.source)])}"
    places = find_package(model.source, model.folder) if model.source else package
    return f"content {_content(places)}" if places else "unknown"


def find_package(module: str, folder: str = "") -> list[Path]:
    """Find the file or the folders of the package in which a module is, without importing it; return [] if there is none."""
    invalidate_caches()  # the file may be new
    here = [str(Path(place).resolve()) for place in dict.fromkeys((folder, ""))]
    spec = PathFinder.find_spec(module.partition(".")[0], [*here, *sys.path])
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.origin else []


def takes_batch_size(model: OwnModel) -> bool:
    """Return whether the model's function takes `batch_size`, from the source of its module, which is not imported.

    Return False if the definition is not found, as for a function that another function makes.
    """
    module, _, name = model.target.partition(":")
    within = module.split(".")[1:]
    for place in find_package(module, model.folder):
        path = place.joinpath(*within) if place.is_dir() else place
        for file in (path, path / "__init__.py", path.with_name(f"{path.name}.py")):
            if file.is_file():
                return _takes(file, name, "batch_size")
    return False


def _takes(file: Path, function: str, argument: str) -> bool:
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    defined = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function]
    if not defined:
        return False
    given = defined[-1].args
    return given.kwarg is not None or argument in [one.arg for one in (*given.args, *given.kwonlyargs)]


def _content(places: Iterable[Path]) -> str:
    """Hash the relative names and the contents of the Python files in these places, without hidden files and folders."""
    files = []
    for place in places:
        for path in [place] if place.is_file() else place.rglob("*.py"):
            within = path.relative_to(place)
            if not any(part.startswith(".") for part in within.parts):
                files.append((within.as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()))
    return short_hash(sorted(files))


def _commit(folder: Path, package: Iterable[Path]) -> str | None:
    """Return the commit that is checked out, with a hash of the changes to it if any; None if this is no repository.

    Of untracked files only those in the function's own package count, since results may lie beside them.
    """
    head = _git(folder, "rev-parse", "HEAD")
    if not head:
        return None
    changes = _git(folder, "diff", "HEAD") or b""
    for place in package:
        names = [place.name] if place.is_file() else ["*.py"]
        within = place.parent if place.is_file() else place
        untracked = (_git(within, "ls-files", "--others", "--exclude-standard", "-z", *names) or b"").split(b"\0")
        changes += b"".join(name + (within / os.fsdecode(name)).read_bytes() for name in untracked if name)
    commit = f"commit {head.decode().strip()[:12]}"
    return f"{commit} with changes {hashlib.sha256(changes).hexdigest()[:8]}" if changes else commit


def _git(folder: Path, *words: str) -> bytes | None:
    try:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, timeout=_GIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


#: Names of models that a command line cannot take for anything but a name.
_NAME = re.compile(r"[\w+][\w.+/-]*", re.ASCII)
#: Inductor's options that name a program to run, or a folder to load code from.
_PROGRAM = re.compile(
    r"cxx|nvcc|hipcc|compiler|command|cmd|exe$|linker|launcher|_dir$|_path$|_home$|root$|logpath$|lib|library$|_output$|_spec$"
)
#: Values that are safe for any option. Inductor puts some values into the command line of a compiler, where a blank begins
#: the next argument and `-wrapper` names a program.
_WORD = re.compile(r"[\w.][\w.,:+-]*|", re.ASCII)
_LEVEL = re.compile(r"-?O\w+|\d")


def repro_command(cell: Cell) -> str:
    """Return the shell command that measures a cell again, or a shell comment if the command would not be safe.

    Cells come from bundles that somebody else may have written. If the command would run code that the bundle names, a shell
    comment says what to do instead: a user's own model is called only by its name in the local `models.toml`.
    """
    if not _NAME.fullmatch(cell.model):
        what = "your own model" if cell.suite == USER else "a model"
        return _comment(f"{cell.suite}/{cell.model} is {what} that only the bundle defines: docs/own-models.md")
    if key := program_key(cell.config):
        return _comment(f"the config names a program or a folder: {key}")
    words = ["inductor-watch", "run", "--suite", cell.suite, "--model", cell.model, "--config", cell.config.name]
    words += ["--phase", cell.phase.value, "--dtype", cell.dtype, "--device", cell.device]
    if cell.batch_size != OWN_BATCH:
        words += ["--batch-size", str(cell.batch_size)]
    return shlex.join(words)


def program_key(config: Config) -> str:
    """Return the first option of a config that names, or may name, a program or a folder of code; "" if there is none."""
    return next((key for key, value in config.overrides.items() if isinstance(value, str) and _may_run(key, value)), "")


def _may_run(key: str, value: str) -> bool:
    name = key.rpartition(".")[2]
    if "/" in value or _PROGRAM.search(name):
        return True
    if name.endswith("opt_level"):
        return not _LEVEL.fullmatch(value)
    return not name.endswith("regex") and not _WORD.fullmatch(value)


def _comment(text: str) -> str:
    return "# " + "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)[:200]
