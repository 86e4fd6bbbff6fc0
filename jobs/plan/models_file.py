"""`models.toml`: a user's own models, and the forms in which a night measures each. No module of the user is imported."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from collector.configs import parse_config
from collector.masking import mask_own
from collector.output_file import write_output
from collector.own_models import BATCH_ARGUMENTS, USER, OwnModel, is_user_model, program_key, takes_batch_size
from collector.usage_errors import ConfigError, ZooError, nearest
from collector.vocabulary import DTYPES, Cell, Config, OptionValue, Phase
from collector.zoo.registry import all_models
from jobs.output.terminal import one_line, tell
from jobs.requested_options import Selection

#: The file that is read if none is named.
DEFAULT = "models.toml"
_TOP = {"models": "tables [models.NAME]", "with_zoo": "true or false"}
#: A name of a model or a shape; a dot separates the two.
_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class WatchedModel:
    """A model of the file under one shape, and the forms in which it is measured; an empty form is the night's default."""

    model: OwnModel
    batch_sizes: tuple[int, ...] = ()
    phases: tuple[Phase, ...] = ()
    dtypes: tuple[str, ...] = ()
    configs: tuple[Config, ...] = ()

    @property
    def table(self) -> str:
        """The name of the model's table."""
        return self.model.name.partition(".")[0]

    def sizes(self, wanted: int | None, default: int) -> tuple[int, ...]:
        """Return the batch sizes: the one of the shape, else `wanted`, else the ones of the file, else `default`."""
        of_shape = [self.model.arguments[name] for name in BATCH_ARGUMENTS if name in self.model.arguments]
        if self.model.arguments:
            return (int(of_shape[0] or 1),) if of_shape else (default,)
        return (wanted,) if wanted else self.batch_sizes or (default,)


@dataclass(frozen=True, slots=True)
class ModelsFile:
    """The models of a file; `with_zoo`: a night measures the zoo's models as well."""

    path: Path
    models: tuple[WatchedModel, ...]
    with_zoo: bool = False


