"""Which of a user's own models a selection names, and what of it is for the zoo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from collector.errors import nearest
from collector.own_models import USER, OwnModel, is_user_model
from collector.zoo.registry import all_models
from collector.zoo.spec import ZooError
from jobs.output.terminal import tell
from jobs.plan.models_file import ModelsFile, WatchedModel, read_models_file
from jobs.pool.requested_options import Selection


def divide(selection: Selection) -> tuple[list[WatchedModel], Selection | None]:
    """The user's own models that a selection names, and the selection of the zoo's (None where it names none of those).

    Where nothing is named, the file's models stand for the zoo's, unless the file or the selection wants both. A model that is
    spelt in full (`OwnModel.spelled`) needs no file. Says on standard error which models of a file are taken.

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
    # A model spelt `module:function` needs its suite no more than others.
    return [*spelt, *own], replace(selection, models_file="", models=left, suites=suites or selection.suites)


def _check_left(
    selection: Selection, file: ModelsFile | None, own: Sequence[WatchedModel], left: Iterable[str]
) -> None:
    """Raises `ZooError` for what names no model at all, as the zoo knows nothing of the file's names."""
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
    """Whether a pattern names a model, with or without its suite; that of several shapes by its name alone, too."""
    name = one.model.name
    names = (name, name.partition(".")[0])
    return any(fnmatchcase(text, pattern) for known in names for text in (known, f"{USER}/{known}"))


def _is_of_zoo(pattern: str) -> bool:
    is_glob = any(char in pattern for char in "*?[")
    return is_glob and any(fnmatchcase(text, pattern) for spec in all_models() for text in (spec.name, str(spec)))
