"""Outputs kept apart from the program that made them: every tensor of any structure cloned at once, under its path.

A cudagraph replay writes its outputs into the same buffers each time, so an output that is not cloned before the next
call is either overwritten or raises "accessing tensor output of CUDAGraphs that has been overwritten".
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from collector.correctness.parts import is_plain, parts_of


@dataclasses.dataclass(frozen=True, slots=True)
class Opaque:
    """A part of the outputs that cannot be compared; `kind` is the name of its type."""

    kind: str


#: What a snapshot keeps besides tensors: compared by equality, all but what is opaque.
Scalar = bool | int | float | complex | str | Opaque | None
Snapshot = dict[str, torch.Tensor | Scalar]

#: How the paths of what is not an output begin; no path in an output begins so.
LOSS, GRADIENT, STATE = "loss", "grad[", "state["

#: Deeper than any model's output; an object that holds itself ends here instead of in a stack overflow.
_MAX_DEPTH = 32


#: Types whose values have a text that is equal where they are.
_BY_TEXT = (
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum),
    *(bytes, bytearray, range, slice, type(...), type(NotImplemented), type),
)


class UnknownOutputError(TypeError):
    """Outputs that hold themselves, so that there is no end to their tensors."""


def snapshot(value: Any) -> Snapshot:
    """Clones every tensor in `value` and names it by its path, e.g. `["logits"]`, `[0].boxes`.

    Walks mappings, sequences, dataclasses, classes with attributes and whatever torch's pytree has registered. An object
    that is none of these is kept as `Opaque`. Raises `UnknownOutputError` where a structure holds itself.
    """
    return dict(_leaves(value, "", 0))


def leaves_of(path: str, tensor: torch.Tensor) -> Snapshot:
    """A clone of a tensor under its path; of one that is not plain, clones of its parts."""
    return {path + name: part if isinstance(part, str) else kept(part) for name, part in parts_of(tensor).items()}


def kept(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of its own with the same values, without gradient history. The one place where an output is cloned."""
    return tensor.detach().clone()


def same_values(one: object, two: object) -> bool:
    """Whether two leaves agree bit by bit, NaN being equal to NaN."""
    if one is two:
        return True
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        return type(one) is type(two) and bool(one == two or (one != one and two != two))
    if not (is_plain(one) and is_plain(two)):
        parts, others = parts_of(one), parts_of(two)
        return parts.keys() == others.keys() and all(same_values(part, others[name]) for name, part in parts.items())
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    # torch.equal calls NaN unequal to itself, so only tensors that fail it are looked at again.
    one, two = widened(one), widened(two)
    return torch.equal(one, two) or _same_or_nan(one, two)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """An 8-bit floating tensor as float32, which holds all its values: few operators exist for it. Others as they are."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def _same_or_nan(one: torch.Tensor, two: torch.Tensor) -> bool:
    return bool(((one == two) | ((one != one) & (two != two))).all())


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, torch.Tensor | Scalar]]:
    if isinstance(value, torch.Tensor):
        yield from leaves_of(path or "output", value).items()
    elif value is None or isinstance(value, bool | int | float | complex | str):
        yield path or "output", value
    elif isinstance(value, _BY_TEXT):
        yield path or "output", f"{type(value).__qualname__} {value!r}"
    elif isinstance(value, set | frozenset):
        yield path or "output", f"{type(value).__qualname__} {sorted(map(repr, value))}"
    elif depth >= _MAX_DEPTH:
        raise UnknownOutputError(f"output{path} is nested deeper than {_MAX_DEPTH} levels")
    elif (array := _from_numpy(value)) is not None:
        yield from _leaves(array, path, depth + 1)
    elif (children := _children(value)) is not None:
        for name, child in children:
            yield from _leaves(child, path + name, depth + 1)
    else:
        yield path or "output", Opaque(type(value).__qualname__)


def _from_numpy(value: Any) -> Any:
    """An array or number of NumPy as a tensor, or as a list where torch has no such dtype; None for all else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return None
    try:
        return torch.from_numpy(numpy.asarray(value))
    except TypeError:
        return numpy.asarray(value).tolist()


def _children(value: Any) -> Iterator[tuple[str, Any]] | None:
    """The parts of a structure with their names; None for what is no structure."""
    if isinstance(value, Mapping):
        return ((f"[{key!r}]", child) for key, child in value.items())
    if isinstance(value, tuple) and (names := getattr(value, "_fields", ())):
        return ((f".{name}", getattr(value, name)) for name in names)
    if isinstance(value, list | tuple):
        return ((f"[{index}]", child) for index, child in enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((f".{item.name}", getattr(value, item.name)) for item in dataclasses.fields(value))
    registered = _pytree_children(value)
    if registered is not None:
        return iter(registered)
    attributes = _attributes(value)
    return ((f".{name}", child) for name, child in attributes.items()) if attributes else None


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
    found = {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})
    return {name: child for name, child in found.items() if not name.startswith("__")}


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _pytree_children(value: Any) -> list[tuple[str, Any]] | None:
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves(value)
    if len(leaves) == 1 and leaves[0] is value:
        return None
    return [(f"<{index}>", leaf) for index, leaf in enumerate(leaves)]