def read_models_file(path: Path) -> ModelsFile:
    """Read and check a file. Raises `ConfigError` that names file, table and key, and says what to write instead."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: `inductor-watch init` writes an example") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    for key in data:
        if key not in _TOP:
            raise ConfigError(f"{path}: {key}: no such key at the top: {nearest(key, _TOP)}")
    with_zoo, tables = data.get("with_zoo", False), data.get("models")
    if not isinstance(with_zoo, bool):
        raise ConfigError(f"{path}: with_zoo: write {_TOP['with_zoo']}")
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError(f'{path} names no model: write a table [models.NAME] with function = "module:function"')
    return ModelsFile(path, tuple(one for name in tables for one in _models(path, name, tables[name])), with_zoo)


def _models(path: Path, name: str, table: Any) -> list[WatchedModel]:
    """Return the models of one table, one for each shape."""
    where = f"{path}: [models.{name}]"
    if not isinstance(table, Mapping):
        raise ConfigError(f'{where} is no table: write [models.{name}] with function = "module:function"')
    _check_name(where, name)
    for key, value in table.items():
        if key not in KEYS:
            raise ConfigError(f"{where} {key}: no such key: {nearest(key, KEYS)}")
        if not KEYS[key][1](value):
            raise ConfigError(f"{where} {key}: {_wrong(key, value)}")
    if "function" not in table:
        raise ConfigError(f'{where} lacks function: write function = "module:function"')
    if "shapes" in table and "batch_sizes" in table:
        raise ConfigError(f"{where} batch_sizes: the shapes have their own: leave it out, or the shapes")
    forms = WatchedModel(
        OwnModel(name, table["function"], {}, *_places(where, path, table), tolerance=table.get("tolerance")),
        tuple(table.get("batch_sizes", ())),
        tuple(map(Phase, table.get("phases", ()))),
        tuple(table.get("dtypes", ())),
        tuple(_config(where, text) for text in table.get("configs", ())),
    )
    return [_with_shape(where, forms, shape, given) for shape, given in table.get("shapes", {}).items()] or [forms]


def _with_shape(where: str, forms: WatchedModel, shape: str, arguments: Mapping[str, OptionValue]) -> WatchedModel:
    _check_name(f"{where} shapes.{shape}", shape)
    sizes = [arguments[name] for name in BATCH_ARGUMENTS if name in arguments]
    if sizes and (type(sizes[0]) is not int or sizes[0] < 1):
        raise ConfigError(f"{where} shapes.{shape}: the batch is {sizes[0]!r}: write a whole number from 1")
    return replace(forms, model=replace(forms.model, name=f"{forms.model.name}.{shape}", arguments=dict(arguments)))


def _places(where: str, path: Path, table: Mapping[str, Any]) -> tuple[str, str]:
    """Return the folder of the file and the source, relative to the current folder: bundles with them may be published."""
    folder, source = os.path.relpath(path.parent), table.get("source", "")
    if (path.parent / source).is_dir():
        source = os.path.relpath(path.parent / source) if source else ""
    elif not is_user_model(f"{source}:_"):
        raise ConfigError(f"{where} source: there is no folder {source} beside the file: name one, or a package")
    return "" if folder == "." else folder, source


def _check_name(where: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: {name!r} is no name: write letters, digits, - and _, beginning with a letter")


def _config(where: str, text: str) -> Config:
    try:
        return parse_config(text)
    except ConfigError as error:
        raise ConfigError(f"{where} configs: {error}") from error


def _wrong(key: str, value: Any) -> str:
    """Return a message that says what is wrong with a value, or with a word of a list, and what to write."""
    known = {"phases": [*Phase], "dtypes": DTYPES}.get(key)
    if known and isinstance(value, list):
        word = next((word for word in value if word not in known), None)
        if isinstance(word, str):
            return f"{word!r} is none of them: {nearest(word, known)}"
    return f"{value!r}: write {KEYS[key][0]}"


def _list_of(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and value != [] and all(map(is_one, value))


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _are_shapes(value: Any) -> bool:
    shapes = list(value.values()) if isinstance(value, dict) else []
    plain = all(isinstance(item, bool | int | float | str) for shape in shapes if isinstance(shape, dict)
                for item in shape.values())  # fmt: skip
    return shapes != [] and plain and all(isinstance(shape, dict) and shape for shape in shapes)


#: For each key of a model's table, a description of its values for messages, and a check of a value.
KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "function": ('a text, "module:function"', lambda value: isinstance(value, str) and is_user_model(value)),
    "batch_sizes": ("a list of whole numbers from 1, e.g. [1, 8]", _list_of(_is_count)),
    "shapes": (
        "named tables of the function's arguments, e.g. { short = { batch_size = 8, seq = 128 } }",
        _are_shapes,
    ),
    "phases": (f"a list of {', '.join(Phase)}", _list_of(lambda word: word in [*Phase])),
    "dtypes": (f"a list of {', '.join(DTYPES)}", _list_of(lambda word: word in DTYPES)),
    "configs": ('a list of configs as --config takes them, e.g. ["triton", "max_autotune"]', _list_of(_is_text)),
    "tolerance": ("a number above 0, e.g. 0.01", lambda value: type(value) in (int, float) and 0 < value < 1e6),
    "source": ("a text: a folder, whose commit is the model's version, or a package, whose content is", _is_text),
}


def local_models(models_file: str, named: Iterable[str] = ()) -> dict[str, OwnModel]:
    """Return, by name, the models of a file and the models that a command line names.

    Raises:
        ConfigError: the file is wrong.
        ZooError: a name in JSON is no model.
    """
    of_file = [one.model for one in read_models_file(Path(models_file)).models] if models_file else []
    plain = [text.removeprefix(f"{USER}/") for text in named]
    spelt = [OwnModel.parse(text) for text in plain if text.startswith("{")]
    targets = [OwnModel(text, text) for text in plain if is_user_model(text)]
    return {model.name: model for model in (*of_file, *spelt, *targets)}


def refusal(cell: Cell, local: Mapping[str, OwnModel]) -> str:
    """Return why a cell that a bundle names is not measured, in one line; empty if it calls nothing of the bundle's."""
    if reason := unknown_model(cell, local):
        return reason
    if key := program_key(cell.config):
        return f"a config of the bundle names a program or a folder ({one_line(key)}): what a bundle says is not called"
    return ""


