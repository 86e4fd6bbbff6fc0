"""Models of diffusion, recommendation and graphs, quantised layers, an optimiser's step, and one attention layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adamw import adamw

from collector.vocabulary import Phase
from collector.zoo.builders.conditioning import built_on
from collector.zoo.builders.outside_models import own_loss_or_mean_squares
from collector.zoo.spec import Built, is_cpu

_LATENT = 4  # channels
_TEXT_TOKENS = 77


def build_unet(batch_size: int, phase: Phase, device: str) -> Built:
    """Build a UNet with the channels and heads of Stable Diffusion 1.5 (its unet/config.json), at 512x512 pixels.

    It is simplified: a level has one residual block and, on the way down only, one attention block, where the original has two
    of each on the way down and three on the way up; it pools instead of strided convolutions, and has GELU instead of GEGLU.
    """
    channels, text, heads, side = ((32, 64), 32, 2, 8) if is_cpu(device) else ((320, 640, 1280, 1280), 768, 8, 64)
    with built_on(device):
        model = UNet(channels, text, heads)
    inputs = (torch.randn(batch_size, _LATENT, side, side), torch.rand(batch_size) * 1000)
    return Built(model, (*inputs, torch.randn(batch_size, _TEXT_TOKENS, text)), {}, own_loss_or_mean_squares)


def build_dit(batch_size: int, phase: Phase, device: str) -> Built:
    """Build DiT-B/2 of "Scalable Diffusion Models with Transformers" (Peebles and Xie 2022, table 1), at 256x256 pixels."""
    depth, width, heads, side = (2, 64, 2, 8) if is_cpu(device) else (12, 768, 12, 32)
    with built_on(device):
        model = DiT(depth, width, heads, side)
    inputs = (torch.randn(batch_size, _LATENT, side, side), torch.rand(batch_size) * 1000)
    return Built(model, (*inputs, torch.randint(0, 1000, (batch_size,))), {}, own_loss_or_mean_squares)


def _sinusoids(moments: Tensor, width: int) -> Tensor:
    frequencies = torch.exp(-9.21 * torch.arange(width // 2, device=moments.device) / (width // 2))  # 9.21 = ln 10000
    angles = moments[:, None].float() * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1).to(moments.dtype)


class Attention(nn.Module):  # type: ignore[misc]
    """Multi-head attention of states to themselves or to a context."""

    def __init__(self, width: int, heads: int, context: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.back = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(context or width, 2 * width)

    def forward(self, states: Tensor, context: Tensor | None = None) -> Tensor:
        """Return states of the same shape."""
        key, value = self.key_value(states if context is None else context).chunk(2, dim=-1)
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query(states), key, value))
        attended = functional.scaled_dot_product_attention(*parts)
        back: Tensor = self.back(attended.transpose(1, 2).flatten(2))
        return back


class Residual(nn.Module):  # type: ignore[misc]
    """A residual block of two convolutions with group norms; the embedded moment is added between them."""

    def __init__(self, given: int, made: int, moment: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(min(32, given), given), nn.GroupNorm(min(32, made), made)])
        self.first, self.second = nn.Conv2d(given, made, 3, padding=1), nn.Conv2d(made, made, 3, padding=1)
        self.moment = nn.Linear(moment, made)
        self.skip = nn.Identity() if given == made else nn.Conv2d(given, made, 1)

    def forward(self, images: Tensor, moment: Tensor) -> Tensor:
        """Return images with `made` channels."""
        inner = self.first(functional.silu(self.norms[0](images))) + self.moment(moment)[:, :, None, None]
        outer: Tensor = self.skip(images) + self.second(functional.silu(self.norms[1](inner)))
        return outer


class Attended(nn.Module):  # type: ignore[misc]
    """A transformer block over the places of an image: attention to itself, attention to the text, and two layers."""

    def __init__(self, width: int, text: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.own, self.cross = Attention(width, heads), Attention(width, heads, text)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, images: Tensor, text: Tensor) -> Tensor:
        """Return images of the same shape."""
        states = images.flatten(2).transpose(1, 2)
        states = states + self.own(self.norms[0](states))
        states = states + self.cross(self.norms[1](states), text)
        states = states + self.layers(self.norms[2](states))
        return states.transpose(1, 2).unflatten(2, images.shape[2:])


class UNet(nn.Module):  # type: ignore[misc]
    """A UNet: levels of residual and attention blocks, down and up again, with connections between both ways."""

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
        """Return the predicted noise in the latents."""
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
    """A DiT block in which the condition scales and shifts the norms and gates both halves."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention, self.modulation = Attention(width, heads), nn.Linear(width, 6 * width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, states: Tensor, condition: Tensor) -> Tensor:
        """Return states of the same shape."""
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulation(condition)[:, None].chunk(6, dim=-1)
        states = states + gate * self.attention(self.norm(states) * (1 + scale) + shift)
        return states + gate_2 * self.layers(self.norm(states) * (1 + scale_2) + shift_2)


