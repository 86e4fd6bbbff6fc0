"""Snapshots of outputs, as clones in plain tensors, and the form of outputs: types, strides and shared memory.

A plain tensor is strided and has real numbers that torch can compare. Any other tensor is taken apart into a description, which
is compared by equality, and plain tensors: a complex tensor into its real view, a large sparse one into indices and values, a
nested one into all its elements in a row, a subclass into the tensors that it wraps.

A cudagraph replay writes its outputs into the same buffers each time, so an output that is not cloned before the next
call is either overwritten or raises "accessing tensor output of CUDAGraphs that has been overwritten".

`torch.compile` promises the types and the strides of eager, and that an output which is a view of an input stays one. If a
container has another type, or memory is shared with an input on one side only, the program behaves differently for its caller:
writing to a shared output changes the input. Other strides are slower or faster to read and break a `view`, but the values are
right: they are only recorded.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

#: The parts of a tensor, by the suffix of their names; the main part has an empty suffix.
Parts = dict[str, torch.Tensor | str]

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
#: dtypes whose elements torch cannot compare. They are compared byte by byte.
_OPAQUE = ("bits", "float4", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)))
KIND = ".kind"
#: The most elements of a sparse tensor that is compared as a dense one: rounding may decide which elements are zero, so that two
#: right programs may store different ones.
_DENSE = 1 << 24


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can be compared as it is: strided, real, and of a dtype that torch can compare."""
    return (
        tensor.layout is torch.strided
        and not (tensor.is_nested or tensor.is_complex() or tensor.is_meta)
        and not hasattr(tensor, "__tensor_flatten__")
        and not _is_opaque(tensor.dtype)
    )


def parts_of(tensor: torch.Tensor) -> Parts:
    """Return the plain tensors that a tensor is made of, without gradient history; a plain tensor has one part, named ""."""
    tensor = tensor.detach()
    if is_plain(tensor):
        return {"": tensor}
    if tensor.is_nested:
        return _nested(tensor)
    has_indices = tensor.layout is torch.sparse_coo or tensor.layout in _COMPRESSED
    if tensor.layout is not torch.strided and not tensor.is_meta and (tensor.numel() <= _DENSE or not has_indices):
        return _described(tensor, tensor.to_dense(), {})
    if tensor.layout in _COMPRESSED:
        indices = {f".{name}": getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]}
        return _described(tensor, tensor.values(), indices)
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return _described(tensor, tensor.values(), {".indices": tensor.indices()})
    if tensor.is_meta:
        return {KIND: _kind(tensor)}
    if hasattr(tensor, "__tensor_flatten__"):
        return _subclass(tensor)
    if tensor.is_complex():
        return _described(tensor, torch.view_as_real(tensor.resolve_conj()), {})
    return {"": tensor.contiguous().view(torch.uint8), KIND: _kind(tensor)}


def _is_opaque(dtype: torch.dtype) -> bool:
    name = str(dtype).removeprefix("torch.")
    return name in _OPAQUE or name.startswith(("bits", "float4"))


def _described(tensor: torch.Tensor, values: torch.Tensor, indices: dict[str, torch.Tensor]) -> Parts:
    # The values may be complex themselves. The description of the whole tensor covers theirs.
    return {KIND: _kind(tensor), **indices, **{name: part for name, part in parts_of(values).items() if name != KIND}}


def _kind(tensor: torch.Tensor) -> str:
    layout = str(tensor.layout).removeprefix("torch.")
    device = " on no device" if tensor.is_meta else ""
    return f"{layout} {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}{device}"


def _nested(tensor: torch.Tensor) -> Parts:
    """Return a nested tensor's elements in a row, with the shapes of its pieces as description.

    The shape of the tensor itself cannot be compared: the size of a jagged dimension is a new symbol in each tensor.
    """
    pieces = tensor.unbind()
    flat = [piece.reshape(-1) for piece in pieces]
    shapes = ", ".join(str(tuple(piece.shape)) for piece in pieces)
    row = torch.cat(flat) if flat else torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    kind = f"nested {str(tensor.dtype).removeprefix('torch.')} of {shapes}"
    return {KIND: kind, **{name: part for name, part in parts_of(row).items() if name != KIND}}


def _subclass(tensor: Any) -> Parts:
    names, _ = tensor.__tensor_flatten__()
    parts: Parts = {KIND: f"{type(tensor).__qualname__} {_kind(tensor)}"}
    for name in names:
        parts |= {f".{name}{inner}": part for inner, part in parts_of(getattr(tensor, name)).items()}
    return parts


