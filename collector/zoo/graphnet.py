"""GraphNet's samples as models of suite `graphnet`, from a folder of them; nothing of a sample is executed here.

The folder is named by `INDUCTOR_WATCH_GRAPHNET`: a checkout's `samples`, or any part of it. A model's name is the path of
its sample in there, such as `timm/resnet18`.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from collector.vocabulary import AS_IS, DTYPES, Phase
from collector.zoo.spec import ACCELERATOR, ModelSpec, ZooError

SUITE = "graphnet"
#: Names the folder.
VARIABLE = "INDUCTOR_WATCH_GRAPHNET"
_NAME = re.compile(r"[\w+-][\w.+-]*(/[\w+-][\w.+-]*)*", re.ASCII)
_NOTE = "the sample's own shapes, drawn from its recorded mean and deviation"


def samples_folder() -> Path:
    """The folder of samples. Raises `ZooError` where none is named, or it is not there."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise ZooError(f"suite {SUITE} needs {VARIABLE}, the folder of GraphNet's samples")
    folder = Path(named)
    if not folder.is_dir():
        raise ZooError(f"{VARIABLE} names no folder: {named}")
    return folder


def graphnet_model(name: str) -> ModelSpec:
    """The model of one sample. Raises `ZooError` if there is none, or one for another framework or several devices."""
    description = samples_folder() / name / "graph_net.json"
    if not _NAME.fullmatch(name) or not description.is_file():
        raise ZooError(f"suite {SUITE} has no model {name!r}: names are folders with a graph_net.json under {VARIABLE}")
    try:
        about = json.loads(description.read_text())
        framework, devices = about["framework"], int(about.get("num_devices_required") or 1)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ZooError(
            f"{SUITE}/{name}: its graph_net.json cannot be read ({type(error).__name__}: {error})"
        ) from error
    if framework != "torch" or devices != 1:
        raise ZooError(f"{SUITE}/{name} is a sample for {framework} on {devices} devices, not for torch on one")
    return ModelSpec(
        suite=SUITE,
        name=name,
        builder="collector.zoo.builders.graphnet:build",
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
    wanted = [name for pattern in patterns for name in _spelt_out(pattern.removeprefix(f"{SUITE}/"))] or ["*"]
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
