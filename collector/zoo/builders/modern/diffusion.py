"""Denoisers of images: a UNet with cross attention, and a stack of transformer blocks (DiT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from collector.vocabulary import Phase
from collector.zoo.builders.user import own_loss_or_mean_squares
from collector.zoo.spec import Built, is_cpu

_LATENT = 4  # channels
_TEXT_TOKENS = 77


def build_unet(batch_size: int, phase: Phase, device: str) -> Built:
    """A UNet with the channels and heads of Stable Diffusion 1.5 (its unet/config.json), at 512x512 pixels.

    It is a simplification: a level has one residual block and, on the way down only, one of attention, where the original has
    two of each on the way down and three on the way up; pooling instead of convolutions that halve, GELU instead of GEGLU.
    """
    channels, text, heads, side = ((32, 64), 32, 2, 8) if is_cpu(device) else ((320, 640, 1280, 1280), 768, 8, 64)
    model = UNet(channels, text, heads)
    inputs = (torch.randn(batch_size, _LATENT, side, side), torch.rand(batch_size) * 1000)
    return Built(model, (*inputs, torch.randn(batch_size, _TEXT_TOKENS, text)), {}, own_loss_or_mean_squares)


def build_dit(batch_size: int, phase: Phase, device: str) -> Built:
    """DiT-B/2 of "Scalable Diffusion Models with Transformers" (Peebles and Xie 2022, table 1), at 256x256 pixels."""
    depth, width, heads, side = (2, 64, 2, 8) if is_cpu(device) else (12, 768, 12, 32)
    model = DiT(depth, width, heads, side)
    inputs = (torch.randn(batch_size, _LATENT, side, side), torch.rand(batch_size) * 1000)
    return Built(model, (*inputs, torch.randint(0, 1000, (batch_size,))), {}, own_loss_or_mean_squares)


def _sinusoids(moments: Tensor, width: int) -> Tensor:
    frequencies = torch.exp(-9.21 * torch.arange(width // 2, device=moments.device) / (width // 2))  # 9.21 = ln 10000
    angles = moments[:, None].float() * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).to(moments.dtype)


class Attention(nn.Module):  # type: ignore[misc]
    """Attention of states to themselves or to a context."""

    def __init__(self, width: int, heads: int, context: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.back = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(context or width, 2 * width)

    def forward(self, states: Tensor, context: Tensor | None = None) -> Tensor:
        """States of the same shape."""
        key, value = self.key_value(states if context is None else context).chunk(2, dim=-1)
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query(states), key, value))
        attended = functional.scaled_dot_product_attention(*parts)
        back: Tensor = self.back(attended.transpose(1, 2).flatten(2))
        return back


class Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions with group norms, and the moment between them."""

    def __init__(self, given: int, made: int, moment: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(min(32, given), given), nn.GroupNorm(min(32, made), made)])
        self.first, self.second = nn.Conv2d(given, made, 3, padding=1), nn.Conv2d(made, made, 3, padding=1)
        self.moment = nn.Linear(moment, made)
        self.skip = nn.Identity() if given == made else nn.Conv2d(given, made, 1)

    def forward(self, images: Tensor, moment: Tensor) -> Tensor:
        """Images of the second number of channels."""
        inner = self.first(functional.silu(self.norms[0](images))) + self.moment(moment)[:, :, None, None]
        outer: Tensor = self.skip(images) + self.second(functional.silu(self.norms[1](inner)))
        return outer


class Attended(nn.Module):  # type: ignore[misc]
    """A transformer block over the places of an image: attention to itself, to the text, and two layers."""

    def __init__(self, width: int, text: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.own, self.cross = Attention(width, heads), Attention(width, heads, text)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, images: Tensor, text: Tensor) -> Tensor:
        """Images of the same shape."""
        states = images.flatten(2).transpose(1, 2)
        states = states + self.own(self.norms[0](states))
        states = states + self.cross(self.norms[1](states), text)
        states = states + self.layers(self.norms[2](states))
        return states.transpose(1, 2).unflatten(2, images.shape[2:])


class UNet(nn.Module):  # type: ignore[misc]
    """Levels of residual and attention blocks, down and up again, with connections between the two ways."""

    def __init__(self, channels: tuple[int, ...], text: int, heads: int) -> None:
        super().__init__()
        self.width, moment = channels[0], 4 * channels[0]
        self.moment = nn.Sequential(nn.Linear(self.width, moment), nn.SiLU(), nn.Linear(moment, moment))
        self.start, self.end = (
            nn.Conv2d(_LATENT, self.width, 3, padding=1),
            nn.Conv2d(self.width, _LATENT, 3, padding=1),
        )
        given = (channels[0], *channels[:-1])
        self.down = nn.ModuleList(Residual(one, two, moment) for one, two in zip(given, channels, strict=True))
        self.middle = Residual(channels[-1], channels[-1], moment)
        self.up = nn.ModuleList(Residual(2 * two, one, moment) for one, two in zip(given, channels, strict=True))
        # The lowest level has no attention, as published.
        self.attends = nn.ModuleList(Attended(width, text, heads) for width in channels[: max(1, len(channels) - 1)])

    def forward(self, latents: Tensor, moments: Tensor, text: Tensor) -> Tensor:
        """The noise in the latents."""
        moment, kept = self.moment(_sinusoids(moments, self.width)), []
        states = self.start(latents)
        for number, block in enumerate(self.down):
            states = block(states, moment)
            if number < len(self.attends):
                states = self.attends[number](states, text)
            kept.append(states)
            states = functional.avg_pool2d(states, 2)
        states = self.middle(states, moment)
        for block in reversed(self.up):
            states = functional.interpolate(states, scale_factor=2.0)
            states = block(torch.cat([states, kept.pop()], dim=1), moment)
        noise: Tensor = self.end(functional.silu(states))
        return noise


class Modulated(nn.Module):  # type: ignore[misc]
    """A block whose norms are scaled and shifted, and whose two halves are gated, by what the image is conditioned on."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention, self.modulation = Attention(width, heads), nn.Linear(width, 6 * width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, states: Tensor, condition: Tensor) -> Tensor:
        """States of the same shape."""
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulation(condition)[:, None].chunk(6, dim=-1)
        states = states + gate * self.attention(self.norm(states) * (1 + scale) + shift)
        return states + gate_2 * self.layers(self.norm(states) * (1 + scale_2) + shift_2)


class DiT(nn.Module):  # type: ignore[misc]
    """Patches of two by two latents, modulated blocks, and a linear layer back to noise and its variance."""

    def __init__(self, depth: int, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.width = width
        self.patches = nn.Conv2d(_LATENT, width, 2, stride=2)
        self.places = nn.Parameter(torch.randn(1, (side // 2) ** 2, width) * 0.02)
        self.moment = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(1000, width)
        self.blocks = nn.ModuleList(Modulated(width, heads) for _ in range(depth))
        self.norm, self.end = nn.LayerNorm(width), nn.Linear(width, 2 * _LATENT * 4)

    def forward(self, latents: Tensor, moments: Tensor, labels: Tensor) -> Tensor:
        """Noise and variance of each patch: batch, patches, 32."""
        condition = functional.silu(self.moment(_sinusoids(moments, self.width)) + self.classes(labels))
        states = self.patches(latents).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            states = block(states, condition)
        noise: Tensor = self.end(self.norm(states))
        return noise