@dataclasses.dataclass(frozen=True, slots=True)
class Opaque:
    """A part of the outputs that cannot be compared; `kind` is the name of its type."""

    kind: str

    def __repr__(self) -> str:
        return f"a {self.kind}"


#: Values in a snapshot besides tensors. They are compared by equality; `Opaque` ones cannot be compared.
Scalar = bool | int | float | complex | str | Opaque | None
Snapshot = dict[str, torch.Tensor | Scalar]

#: The beginnings of the paths of loss, gradients and state. No path in an output begins so.
LOSS, GRADIENT, STATE = "loss", "grad[", "state["

#: The deepest nesting, beyond any model's output; an object that contains itself ends here instead of in a stack overflow.
_MAX_DEPTH = 32


#: Types whose values are equal if their texts are.
_BY_TEXT = (
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum),
    *(bytes, bytearray, range, slice, type(...), type(NotImplemented), type),
)


class UnknownOutputError(TypeError):
    """Outputs that are nested too deeply, such as an object that contains itself."""


def snapshot(value: Any) -> Snapshot:
    """Clone every tensor in `value` and name it by its path, e.g. `["logits"]`, `[0].boxes`.

    Walk mappings, sequences, dataclasses, types in torch's pytree registry and objects with attributes. Any other object is
    kept as `Opaque`. Raises `UnknownOutputError` if a structure contains itself.
    """
    return dict(_leaves(value, "", 0))


def leaves_of(path: str, tensor: torch.Tensor) -> Snapshot:
    """Return a clone of a tensor under its path; for a tensor that is not plain, clones of its parts."""
    return {path + name: part if isinstance(part, str) else kept(part) for name, part in parts_of(tensor).items()}


def kept(tensor: torch.Tensor) -> torch.Tensor:
    """Clone a tensor without its gradient history. Outputs are cloned only here."""
    return tensor.detach().clone()


def same_values(one: object, two: object) -> bool:
    """Return whether two leaves have equal type, dtype, shape and values, NaN being equal to NaN and -0 to 0."""
    if one is two:
        return True
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        return type(one) is type(two) and bool(one == two or (one != one and two != two))
    if not (is_plain(one) and is_plain(two)):
        parts, others = parts_of(one), parts_of(two)
        return parts.keys() == others.keys() and all(same_values(part, others[name]) for name, part in parts.items())
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    # NaN is unequal to itself for torch.equal, so tensors that fail it are compared again.
    one, two = widened(one), widened(two)
    return torch.equal(one, two) or _same_or_nan(one, two)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return an 8-bit floating tensor as float32, since few operators take it; return other tensors unchanged."""
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
    """Return an array or number of NumPy as a tensor, or as a list if torch lacks the dtype; None for any other value."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        return None
    try:
        return torch.from_numpy(numpy.asarray(value))
    except TypeError:
        return numpy.asarray(value).tolist()


def _children(value: Any) -> Iterator[tuple[str, Any]] | None:
    """Return the parts of a structure with their names; None for a value that is no structure."""
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


#: Containers whose type is compared. torch.fx makes lists and dicts of its own types, which count as lists and dicts.
_CONTAINERS = (list, tuple, Mapping)
_OF_FX = "torch.fx.immutable_collections"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an output in memory: the strides of dimensions of more than one index, and the tensor that owns the memory."""

    strides: tuple[int, ...]
    owner: str | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The form of one call's outputs: types of containers, places of tensors, both by path."""

    types: Mapping[str, str]
    places: Mapping[str, Place]


NOTHING = Layout({}, {})


def layout_of(value: Any, owners: Iterable[tuple[str, torch.Tensor]]) -> Layout:
    """Return the form of outputs that were just made; `owners` are the inputs, parameters and buffers by name."""
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
    """Return the first difference of type or shared memory between the forms; None if they differ at most in strides.

    `minds_memory=False` is for libraries of AOTInductor, which promise nothing about shared memory.
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
    """Return the outputs whose strides differ from eager's, by path, each with a text that has both."""
    pairs = {path: (place.strides, compiled.places.get(path, place).strides) for path, place in eager.places.items()}
    return {path: f"{made} instead of {wanted}" for path, (wanted, made) in pairs.items() if made != wanted}


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield containers and tensors with their paths; no types are promised for the attributes of other objects."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, _CONTAINERS) and depth < _MAX_DEPTH:
        yield path, value
        for name, child in _items(value):
            yield from _walk(child, path + name, depth + 1)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
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
