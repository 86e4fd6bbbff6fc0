"""The models of an installed `torchbenchmark` as suite `torchbenchmark`; nothing of the package is imported to list them."""

from __future__ import annotations

import ast
import importlib.util
from fnmatch import fnmatchcase
from pathlib import Path

from collector.vocabulary import Phase
from collector.zoo.spec import ACCELERATOR, ModelSpec, ZooError

SUITE = "torchbenchmark"
#: Where a model's class says how large its batches are; a model that says nothing has batches of one.
_SIZES = {Phase.INFERENCE: "DEFAULT_EVAL_BSIZE", Phase.TRAINING: "DEFAULT_TRAIN_BSIZE"}


def torchbenchmark_model(name: str) -> ModelSpec:
    """The model of this name, with the batch sizes in its source. Raises `ZooError` if there is none."""
    path = _models_folder() / name / "__init__.py"
    if not name.isidentifier() or not path.is_file():
        raise ZooError(f"suite {SUITE} has no model {name!r}: the installed package has no folder of that name")
    sizes = _sizes(path)
    return ModelSpec(
        suite=SUITE,
        name=name,
        builder="collector.zoo.builders.torchbenchmark:build",
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
    wanted = [pattern.removeprefix(f"{SUITE}/") for pattern in patterns] or ["*"]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ZooError(
                f"suite {SUITE} has no model like {pattern!r}: the installed package has {len(names)} others"
            )
    return tuple(torchbenchmark_model(name) for name in names if any(fnmatchcase(name, word) for word in wanted))


def _models_folder() -> Path:
    found = importlib.util.find_spec("torchbenchmark")
    if found is None or not found.submodule_search_locations:
        raise ZooError(f"suite {SUITE} needs torchbenchmark: install it from a checkout of pytorch/benchmark")
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