def unknown_model(cell: Cell, local: Mapping[str, OwnModel]) -> str:
    """Return a message about a cell of a user's own model that nothing here defines; empty for other cells."""
    if cell.suite != USER or cell.model in local:
        return ""
    name = one_line(cell.model)
    how = (
        "name it on the command line (--model, or the cell of `explain`)"
        if is_user_model(cell.model)
        else "define it in models.toml"
    )
    return f"user/{name} is a model of your own that nothing here defines, and what a bundle says is not called: {how}"


def check_local(cells: Iterable[Cell], local: Mapping[str, OwnModel], told: Iterable[OwnModel] = ()) -> None:
    """Raise `ConfigError` for a cell whose model or program only a bundle defines, or whose model it defines differently.

    `told` are the definitions in the bundle.
    """
    of_bundle = {model.name: model for model in told}
    for cell in cells:
        if reason := refusal(cell, local):
            raise ConfigError(reason)
        mine, theirs = local.get(cell.model), of_bundle.get(cell.model)
        if cell.suite == USER and mine and theirs and _what(mine) != _what(theirs):
            raise ConfigError(
                f"user/{one_line(cell.model)} is another model here than in the bundle ({one_line(mine.target)} here,"
                f" {one_line(theirs.target)} there, or other arguments): start a new run"
            )


def _what(model: OwnModel) -> tuple[object, ...]:
    # Secrets are masked in a bundle, so they are masked here, too.
    return model.target, mask_own(dict(model.arguments)), model.tolerance


def divide(selection: Selection) -> tuple[list[WatchedModel], Selection | None]:
    """Return the user's own models that a selection names, and the selection of zoo models (None if it names none).

    If nothing is named, the file's models replace the zoo's, unless the file or the selection wants both. A model that is
    spelt in full (`OwnModel.spelled`) needs no file. Prints on standard error which models of a file are taken.

    Raises:
        ConfigError: the file is wrong.
        ZooError: there is no such model.
    """
    file = read_models_file(Path(selection.models_file)) if selection.models_file else None
    spelt = [WatchedModel(OwnModel.parse(text)) for text in selection.models if text.startswith("{")]
    patterns = tuple(text for text in selection.models if not text.startswith("{"))
    suites = tuple(suite for suite in selection.suites if suite != USER)
    of_file = file.models if file and (not selection.suites or USER in selection.suites) else ()
    own = [one for one in of_file if not selection.models or any(_is_like(one, text) for text in patterns)]
    left = tuple(text for text in patterns if not any(_is_like(one, text) for one in own) or _is_of_zoo(text))
    if file and own:
        tell(f"{file.path}: {', '.join(one.model.name for one in own)}")
    _check_left(selection, file, own, left)
    is_narrowed = bool(selection.suites or selection.models)
    if is_narrowed and not left and (selection.models or not suites):
        return [*spelt, *own], None
    if file and not is_narrowed and not (selection.everything or file.with_zoo):
        return own, None
    # A model spelt `module:function` is found without its suite, so `user` is left out beside other suites.
    return [*spelt, *own], replace(selection, models_file="", models=left, suites=suites or selection.suites)


