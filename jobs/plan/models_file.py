"""`models.toml`: a user's own models, and in which forms a night measures each. No module of the user's is imported."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collector.configs.spelling import parse_config
from collector.errors import ConfigError, nearest
from collector.own_models import BATCH_ARGUMENTS, OwnModel, is_user_model
from collector.vocabulary import DTYPES, Config, OptionValue, Phase

#: The file that is read where none is named.
DEFAULT = "models.toml"
_TOP = {"models": "tables [models.NAME]", "with_zoo": "true or false"}
#: A name of a model or a shape; a dot separates the two.
_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class WatchedModel:
    """A model of the file under one shape, and the forms in which it is measured; empty for what a night takes otherwise."""

    model: OwnModel
    batch_sizes: tuple[int, ...] = ()
    phases: tuple[Phase, ...] = ()
    dtypes: tuple[str, ...] = ()
    configs: tuple[Config, ...] = ()

    @property
    def table(self) -> str:
        """The name of its table."""
        return self.model.name.partition(".")[0]

    def sizes(self, wanted: int | None, default: int) -> tuple[int, ...]:
        """Return the batch sizes: that of the shape, else the wanted one, else those of the file, else the default."""
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
    """Reads and checks a file. Raises `ConfigError` that names file, table and key, and the way out."""
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
    """The models of one table: one a shape."""
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
    """The folder of the file and the source, relative to this folder: bundles hold them, and may be given to others."""
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
    """What is wrong with a value and what to write; of a list, the word that is wrong."""
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


#: What each key of a model's table is, for people, and whether a value of it can be used.
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
