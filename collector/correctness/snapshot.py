"""Outputs kept apart from the program that made them: every tensor of any structure cloned at once, under its path.

A cudagraph replay writes its outputs into the same buffers each time, so an output that is not cloned before the next
call is either overwritten or raises "accessing tensor output of CUDAGraphs that has been overwritten".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

#: What a snapshot keeps besides tensors: compared by equality.
Scalar = bool | int | float | complex | str | None
Snapshot = dict[str, torch.Tensor | Scalar]

#: How the paths of what is not an output begin; no path in an output begins so.
LOSS, GRADIENT, STATE = "loss", "grad[", "state["

#: Deeper than any model's output; an object that holds itself ends here instead of in a stack overflow.
_MAX_DEPTH = 32


class UnknownOutputError(TypeError):
    """An output of a type whose tensors cannot be found, so that it cannot be compared."""


def snapshot(value: Any) -> Snapshot:
    """Clones every tensor in `value` and names it by its path, e.g. `["logits"]`, `[0].boxes`.

    Walks mappings, sequences, dataclasses, classes with attributes and whatever torch's pytree has registered.

    Raises:
        UnknownOutputError: an object that is none of these.
    """
    return dict(_leaves(value, "", 0))


def kept(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of its own with the same values, without gradient history. The one place where an output is cloned."""
    return tensor.detach().clone()


def same_values(one: object, two: object) -> bool:
    """Whether two leaves agree bit by bit, NaN being equal to NaN."""
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        return type(one) is type(two) and bool(one == two or (one != one and two != two))
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    # torch.equal calls NaN unequal to itself, so only tensors that fail it are looked at again.
    return torch.equal(one, two) or bool(((one == two) | ((one != one) & (two != two))).all())


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, torch.Tensor | Scalar]]:
    if isinstance(value, torch.Tensor):
        yield path or "output", kept(value)
    elif value is None or isinstance(value, bool | int | float | complex | str):
        yield path or "output", value
    elif depth >= _MAX_DEPTH:
        raise UnknownOutputError(f"output{path} is nested deeper than {_MAX_DEPTH} levels")
    else:
        for name, child in _children(value, path):
            yield from _leaves(child, path + name, depth + 1)


def _children(value: Any, path: str) -> Iterator[tuple[str, Any]]:
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
    if getattr(value, "__dict__", None):
        return ((f".{name}", child) for name, child in vars(value).items() if not name.startswith("__"))
    raise UnknownOutputError(f"output{path} is a {type(value).__qualname__}, whose tensors cannot be found")


def _pytree_children(value: Any) -> list[tuple[str, Any]] | None:
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves(value)
    if len(leaves) == 1 and leaves[0] is value:
        return None
    return [(f"<{index}>", leaf) for index, leaf in enumerate(leaves)]
