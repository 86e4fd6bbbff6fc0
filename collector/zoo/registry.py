"""The models of all suites, and their selection by name, suite, pattern and tag. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache

from collector.own_models import USER, OwnModel, is_user_model, own_model, takes_batch_size
from collector.usage_errors import ZooError, nearest
from collector.vocabulary import OWN_BATCH
from collector.zoo.catalog.newer_suites import LLM_MODELS, MODERN_MODELS
from collector.zoo.catalog.pytorch_suites import (
    GRAPHNET,
    HUGGINGFACE_MODELS,
    IMAGE_MODELS,
    TORCHBENCH_MODELS,
    TORCHBENCHMARK,
    graphnet_model,
    graphnet_models,
    torchbenchmark_model,
    torchbenchmark_models,
)
from collector.zoo.spec import ModelSpec, same_in_both_phases


def user_model(name: str) -> ModelSpec:
    """Return the spec of a model that a user's function builds; the function's module is not imported.

    The batch size is 1 if the source shows that the function takes one, else the inputs' own (`OWN_BATCH`). Raises `ZooError`
    if the name is not spelt `module:function`.
    """
    return _spec_of(own_model(name))


def _spec_of(model: OwnModel) -> ModelSpec:
    """Return the spec of a user's own model."""
    size = 1 if takes_batch_size(model) else OWN_BATCH
    return ModelSpec(
        suite=USER,
        name=model.name,
        builder="collector.zoo.builders.outside_models:build_user",
        batch_sizes=same_in_both_phases(size, size),
        input_note="what the function returns",
        params={"target": model.target, "arguments": dict(model.arguments), "folder": model.folder},
    )


#: Suites whose models are found by name, and the suites among them that can be searched by patterns.
_BY_NAME = {USER: user_model, GRAPHNET: graphnet_model, TORCHBENCHMARK: torchbenchmark_model}
_SEARCHED = {GRAPHNET: graphnet_models, TORCHBENCHMARK: torchbenchmark_models}


@cache
def all_models() -> tuple[ModelSpec, ...]:
    """Return every model, suite by suite, whether or not its required packages are installed."""
    return HUGGINGFACE_MODELS + LLM_MODELS + IMAGE_MODELS + TORCHBENCH_MODELS + MODERN_MODELS


def suites() -> tuple[str, ...]:
    """Return the names of the suites."""
    return tuple(dict.fromkeys(spec.suite for spec in all_models()))


def tags() -> tuple[str, ...]:
    """Return all tags of models, sorted."""
    return tuple(sorted({tag for spec in all_models() for tag in spec.tags}))


def find(suite: str, name: str, own_models: Iterable[OwnModel] = ()) -> ModelSpec:
    """Return the model of this name. Raises `ZooError`, which names the nearest models; packages are not checked.

    `own_models` are the user's own models that have short names.
    """
    if suite == USER:
        return _spec_of(own_model(name, own_models))
    if suite in _BY_NAME:
        return _BY_NAME[suite](name)
    _check_known("suite", suite, suites())
    named = {spec.name: spec for spec in all_models() if spec.suite == suite}
    if name in named:
        return named[name]
    elsewhere = [str(spec) for spec in all_models() if spec.name == name]
    hint = f"did you mean {elsewhere[0]}?" if elsewhere else _hint(name, named)
    raise ZooError(f"suite {suite} has no model {name}: {hint}")


def select(
    *, in_suites: Iterable[str] = (), patterns: Iterable[str] = (), tagged: Iterable[str] = ()
) -> tuple[ModelSpec, ...]:
    """Return the models that are in one of the suites, match one of the patterns and have one of the tags; empty means all.

    A pattern is a name or a shell glob, matched against `name` and `suite/name`, or a user's own `module:function`.
    GraphNet's samples and the models of `torchbenchmark` are selected by `graphnet/...` and `torchbenchmark/...`, or by
    their suite alone, and never with everything else. Raises `ZooError` for a suite or tag that does not exist and for a
    pattern that matches nothing.
    """
    suites_asked, named = tuple(in_suites), list(dict.fromkeys(patterns))
    found = tuple(user_model(name) for name in named if is_user_model(name))
    rest = [name for name in named if not is_user_model(name)]
    if len(suites_asked) == 1 and suites_asked[0] in _SEARCHED:
        return found + _SEARCHED[suites_asked[0]](rest)
    for suite, search in _SEARCHED.items():
        if own := [name for name in rest if name.startswith(f"{suite}/")]:
            found += search(own)
            rest = [name for name in rest if name not in own]
    return found + (_of_the_zoo(suites_asked, rest, tagged) if rest or not found else ())


def _of_the_zoo(in_suites: Iterable[str], patterns: Iterable[str], tagged: Iterable[str]) -> tuple[ModelSpec, ...]:
    wanted_suites, wanted_tags = tuple(in_suites), frozenset(tagged)
    for suite in wanted_suites:
        _check_known("suite", suite, suites())
    for tag in wanted_tags:
        _check_known("tag", tag, tags())
    models = [
        spec
        for spec in all_models()
        if (not wanted_suites or spec.suite in wanted_suites) and (not wanted_tags or spec.tags & wanted_tags)
    ]
    patterns = tuple(patterns)
    for pattern in patterns:
        if not any(_is_like(spec, pattern) for spec in models):
            known = [spec.name for spec in models] + [str(spec) for spec in models]
            raise ZooError(f"no model matches {pattern}: {_hint(pattern, known)}")
    return tuple(spec for spec in models if not patterns or any(_is_like(spec, pattern) for pattern in patterns))


def _is_like(spec: ModelSpec, pattern: str) -> bool:
    return fnmatchcase(spec.name, pattern) or fnmatchcase(str(spec), pattern)


def _check_known(what: str, name: str, known: Iterable[str]) -> None:
    words = tuple(known)
    if name not in words:
        raise ZooError(f"the zoo has no {what} {name}: {_hint(name, words)}")


def _hint(name: str, known: Iterable[str]) -> str:
    return nearest(name, known, where="`inductor-watch zoo`")
