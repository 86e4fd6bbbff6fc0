"""A tensor of any kind as plain tensors, since few operators exist for sparse, nested, complex and packed ones.

Plain is a strided tensor of real numbers whose elements torch can compare. Everything else is taken apart into a description,
compared by equality, and the plain tensors that make it up: a complex tensor into its real view, a large sparse one into
indices and values, a nested one into all its elements in a row, a subclass into the tensors that it wraps.
"""

from __future__ import annotations

from typing import Any

import torch

#: What a tensor is made of: names behind the tensor's own, the main part without one.
Parts = dict[str, torch.Tensor | str]

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
#: Elements of these have no equality in torch. They are compared byte by byte.
_OPAQUE = ("bits", "float4", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)))
KIND = ".kind"
#: Elements up to which a sparse tensor is compared as a dense one: rounding may decide which elements are zero, so two right
#: programs may store others.
_DENSE = 1 << 24


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be compared as it is."""
    return (
        tensor.layout is torch.strided
        and not (tensor.is_nested or tensor.is_complex() or tensor.is_meta)
        and not hasattr(tensor, "__tensor_flatten__")
        and not _is_opaque(tensor.dtype)
    )


def parts_of(tensor: torch.Tensor) -> Parts:
    """The plain tensors that a tensor is made of, without gradient history; a plain one alone and under an empty name."""
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
    # The values may be complex themselves. What they are is part of their description.
    return {KIND: _kind(tensor), **indices, **{name: part for name, part in parts_of(values).items() if name != KIND}}


def _kind(tensor: torch.Tensor) -> str:
    layout = str(tensor.layout).removeprefix("torch.")
    device = " on no device" if tensor.is_meta else ""
    return f"{layout} {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}{device}"


def _nested(tensor: torch.Tensor) -> Parts:
    """All elements in a row and the shapes of the pieces: the size of a jagged dimension is a symbol of its own."""
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
