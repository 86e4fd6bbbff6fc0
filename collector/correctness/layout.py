"""The form of outputs beside their values: types of containers, memory shared with inputs, and strides.

`torch.compile` promises the types and the strides of eager, and an output that is a view of an input stays one. Another type
of container, or memory that is shared with an input on one side only, is another program to its caller: writing to the one
changes the other. Other strides are slower or faster to read and break a `view`, but the values are right: they are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from collector.correctness.parts import is_plain

#: Deeper than the outputs of any model; see `collector.correctness.snapshot`.
_MAX_DEPTH = 32
#: Containers whose type is compared. torch.fx makes lists and dicts of its own, which are lists and dicts to all who use them.
_CONTAINERS = (list, tuple, Mapping)
_OF_FX = "torch.fx.immutable_collections"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the values of one output are: strides of the dimensions that have more than one index, and whose memory it is."""

    strides: tuple[int, ...]
    owner: str | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of one call's outputs, by their paths."""

    types: Mapping[str, str]
    places: Mapping[str, Place]


NOTHING = Layout({}, {})


def layout_of(value: Any, owners: Iterable[tuple[str, torch.Tensor]]) -> Layout:
    """The form of outputs that were just made; `owners` are the inputs, parameters and buffers by their names."""
    storages: dict[int, str] = {}
    for name, tensor in owners:
        if (place := _storage(tensor)) is not None:
            storages.setdefault(place, name)
    types: dict[str, str] = {}
    places: dict[str, Place] = {}
    for path, leaf in _walk(value, "", 0):
        if not isinstance(leaf, torch.Tensor):
            types[path or "output"] = _name(type(leaf))
        elif is_plain(leaf) and leaf.numel():
            strides = tuple(stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True) if size > 1)
            storage = _storage(leaf)
            places[path or "output"] = Place(strides, None if storage is None else storages.get(storage))
    return Layout(types, places)


def wrong_form(eager: Layout, compiled: Layout, minds_memory: bool = True) -> str | None:
    """What a caller of the compiled program could trip over; None where the forms agree in all but strides.

    `minds_memory=False` is for libraries of AOTInductor, which promise nothing about memory.
    """
    for path, name in eager.types.items():
        if compiled.types.get(path, name) != name:
            return f"{path}: a {compiled.types[path]} instead of a {name}"
    for path, place in eager.places.items() if minds_memory else ():
        made = compiled.places.get(path, place)
        if made.owner == place.owner:
            continue
        if made.owner is None:
            return f"{path}: a copy, in eager it shares the memory of {place.owner}"
        if place.owner is None:
            return f"{path}: it shares the memory of {made.owner}, in eager it is a tensor of its own"
        return f"{path}: it shares the memory of {made.owner}, in eager that of {place.owner}"
    return None


def other_strides(eager: Layout, compiled: Layout) -> dict[str, str]:
    """The outputs whose elements lie in another order in memory than in eager, with both strides."""
    pairs = {path: (place.strides, compiled.places.get(path, place).strides) for path, place in eager.places.items()}
    return {path: f"{made} instead of {wanted}" for path, (wanted, made) in pairs.items() if made != wanted}


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Containers and tensors with their paths; attributes of other objects have no type that anything promises."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, _CONTAINERS) and depth < _MAX_DEPTH:
        yield path, value
        for name, child in _children(value):
            yield from _walk(child, path + name, depth + 1)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return ((f"[{key!r}]", child) for key, child in value.items())
    if names := getattr(value, "_fields", ()):
        return ((f".{name}", getattr(value, name)) for name in names)
    return ((f"[{index}]", child) for index, child in enumerate(value))


def _name(kind: type) -> str:
    while kind.__module__ == _OF_FX:
        kind = kind.__mro__[1]
    return kind.__qualname__


def _storage(tensor: torch.Tensor) -> int | None:
    if not is_plain(tensor) or not tensor.numel():
        return None
    return int(tensor.untyped_storage().data_ptr()) or None
