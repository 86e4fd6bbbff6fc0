"""The only models of a user's own that are called: those that this machine defines, whatever a bundle says of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from collector.errors import ConfigError
from collector.masking import mask_own
from collector.own_models import USER, OwnModel, is_user_model
from collector.repro import program_key
from collector.vocabulary import Cell
from jobs.output.terminal import one_line
from jobs.plan.models_file import read_models_file


def local_models(models_file: str, named: Iterable[str] = ()) -> dict[str, OwnModel]:
    """Return the models of a file and those that a command line names, by name.

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
    """Return why a cell that a bundle names is not measured, in one line; empty for one that calls nothing foreign."""
    if reason := unknown_model(cell, local):
        return reason
    if key := program_key(cell.config):
        return f"a config of the bundle names a program or a folder ({one_line(key)}): what a bundle says is not called"
    return ""


def unknown_model(cell: Cell, local: Mapping[str, OwnModel]) -> str:
    """Return what to do about a cell of a user's own model that nothing here defines; empty for other cells."""
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
    """Raise `ConfigError` for a cell that calls what only a bundle defines, or for a model defined otherwise in it.

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
    # A bundle has no secrets.
    return model.target, mask_own(dict(model.arguments)), model.tolerance
