"""Parts of serving and training: layers with int8 weights, and one step of an optimiser."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adamw import adamw

from collector.vocabulary import Phase
from collector.zoo.builders.user import own_loss_or_mean_squares
from collector.zoo.spec import Built, is_cpu


def build_int8(batch_size: int, phase: Phase, device: str) -> Built:
    """The gated layers of Llama-3.2-1B (width 2048, inner 8192), sixteen of them, with int8 weights and bfloat16 scales."""
    width, inner, depth = (64, 128, 2) if is_cpu(device) else (2048, 8192, 16)
    model = nn.Sequential(*(Gated(width, inner) for _ in range(depth)))
    return Built(model, (torch.randn(batch_size, width, dtype=torch.bfloat16),), {}, own_loss_or_mean_squares)


class Int8(nn.Module):  # type: ignore[misc]
    """A linear layer whose weight is int8 with a scale for each output, quantised from a random one."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        weight = torch.randn(made, given) * given**-0.5
        scale = weight.abs().amax(dim=1) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(torch.bfloat16))

    def forward(self, states: Tensor) -> Tensor:
        """States of the second size."""
        return functional.linear(states, self.weight.to(states.dtype)) * self.scale


class Gated(nn.Module):  # type: ignore[misc]
    """SwiGLU with a residual connection."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, dtype=torch.bfloat16)
        self.gate, self.up, self.down = Int8(width, inner), Int8(width, inner), Int8(inner, width)

    def forward(self, states: Tensor) -> Tensor:
        """States of the same shape."""
        given = self.norm(states)
        return states + self.down(functional.silu(self.gate(given)) * self.up(given))


def build_adamw(batch_size: int, phase: Phase, device: str) -> Built:
    """One step of AdamW over parameters with the shapes of GPT-2 small: 148 tensors, 124 million numbers."""
    width, depth, words, places = (32, 2, 100, 16) if is_cpu(device) else (768, 12, 50257, 1024)
    block = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,), (width,), (width,)]
    block += [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    shapes = [(words, width), (places, width), *(block * depth), (width,), (width,)]
    gradients = [torch.randn(shape) for shape in shapes]
    return Built(AdamWStep(shapes, not is_cpu(device)), (gradients,), {}, own_loss_or_mean_squares)


class AdamWStep(nn.Module):  # type: ignore[misc]
    """The parameters and the optimiser's state as buffers, which each call changes: so they are restored and compared."""

    def __init__(self, shapes: list[tuple[int, ...]], capturable: bool) -> None:
        super().__init__()
        self.count, self.capturable = len(shapes), capturable
        for number, shape in enumerate(shapes):
            self.register_buffer(f"value_{number}", torch.randn(shape) * 0.02)
            self.register_buffer(f"mean_{number}", torch.zeros(shape))
            self.register_buffer(f"square_{number}", torch.zeros(shape))
            self.register_buffer(f"step_{number}", torch.zeros(()))

    def _all(self, name: str) -> list[Tensor]:
        return [getattr(self, f"{name}_{number}") for number in range(self.count)]

    def forward(self, gradients: list[Tensor]) -> Tensor:
        """The last parameter after the step; the others are state."""
        values = self._all("value")
        adamw(
            values,
            gradients,
            self._all("mean"),
            self._all("square"),
            [],
            self._all("step"),
            foreach=True,
            # Eager takes it on a GPU only; the compiler needs it, since a step that is a number would be a constant.
            capturable=self.capturable or torch.compiler.is_compiling(),
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=1e-3,
            weight_decay=0.01,
            eps=1e-8,
            maximize=False,
        )
        return values[-1].clone()