class DiT(nn.Module):  # type: ignore[misc]
    """A DiT: patches of two by two latents, modulated blocks, and a linear layer to the noise and its variance."""

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
        """Return noise and variance of each patch: batch, patches, 32."""
        condition = functional.silu(self.moment(_sinusoids(moments, self.width)) + self.classes(labels))
        states = self.patches(latents).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            states = block(states, condition)
        noise: Tensor = self.end(self.norm(states))
        return noise


def build_int8(batch_size: int, phase: Phase, device: str) -> Built:
    """Build the sixteen gated layers of Llama-3.2-1B (width 2048, inner 8192) with int8 weights and bfloat16 scales."""
    width, inner, depth = (64, 128, 2) if is_cpu(device) else (2048, 8192, 16)
    with built_on(device):
        model = nn.Sequential(*(Gated(width, inner) for _ in range(depth)))
    return Built(model, (torch.randn(batch_size, width, dtype=torch.bfloat16),), {}, own_loss_or_mean_squares)


class Int8(nn.Module):  # type: ignore[misc]
    """A linear layer with an int8 weight, quantised from a random one, and a scale for each output."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        weight = torch.randn(made, given) * given**-0.5
        scale = weight.abs().amax(dim=1) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(torch.bfloat16))

    def forward(self, states: Tensor) -> Tensor:
        """Return states of width `made`."""
        return functional.linear(states, self.weight.to(states.dtype)) * self.scale


class Gated(nn.Module):  # type: ignore[misc]
    """A SwiGLU layer with a residual connection."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, dtype=torch.bfloat16)
        self.gate, self.up, self.down = Int8(width, inner), Int8(width, inner), Int8(inner, width)

    def forward(self, states: Tensor) -> Tensor:
        """Return states of the same shape."""
        given = self.norm(states)
        return states + self.down(functional.silu(self.gate(given)) * self.up(given))


