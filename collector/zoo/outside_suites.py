"""Suites from outside, GraphNet's samples and an installed torchbenchmark; nothing of them is executed to list them.

The folder is named by `INDUCTOR_WATCH_GRAPHNET`: a checkout's `samples`, or any part of it. A model's name is the path of
its sample in there, such as `timm/resnet18`.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from collector.usage_errors import ZooError
from collector.vocabulary import AS_IS, DTYPES, Phase
from collector.zoo.spec import ACCELERATOR, ModelSpec

GRAPHNET = "graphnet"
#: Names the folder.
VARIABLE = "INDUCTOR_WATCH_GRAPHNET"
_NAME = re.compile(r"[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*", re.ASCII)
_NOTE = "the sample's own shapes, drawn from its recorded mean and deviation"


def samples_folder() -> Path:
    """The folder of samples. Raises `ZooError` where none is named, or it is not there."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise ZooError(f"suite {GRAPHNET} needs {VARIABLE}, the folder of GraphNet's samples")
    folder = Path(named)
    if not folder.is_dir():
        raise ZooError(f"{VARIABLE} names no folder: {named}")
    return folder


def graphnet_model(name: str) -> ModelSpec:
    """The model of one sample. Raises `ZooError` if there is none, or one for another framework or several devices."""
    description = samples_folder() / name / "graph_net.json"
    if not _NAME.fullmatch(name) or not description.is_file():
        raise ZooError(
            f"suite {GRAPHNET} has no model {name!r}: names are folders with a graph_net.json under {VARIABLE}"
        )
    try:
        about = json.loads(description.read_text())
        framework, devices = about["framework"], int(about.get("num_devices_required") or 1)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ZooError(
            f"{GRAPHNET}/{name}: its graph_net.json cannot be read ({type(error).__name__}: {error})"
        ) from error
    if framework != "torch" or devices != 1:
        raise ZooError(f"{GRAPHNET}/{name} is a sample for {framework} on {devices} devices, not for torch on one")
    return ModelSpec(
        suite=GRAPHNET,
        name=name,
        builder="collector.zoo.builders.outside_models:build_graphnet",
        batch_sizes={Phase.INFERENCE: {ACCELERATOR: 1, "cpu": 1}},
        dtypes=(AS_IS, *(dtype for dtype in DTYPES if dtype != AS_IS)),
        input_note=_NOTE,
        notes="a captured graph: its batch size is part of it and counts as 1",
        params={"sample": name},
    )


def graphnet_models(patterns: list[str]) -> tuple[ModelSpec, ...]:
    """The samples whose `name` or `graphnet/name` is like one of the patterns, or all; those for others are left out.

    `@FILE` stands for the names in a file, one a line, as in the lists of GraphNet's repository. Raises `ZooError` if there is
    no folder of samples or no such file, or a pattern without a wildcard is no sample's name.
    """
    folder = samples_folder()
    names = sorted(path.parent.relative_to(folder).as_posix() for path in folder.rglob("graph_net.json"))
    wanted = [name for pattern in patterns for name in _spelt_out(pattern.removeprefix(f"{GRAPHNET}/"))] or ["*"]
    exact = [graphnet_model(pattern) for pattern in wanted if not set(pattern) & set("*?[")]
    like = [name for name in names if any(fnmatchcase(name, pattern) for pattern in wanted)]
    found = {spec.name: spec for spec in exact}
    for name in like:
        with suppress(ZooError):  # asked for by a wildcard only
            found.setdefault(name, graphnet_model(name))
    return tuple(found.values())


def _spelt_out(pattern: str) -> list[str]:
    if not pattern.startswith("@"):
        return [pattern]
    try:
        lines = Path(pattern[1:]).read_text().splitlines()
    except (OSError, ValueError) as error:
        raise ZooError(f"the list of samples {pattern[1:]} cannot be read ({type(error).__name__})") from error
    names = [line.strip().removeprefix("samples/") for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise ZooError(f"the list of samples {pattern[1:]} is empty: write a name a line")
    return names


TORCHBENCHMARK = "torchbenchmark"
#: Where a model's class says how large its batches are; a model that says nothing has batches of one.
_SIZES = {Phase.INFERENCE: "DEFAULT_EVAL_BSIZE", Phase.TRAINING: "DEFAULT_TRAIN_BSIZE"}


def torchbenchmark_model(name: str) -> ModelSpec:
    """The model of this name, with the batch sizes in its source. Raises `ZooError` if there is none."""
    path = _models_folder() / name / "__init__.py"
    if not name.isidentifier() or not path.is_file():
        raise ZooError(
            f"suite {TORCHBENCHMARK} has no model {name!r}: the installed package has no folder of that name"
        )
    sizes = _sizes(path)
    return ModelSpec(
        suite=TORCHBENCHMARK,
        name=name,
        builder="collector.zoo.builders.outside_models:build_torchbenchmark",
        batch_sizes={phase: dict.fromkeys((ACCELERATOR, "cpu"), sizes.get(word, 1)) for phase, word in _SIZES.items()},
        input_note="what the package makes for it",
        needs=("torch", "torchbenchmark"),
        params={"name": name},
    )


def torchbenchmark_models(patterns: list[str]) -> tuple[ModelSpec, ...]:
    """The installed models whose `name` or `torchbenchmark/name` is like one of the patterns, or all.

    Raises `ZooError` if the package is not installed or a pattern matches nothing.
    """
    names = sorted(path.parent.name for path in _models_folder().glob("*/__init__.py"))
    wanted = [pattern.removeprefix(f"{TORCHBENCHMARK}/") for pattern in patterns] or ["*"]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ZooError(
                f"suite {TORCHBENCHMARK} has no model like {pattern!r}: the installed package has {len(names)} others"
            )
    return tuple(torchbenchmark_model(name) for name in names if any(fnmatchcase(name, word) for word in wanted))


def _models_folder() -> Path:
    found = importlib.util.find_spec("torchbenchmark")
    if found is None or not found.submodule_search_locations:
        raise ZooError(f"suite {TORCHBENCHMARK} needs torchbenchmark: install it from a checkout of pytorch/benchmark")
    return Path(found.submodule_search_locations[0]) / "models"


def _sizes(path: Path) -> dict[str, int]:
    """The whole numbers that classes of a file assign to the names that matter."""
    try:
        tree = ast.parse(path.read_text())
    except (OSError, SyntaxError, ValueError):
        return {}
    sizes = {}
    for line in (line for node in tree.body if isinstance(node, ast.ClassDef) for line in node.body):
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(size))):
                if name in _SIZES.values() and size > 0:
                    sizes[name] = size
    return sizes
