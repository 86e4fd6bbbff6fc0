"""One attention layer: FlexAttention and the forms of scaled_dot_product_attention, side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from collector.vocabulary import Phase
from collector.zoo.spec import Built, is_cpu

#: The layer of Llama-3.2-1B: 32 heads of 64, 8 of keys and values.
_HEADS, _KEY_HEADS, _HEAD = 32, 8, 64
_CPU_HEADS, _CPU_KEY_HEADS = 4, 2


def build(
    batch_size: int, phase: Phase, device: str, *, form: str, window: int, tokens: int, cpu_tokens: int, cpu_window: int
) -> Built:
    """Projections around one form of attention (`FORMS`), over random states of magnitude one.

    The number of tokens is no `length` of `collector.zoo.spec`: masks are made for one.
    """
    small = is_cpu(device)
    length, window = (cpu_tokens, cpu_window) if small else (tokens, window)
    heads, key_heads = (_CPU_HEADS, _CPU_KEY_HEADS) if small else (_HEADS, _KEY_HEADS)
    model = Attention(FORMS[form](length, window), heads, heads if form == "sdpa" else key_heads)
    return Built(model, (torch.randn(batch_size, length, heads * _HEAD),), {}, _loss)


class Attention(nn.Module):  # type: ignore[misc]
    """Projects states to queries, keys and values, attends, and projects back."""

    def __init__(self, attend: nn.Module, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.attend = heads, key_heads, attend
        self.project = nn.Linear(heads * _HEAD, (heads + 2 * key_heads) * _HEAD, bias=False)
        self.back = nn.Linear(heads * _HEAD, heads * _HEAD, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """States of the same shape."""
        batch, length, _ = states.shape
        parts = self.project(states).view(batch, length, -1, _HEAD).transpose(1, 2)
        query, key, value = parts.split([self.heads, self.key_heads, self.key_heads], dim=1)
        attended: Tensor = self.attend(query, key, value)
        back: Tensor = self.back(attended.transpose(1, 2).reshape(batch, length, -1))
        return back


class Sdpa(nn.Module):  # type: ignore[misc]
    """scaled_dot_product_attention: causal, or with a mask that is given as a tensor."""

    def __init__(self, grouped: bool, mask: Tensor | None = None) -> None:
        super().__init__()
        self.grouped = grouped
        self.register_buffer("mask", mask)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The attended values."""
        causal = self.mask is None
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask, is_causal=causal, enable_gqa=self.grouped
        )


class Flex(nn.Module):  # type: ignore[misc]
    """FlexAttention under a rule that says which key a query sees; the block mask is made once for each device."""

    def __init__(self, length: int, rule: Callable[..., Tensor]) -> None:
        super().__init__()
        self._length, self._rule = length, rule
        # What tells the device: a module of its own has no parameter.
        self.register_buffer("_place", torch.empty(0))
        self._make_mask()

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The attended values."""
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


#: Each form of attention from a length and a window. `sdpa` has as many heads of keys as of queries, the others fewer.
FORMS: dict[str, Callable[[int, int], nn.Module]] = {
    "flex_causal": lambda length, window: Flex(length, _causal),
    "flex_sliding_window": lambda length, window: Flex(length, _sliding(window)),
    "sdpa": lambda length, window: Sdpa(grouped=False),
    "sdpa_gqa": lambda length, window: Sdpa(grouped=True),
    "sdpa_sliding_window_mask": lambda length, window: Sdpa(grouped=True, mask=_sliding_mask(length, window)),
}