def build_adamw(batch_size: int, phase: Phase, device: str) -> Built:
    """Build one step of AdamW over parameters with the shapes of GPT-2 small: 148 tensors, 124 million numbers."""
    width, depth, words, places = (32, 2, 100, 16) if is_cpu(device) else (768, 12, 50257, 1024)
    block = [(width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,), (width,), (width,)]
    block += [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    shapes = [(words, width), (places, width), *(block * depth), (width,), (width,)]
    with built_on(device):
        gradients = [torch.randn(shape) for shape in shapes]
        model = AdamWStep(shapes, not is_cpu(device))
    return Built(model, (gradients,), {}, own_loss_or_mean_squares)


class AdamWStep(nn.Module):  # type: ignore[misc]
    """A step of AdamW. Parameters and optimiser's state are buffers, so that they are restored and compared."""

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
        """Make the step and return a clone of the last parameter; all parameters change as state."""
        values = self._all("value")
        adamw(
            values,
            gradients,
            self._all("mean"),
            self._all("square"),
            [],
            self._all("step"),
            foreach=True,
            # Eager takes `capturable` on a GPU only; the compiler needs it, since else the step count would be a constant.
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


_DENSE, _TABLES = 13, 26
#: Items of a bag. Criteo's data has one; several items make the bag compute a sum.
_ITEMS = 4


def build_dlrm(batch_size: int, phase: Phase, device: str) -> Built:
    """Build DLRM with MLPerf's layers for Criteo's Terabyte data (13-512-256-128, 1024-1024-512-256-1, 26 tables of width 128).

    The tables have 100,000 rows each instead of up to 40 million, and bags have four items instead of one.
    """
    rows, width, bottom, top = (
        (100, 8, (16, 8), (16, 1)) if is_cpu(device) else (100_000, 128, (512, 256, 128), (1024, 1024, 512, 256, 1))
    )
    with built_on(device):
        model = Dlrm(rows, width, bottom, top)
    items = torch.randint(0, rows, (_TABLES, batch_size, _ITEMS))
    return Built(model, (torch.randn(batch_size, _DENSE), items), {}, own_loss_or_mean_squares)


def build_gcn(batch_size: int, phase: Phase, device: str) -> Built:
    """Build three graph convolutions in OGB's sizes for ogbn-arxiv: 169,343 nodes, 1,166,243 edges, 128 features, width 256.

    The graph is random, so its degrees are more even than in a graph of citations.
    """
    nodes, edges, width = (200, 1000, 16) if is_cpu(device) else (169_343, 1_166_243, 256)
    model = GraphConvolutions((128, width, width, 40))
    ends = torch.randint(0, nodes, (2, edges))
    return Built(model, (torch.randn(nodes, 128), ends), {}, own_loss_or_mean_squares)


def _layers(sizes: tuple[int, ...]) -> nn.Sequential:
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*(part for one, two in pairs for part in (nn.Linear(one, two), nn.ReLU())))


class Dlrm(nn.Module):  # type: ignore[misc]
    """A DLRM: layers on dense features, sums of embeddings, all products of two of these features, and layers on the result."""

    def __init__(self, rows: int, width: int, bottom: tuple[int, ...], top: tuple[int, ...]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(_TABLES))
        self.bottom = _layers((_DENSE, *bottom))
        pairs = torch.tril_indices(_TABLES + 1, _TABLES + 1, offset=-1)
        self.register_buffer("pairs", pairs)
        self.top = _layers((width + pairs.shape[1], *top[:-1]))
        self.end = nn.Linear(top[-2], top[-1])

    def forward(self, dense: Tensor, items: Tensor) -> Tensor:
        """Return scores: batch, 1. `items` has the rows of each table's bags: tables, batch, items."""
        state = self.bottom(dense)
        bags = [table(bag) for table, bag in zip(self.tables, items.unbind(), strict=True)]
        features = torch.stack([state, *bags], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        scores: Tensor = self.end(self.top(torch.cat([state, products], dim=1)))
        return scores


class GraphConvolutions(nn.Module):  # type: ignore[misc]
    """Graph convolutions: each layer transforms the nodes, gathers along the edges, and sums at their ends."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(one, two) for one, two in itertools.pairwise(sizes))

    def forward(self, nodes: Tensor, ends: Tensor) -> Tensor:
        """Return scores of the nodes. `ends` has the nodes at which each edge starts and ends: 2, edges."""
        start, end = ends
        ones = torch.ones(end.shape, dtype=nodes.dtype, device=nodes.device)
        degree = torch.zeros(nodes.shape[0], dtype=nodes.dtype, device=nodes.device).index_add(0, end, ones) + 1
        scale = degree.rsqrt()[:, None]
        for number, layer in enumerate(self.layers):
            states = layer(nodes) * scale
            nodes = (states + torch.zeros_like(states).index_add(0, end, states[start])) * scale
            if number + 1 < len(self.layers):
                nodes = torch.relu(nodes)
        return nodes


#: The attention of Llama-3.2-1B: 32 heads of width 64, 8 heads of keys and values.
_HEADS, _KEY_HEADS, _HEAD = 32, 8, 64
_CPU_HEADS, _CPU_KEY_HEADS = 4, 2


def build_attention(
    batch_size: int, phase: Phase, device: str, *, form: str, window: int, tokens: int, cpu_tokens: int, cpu_window: int
) -> Built:
    """Build projections around one form of attention (`FORMS`), over random states of magnitude one.

    The parameter for the number of tokens is not called `length` (`collector.zoo.spec.LENGTHS`), since a mask fits one length
    only.
    """
    small = is_cpu(device)
    length, window = (cpu_tokens, cpu_window) if small else (tokens, window)
    heads, key_heads = (_CPU_HEADS, _CPU_KEY_HEADS) if small else (_HEADS, _KEY_HEADS)
    model = AttentionLayer(FORMS[form](length, window), heads, heads if form == "sdpa" else key_heads)
    return Built(model, (torch.randn(batch_size, length, heads * _HEAD),), {}, _loss)


class AttentionLayer(nn.Module):  # type: ignore[misc]
    """An attention layer that projects states to queries, keys and values, attends, and projects back."""

    def __init__(self, attend: nn.Module, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.attend = heads, key_heads, attend
        self.project = nn.Linear(heads * _HEAD, (heads + 2 * key_heads) * _HEAD, bias=False)
        self.back = nn.Linear(heads * _HEAD, heads * _HEAD, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """Return states of the same shape."""
        batch, length, _ = states.shape
        parts = self.project(states).view(batch, length, -1, _HEAD).transpose(1, 2)
        query, key, value = parts.split([self.heads, self.key_heads, self.key_heads], dim=1)
        attended: Tensor = self.attend(query, key, value)
        back: Tensor = self.back(attended.transpose(1, 2).reshape(batch, length, -1))
        return back


class Sdpa(nn.Module):  # type: ignore[misc]
    """A `scaled_dot_product_attention` that is causal, or has a mask tensor."""

    def __init__(self, grouped: bool, mask: Tensor | None = None) -> None:
        super().__init__()
        self.grouped = grouped
        self.register_buffer("mask", mask)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the attended values."""
        causal = self.mask is None
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask, is_causal=causal, enable_gqa=self.grouped
        )


class Flex(nn.Module):  # type: ignore[misc]
    """A FlexAttention with a rule that says which keys a query sees; the block mask is made once for each device."""

    def __init__(self, length: int, rule: Callable[..., Tensor]) -> None:
        super().__init__()
        self._length, self._rule = length, rule
        # A buffer that shows the device, since this module has no parameter.
        self.register_buffer("_place", torch.empty(0))
        self._make_mask()

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the attended values."""
        from torch.nn.attention.flex_attention import flex_attention

        attended: Tensor = flex_attention(query, key, value, block_mask=self._mask, enable_gqa=True)
        return attended

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Flex:
        super()._apply(fn, recurse)
        if self._mask.kv_num_blocks.device != self.get_buffer("_place").device:
            self._make_mask()
        return self

    def _make_mask(self) -> None:
        from torch.nn.attention.flex_attention import create_block_mask

        device = str(self.get_buffer("_place").device)
        self._mask: Any = create_block_mask(self._rule, None, None, self._length, self._length, device=device)


def _causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def _sliding(window: int) -> Callable[..., Tensor]:
    def sliding(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key < window)

    return sliding


def _sliding_mask(length: int, window: int) -> Tensor:
    position = torch.arange(length)
    return _sliding(window)(position, position, position[:, None], position[None, :])


def _loss(output: Tensor, targets: Any) -> Tensor:
    return output.square().mean()


#: Forms of attention, each made from a length and a window. `sdpa` has as many heads of keys as of queries, the others fewer.
FORMS: dict[str, Callable[[int, int], nn.Module]] = {
    "flex_causal": lambda length, window: Flex(length, _causal),
    "flex_sliding_window": lambda length, window: Flex(length, _sliding(window)),
    "sdpa": lambda length, window: Sdpa(grouped=False),
    "sdpa_gqa": lambda length, window: Sdpa(grouped=True),
    "sdpa_sliding_window_mask": lambda length, window: Sdpa(grouped=True, mask=_sliding_mask(length, window)),
}
