"""The tensors that a call reads and may change: buffers, parameters and inputs, which are kept and put back in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from collector.correctness.norms import same_bits
from collector.correctness.snapshot import STATE, Snapshot, kept, leaves_of, parts_of

#: Elements that are read at a time for a fingerprint: three copies of 8 bytes an element are held.
_CHUNK = 1 << 22
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


#: Inputs that are changed at most to find a program that keeps those of an earlier call.
_CHANGED = 3


def changed_inputs(inputs: Any) -> Iterator[Any]:
    """Yield copies of a call's inputs in each of which one tensor has its values in other places, for a few of the tensors.

    Values move by one along the last dimension that has several, so that all of them are in range. What may count or point stays
    as it is: masks, integers in a row or in order. So do parts of other tensors and tensors that are given twice, since a program
    is compiled for those.
    """
    leaves, form = _pytree.tree_flatten(inputs)
    movable = [place for place, leaf in enumerate(leaves) if _is_movable(leaf, leaves)]
    for place in movable[:_CHANGED]:
        moved = torch.empty_like(leaves[place])
        with torch.no_grad():
            moved.copy_(_rolled(leaves[place]))
        yield _pytree.tree_unflatten(
            [*leaves[:place], moved.requires_grad_(leaves[place].requires_grad), *leaves[place + 1 :]], form
        )


def _is_movable(leaf: Any, leaves: Sequence[Any]) -> bool:
    is_plain = type(leaf) is torch.Tensor and leaf.layout is torch.strided and not leaf.is_quantized
    if not is_plain or leaf.numel() < 2 or sum(one is leaf for one in leaves) > 1:
        return False
    if leaf.nbytes != leaf.untyped_storage().nbytes():
        return False
    if not (leaf.is_floating_point() or leaf.is_complex()):
        rows = leaf.movedim(_last(leaf), -1) if leaf.dim() > 1 and leaf.dtype is not torch.bool else None
        if rows is None or bool((rows[..., 1:] >= rows[..., :-1]).all()):
            return False
    return not torch.equal(_rolled(leaf.detach()), leaf.detach())


def _last(leaf: torch.Tensor) -> int:
    """Return the last dimension of several elements."""
    return max(dimension for dimension, size in enumerate(leaf.shape) if size > 1)


def _rolled(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.roll(1, _last(leaf))


class State:
    """The state from which a model's calls start.

    A batch norm in training mode moves its statistics and a model may fill a cache: such buffers are outputs. Buffers and inputs
    are kept from the start, on the host: after a hundred calls on one batch the statistics have converged, and a program that
    forgot to move them would go unnoticed. With `keep_parameters` the parameters are kept from the start too, since an optimiser
    will move them. With `on_host=False` tensors are kept on their own device: else a twin that runs dozens of times copies a
    decoder's cache to the device twice a run.
    """

    def __init__(self, model: nn.Module, inputs: Any, keep_parameters: bool = False, *, on_host: bool = True) -> None:
        self._model = model
        self._inputs = [leaf for leaf in _pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        parameters = set() if keep_parameters else {name for name, _ in model.named_parameters()}
        self._start = {
            name: kept(now).cpu() if on_host else kept(now) for name, now in self._tensors() if name not in parameters
        }
        #: During a check, copies on the tensors' device of what is kept on the host.
        self._near: dict[str, torch.Tensor] = {}
        self._prints: dict[str, torch.Tensor] = {}
        self._keeps_parameters = keep_parameters
        self._versions: dict[str, tuple[int, int]] = {}

    def follow(self, inputs: Any) -> None:
        """Put everything back, and keep other inputs, with their values of now, in place of the inputs so far."""
        self.put_back()
        self._near = {}
        followed = [f"input {index}" for index in range(len(self._inputs))]
        self._start = {name: start for name, start in self._start.items() if name not in followed}
        self._inputs = [leaf for leaf in _pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
        self._start |= {f"input {index}": kept(tensor).cpu() for index, tensor in enumerate(self._inputs)}

    def keep_rest(self) -> None:
        """Keep copies of the tensors that are not kept yet, on their device: parameters, and buffers made since the start.

        What is kept on the host is copied to the device until `drop_rest`: each run of a check compares and puts back all of it.
        """
        self._start |= {name: kept(now) for name, now in self._tensors() if name not in self._start}
        self._near = {name: self._start[name].to(now.device) for name, now in self._tensors()}

    def drop_rest(self) -> None:
        """Free the copies of the parameters, and those that `keep_rest` made of what is kept on the host."""
        self._near = {}
        for name, _ in self._model.named_parameters():
            self._start.pop(name, None)

    def put_back(self) -> None:
        """Give every changed tensor its kept values, in its own storage, with which a cudagraph was recorded.

        Only a buffer that now has another shape or dtype is replaced by a copy of the kept one.
        """
        with torch.no_grad():
            for name, now, start in self._changed():
                if now.shape == start.shape and now.dtype == start.dtype:
                    now.copy_(start)
                else:
                    owner, _, leaf = name.rpartition(".")
                    setattr(self._model.get_submodule(owner), leaf, kept(start))

    def changed(self) -> Snapshot:
        """Return a clone of every tensor whose values differ from the kept ones, by path."""
        return {path: leaf for name, now, _ in self._changed() for path, leaf in leaves_of(_path(name), now).items()}

    def watch(self) -> None:
        """Record the identity and the write count of each tensor, for `written`."""
        self._versions = {name: _version(now) for name, now in self._tensors()}

    def written(self) -> frozenset[str]:
        """Return the paths of the tensors that torch has written to or replaced since `watch`, even with equal values.

        It finds the writes of eager; torch need not notice the writes of a generated kernel.
        """
        return frozenset(_path(name) for name, now in self._tensors() if self._versions.get(name) != _version(now))

    def remember(self) -> None:
        """Store a fingerprint of each parameter for `lost`, in the first call only and not if an optimiser moves parameters."""
        if not self._keeps_parameters and not self._prints:
            self._prints = {name: fingerprint(now) for name, now in self._model.named_parameters()}

    def lost(self) -> list[str]:
        """Return the paths of the parameters that have changed since `remember`."""
        prints = self._prints
        now = {name: fingerprint(tensor) for name, tensor in self._model.named_parameters() if name in prints}
        same = same_bits([(found, prints[name]) for name, found in now.items()])
        return [_path(name) for name, is_same in zip(now, same, strict=True) if not is_same]

    def complete(self, snapshots: Sequence[Snapshot]) -> None:
        """Add to each snapshot the kept values of tensors that the call of another snapshot changed and its own did not."""
        paths = {path for snapshot in snapshots for path in snapshot if path.startswith(STATE)}
        for name, now in self._tensors():
            if name in self._start and any(path.startswith(_path(name)) for path in paths):
                start = leaves_of(_path(name), self._kept(name).to(now.device))
                for snapshot in snapshots:
                    if snapshot.keys().isdisjoint(start):
                        snapshot.update(start)

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return the parameters with their paths."""
        return ((_path(name), parameter) for name, parameter in self._model.named_parameters())

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Return parameters, buffers and inputs with the names that messages use."""
        return self._tensors()

    def _changed(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        kept_ones = [(name, now, self._kept(name)) for name, now in self._tensors() if name in self._start]
        same = same_bits([(now.detach(), start) for _, now, start in kept_ones])
        for (name, now, start), is_same in zip(kept_ones, same, strict=True):
            if not is_same:
                yield name, now, start.to(now.device)

    def _kept(self, name: str) -> torch.Tensor:
        return self._near.get(name, self._start[name])

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._model.named_parameters()
        yield from self._model.named_buffers()
        for index, tensor in enumerate(self._inputs):
            yield f"input {index}", tensor


def fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """Return two sums over all bits of a tensor, on its device; the second one depends on the elements' order."""
    total = torch.zeros(2, dtype=torch.int64, device=tensor.device)
    for part in parts_of(tensor).values():
        if isinstance(part, str):
            continue
        for chunk in part.reshape(-1).split(_CHUNK):
            bits = chunk.view(_BITS[chunk.element_size()]).long()
            places = torch.arange(1, len(bits) + 1, device=bits.device).mul_(2654435761).bitwise_and_(0xFFFFFF)
            total = total * 31 + torch.stack([bits.sum(), (bits * places).sum()])
    return total


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    # Tensors that were made in inference mode keep no count.
    return id(tensor), -1 if tensor.is_inference() else tensor._version


def _path(name: str) -> str:
    return f"{STATE}{name!r}]"
