"""Builds the model of a cell from fake tensors: they have shapes, dtypes and a device, and no values.

The project's own builders are called. What only sets values (drawn weights, calibrated batch norms) is left out: values are
no part of the code. A builder that reads values makes the model for real on the CPU, and its tensors become fake when they
are moved to the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from collector.census.private_names import find, replace
from collector.vocabulary import Phase
from collector.zoo.spec import Built, ModelSpec

#: Of `torch.nn.init` and of tensors: what draws values and returns the tensor that it was given.
_INITS = (
    *("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_"),
    *("xavier_normal_", "orthogonal_", "constant_", "zeros_", "ones_"),
)
_DRAWS = ("normal_", "uniform_", "erfinv_")
#: Of the zoo: what computes with values only.
_CONDITIONING = ("wake_dead_gains", "calibrate_batch_norms", "spread_output")


def leave_out_values() -> None:
    """Replace what draws values and what moves modules. Call it before a builder of the zoo is imported."""
    for path in (*(f"torch.nn.init:{name}" for name in _INITS), *(f"torch:Tensor.{name}" for name in _DRAWS)):
        replace(path, _left_out(find(path)))
    for name in _CONDITIONING:
        replace(f"collector.zoo.builders.conditioning:{name}", lambda *_, **__: None)
    replace("collector.zoo.builders.conditioning:settle", _settle)
    for name in ("put_back", "remember"):
        replace(f"collector.correctness.state:State.{name}", lambda *_: None)
    moving = _Moving()
    replace("torch.nn:Module._apply", lambda module, fn, recurse=True: moving.apply(module, fn, recurse))


def fake_mode() -> Any:
    """Return a mode in which new tensors are fake. Real ones may take part."""
    return find("torch._subclasses.fake_tensor:FakeTensorMode")(allow_non_fake_inputs=True)


def build_fake(spec: ModelSpec, mode: Any, notes: list[str]) -> Callable[..., Built]:
    """Return the model's builder, which makes it fake where that is possible; `notes` gets a line where it is not."""

    def build(batch_size: int, phase: Phase, device: str, **options: Any) -> Built:
        global _is_fake
        try:
            with mode, _prompts_without_values():
                return spec.build(batch_size, phase, device, **options)
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            notes.append(f"built with values: {type(error).__name__}: {text[:120]}")
        _is_fake = False
        try:
            with find("torch._subclasses.fake_tensor:unset_fake_temporarily")():
                return spec.build(batch_size, phase, device, **options)
        finally:
            _is_fake = True

    return build


@contextmanager
def _prompts_without_values() -> Iterator[None]:
    """Let a fake prompt fill a cache: its length is not read, and experts compute in bfloat16.

    The library skips a mask where the cache is still empty, which no output depends on. The shape function of the experts'
    product takes bfloat16 alone.
    """
    grouped_mm = find("torch.nn.functional:grouped_mm")

    def in_bfloat16(one: torch.Tensor, other: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        made: torch.Tensor = grouped_mm(one.bfloat16(), other.bfloat16(), *rest, **options)
        return made.to(one.dtype)

    others: dict[str, Any] = {"torch.nn.functional:grouped_mm": in_bfloat16}
    if "transformers.masking_utils" in sys.modules:
        others["transformers.masking_utils:_ignore_causal_mask_sdpa"] = lambda *_, **__: False
    kept = {path: find(path) for path in others}
    for path, other in others.items():
        replace(path, other)
    try:
        yield
    finally:
        for path, own in kept.items():
            replace(path, own)


#: Whether models are being built from fake tensors.
_is_fake = True


def _settle(model: nn.Module, device: str) -> str:
    """Replace the zoo's `settle`: a model with values stays on the CPU."""
    place = device if _is_fake else "cpu"
    model.to(place)
    return place


def _left_out(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws values only where a model is built with values."""

    def draw_or_not(tensor: Any, *rest: Any, **options: Any) -> Any:
        return tensor if _is_fake else draw(tensor, *rest, **options)

    return draw_or_not


class _Moving:
    """`Module._apply` for fake tensors. torch's own swaps tensors in place, which fake ones do not allow.

    A tensor that several modules share stays shared.
    """

    def __init__(self) -> None:
        self._moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._depth = 0

    def apply(self, module: Any, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        self._depth += 1
        try:
            if recurse:
                for child in module.children():
                    child._apply(fn)
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        tensors[name] = self._move(tensor, fn)
        finally:
            self._depth -= 1
            if not self._depth:
                self._moved.clear()
        return module

    def _move(self, tensor: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        if id(tensor) not in self._moved:
            with torch.no_grad():
                moved = fn(tensor)
            if isinstance(tensor, nn.Parameter) and moved is not tensor:
                moved = nn.Parameter(moved, tensor.requires_grad)
            self._moved[id(tensor)] = tensor, moved  # the old one is kept, else its id may be another tensor's
        return self._moved[id(tensor)][1]