def _check_left(
    selection: Selection, file: ModelsFile | None, own: Sequence[WatchedModel], left: Iterable[str]
) -> None:
    """Raise `ZooError` for a name of no model, or a suite without models: the zoo itself cannot suggest the file's names."""
    if USER in selection.suites and not selection.models and not own:
        raise ZooError(
            "suite user has the models of models.toml, and there is none here: write one with `inductor-watch init`, name it "
            "with --models-file, or name a model with --model module:function"
        )
    known = [one.model.name for one in file.models] if file else []
    for text in left:
        if is_user_model(text) or "/" in text:
            continue
        hint = nearest(text, known) if known else ""
        if selection.suites == (USER,) or ("did you mean" in hint and not _is_of_zoo(text)):
            where = f"{file.path} has no model {text}: {hint}" if file else f"no file here defines {text}: name it with"
            raise ZooError(where if file else f"{where} --models-file")


def _is_like(one: WatchedModel, pattern: str) -> bool:
    """Return whether a pattern names a model, with or without its suite and with or without the name of its shape."""
    name = one.model.name
    names = (name, name.partition(".")[0])
    return any(fnmatchcase(text, pattern) for known in names for text in (known, f"{USER}/{known}"))


def _is_of_zoo(pattern: str) -> bool:
    is_glob = any(char in pattern for char in "*?[")
    return is_glob and any(fnmatchcase(text, pattern) for spec in all_models() for text in (spec.name, str(spec)))


#: The function of the example.
EXAMPLE = "my_models:small"
_MODULE = '''"""Models to watch. A function returns the model and its inputs, on the CPU and in float32."""

import torch
from torch import nn


def small(batch_size):
    layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256))
    return layers, (torch.randn(batch_size, 256),)
'''
_FILE = """\
# Your own models: `nightly`, `plan`, `run` and `check` read this file in the folder in which they are called,
# or where --models-file names it. `inductor-watch init` checks it.

# Measure the zoo's night as well.
# with_zoo = true

# A model: its name in all tables, and the function that makes it.
[models.{name}]
# The module is looked for beside this file, in the current folder and on PYTHONPATH. Of batch_size, phase
# ("inference" or "training") and device the function gets those that it takes. It returns (model, args) or
# (model, args, kwargs).
function = "{target}"
{sizes}

# All of the following may be left out.
# phases = ["inference", "training"]        # default: inference
# dtypes = ["float32", "bfloat16"]          # default: bfloat16 on a GPU (amp for training), float32 on a CPU
# configs = ["triton", "max_autotune"]      # as --config takes them; default: those of the night
# tolerance = 0.01                          # how far the compiled outputs may be from eager's
# The folder whose git commit is the model's version, or a package whose content is. Default: the content of the
# package in which the function is. A new version is a new model: what then changes is not torch's doing.
# source = "."
# In place of batch_sizes, arguments of the function under a name: this makes {name}.short and {name}.long.
# shapes = {{ short = {{ batch_size = 8, seq = 128 }}, long = {{ batch_size = 1, seq = 2048 }} }}
"""
#: The line of the file on batch sizes for a function that does not appear to take one.
_NO_SIZES = (
    "# batch_sizes = [1, 8]                    # default: what the function makes; it must take batch_size for others"
)


def write_example(path: Path, target: str) -> list[Path]:
    """Write the file for this function, for the example also its module if there is none, and return the written paths.

    An existing file is not replaced. Raises `ValueError` for a text that is no module:function.
    """
    if not is_user_model(target):
        raise ValueError(f"{target!r} is no function of yours: write module:function, e.g. {EXAMPLE}")
    written = []
    module = path.parent / f"{EXAMPLE.partition(':')[0]}.py"
    if target == EXAMPLE and not module.exists():
        write_output(module, _MODULE, force=False)
        written.append(module)
    sizes = "batch_sizes = [1, 32]" if target == EXAMPLE else "batch_sizes = [1]"
    if not takes_batch_size(OwnModel("", target, folder=str(path.parent))):
        sizes = _NO_SIZES
    write_output(path, _FILE.format(name=target.partition(":")[2], target=target, sizes=sizes), force=False)
    return [path, *written]
