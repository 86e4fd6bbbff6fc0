"""What the fork server imports for a plan: the libraries of its models and the code that builds them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from collector.process.launcher import Preload
from collector.vocabulary import Cell
from collector.zoo.registry import find
from collector.zoo.spec import ModelSpec, ZooError


def preload_for(cells: Iterable[Cell], device: str) -> Preload:
    """The imports that the cells of a plan share, in a fixed order."""
    specs: dict[ModelSpec, None] = {}
    for suite, model in dict.fromkeys((cell.suite, cell.model) for cell in cells):
        with suppress(ZooError):  # an unknown model fails in its own cell
            specs[find(suite, model)] = None
    needs = sorted({name for spec in specs for name in spec.needs})
    builders = sorted({spec.builder.partition(":")[0] for spec in specs})
    # transformers loads a model's module when its class is first asked for, torchvision its models with the package.
    architectures = sorted({str(spec.params["architecture"]) for spec in specs if "architecture" in spec.params})
    return Preload(device, [*needs, *builders], [f"transformers:{name}" for name in architectures])
