"""Speech-Transformer: filter-bank frames in, characters out, with six encoder and six decoder layers.

Written from the paper (Dong, Xu and Xu, 2018) with the sizes and the habits of the PyTorch implementation in torchbench.
It is measured for these habits: attention divides by a NumPy scalar, masks are cut at lengths that are read from a tensor,
and padding is removed from the targets by a boolean index.
"""

# torch has no types for mypy here, so that nn.Module and its results are Any.
# mypy: allow-subclassing-any, no-warn-return-any

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from collector.vocabulary import Phase
from collector.zoo.builders.conditioning import PROBABILITY
from collector.zoo.spec import Built

WIDTH = 512
HEADS = 8
HEAD_WIDTH = WIDTH // HEADS
INNER = 2048
FEATURES = 320  # 80 filter banks, four frames stacked
LAYERS = 6
VOCABULARY = 4233  # the characters of AISHELL and three special symbols
START, END = 1, 2
IGNORED = -1
_LONGEST = 5000
_FRAMES = 160
_CHARACTERS = 20


class _ScaledDotProduct(nn.Module):
    """Attention over (heads x batch, length, width), written out; positions where the mask is true are not attended."""

    def __init__(self) -> None:
        super().__init__()
        # Not a Python float: for torch.compile a np.float64 is a 0-d tensor on the CPU, for which cudagraphs skip the graph.
        self.temperature = np.power(HEAD_WIDTH, 0.5)
        self.dropout = nn.Dropout(PROBABILITY)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)) / self.temperature
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=2)
        return torch.bmm(self.dropout(weights), value)


class _MultiHeadAttention(nn.Module):
    """Multi-head attention of `x` to `memory`, both (batch, length, width), with residual and norm."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        for projection in (self.query, self.key, self.value):
            nn.init.normal_(projection.weight, std=(2.0 / (WIDTH + HEAD_WIDTH)) ** 0.5)
        self.attention = _ScaledDotProduct()
        self.output = nn.Linear(WIDTH, WIDTH)
        nn.init.xavier_normal_(self.output.weight)
        self.dropout = nn.Dropout(PROBABILITY)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        batch = x.size(0)
        heads = self.attention(
            _split(self.query(x)), _split(self.key(memory)), _split(self.value(memory)), mask.repeat(HEADS, 1, 1)
        )
        joined = heads.view(HEADS, batch, -1, HEAD_WIDTH).permute(1, 2, 0, 3).reshape(batch, -1, WIDTH)
        return self.norm(self.dropout(self.output(joined)) + x)


class _FeedForward(nn.Module):
    """Two linear layers on each position, with residual and norm."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, INNER)
        self.outer = nn.Linear(INNER, WIDTH)
        self.dropout = nn.Dropout(PROBABILITY)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.dropout(self.outer(functional.relu(self.inner(x)))) + x)


class _Positions(nn.Module):
    """Sines and cosines of the first `length` positions."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        position = torch.arange(_LONGEST).unsqueeze(1)
        rate = torch.exp(torch.arange(0, WIDTH, 2) * -(np.log(10000.0) / WIDTH))
        table = torch.zeros(1, _LONGEST, WIDTH)
        table[0, :, 0::2] = torch.sin(position * rate)
        table[0, :, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table)

    def forward(self, length: int) -> Tensor:
        return self.table[:, :length]


class _EncoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = _MultiHeadAttention()
        self.feed_forward = _FeedForward()

    def forward(self, x: Tensor, present: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, x, mask) * present
        return self.feed_forward(x) * present


class _Encoder(nn.Module):
    """The encoder of frames (batch, time, features), which are zero after each length, to a sequence of the same length."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(FEATURES, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.positions = _Positions()
        self.dropout = nn.Dropout(PROBABILITY)
        self.layers = nn.ModuleList(_EncoderLayer() for _ in range(LAYERS))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        present = present_until(frames, lengths)
        mask = _key_mask(present, frames.size(1))
        x = self.dropout(self.norm(self.inputs(frames)) + self.positions(frames.size(1)))
        for layer in self.layers:
            x = layer(x, present, mask)
        return x


class _DecoderLayer(nn.Module):
    """A decoder layer: attention to the characters so far, attention to the speech, feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attention = _MultiHeadAttention()
        self.cross_attention = _MultiHeadAttention()
        self.feed_forward = _FeedForward()

    def forward(self, x: Tensor, memory: Tensor, present: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        x = self.self_attention(x, x, mask) * present
        x = self.cross_attention(x, memory, memory_mask) * present
        return self.feed_forward(x) * present


class _Decoder(nn.Module):
    """The decoder: scores of each next character, and the right next characters (`IGNORED` after each sentence)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = _Positions()
        self.dropout = nn.Dropout(PROBABILITY)
        self.layers = nn.ModuleList(_DecoderLayer() for _ in range(LAYERS))
        self.scores = nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.xavier_normal_(self.scores.weight)
        self.embedding.weight = self.scores.weight  # one matrix for both

    def forward(self, targets: Tensor, memory: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        characters, gold = _shifted(targets)
        length = characters.size(1)
        present = characters.ne(END).unsqueeze(-1).to(memory.dtype)
        future = torch.ones(length, length, device=memory.device, dtype=torch.bool).triu(diagonal=1)
        mask = _key_mask(present, length) | future
        memory_mask = _key_mask(present_until(memory, lengths), length)
        x = self.dropout(self.embedding(characters) * WIDTH**0.5 + self.positions(length))
        for layer in self.layers:
            x = layer(x, memory, present, mask, memory_mask)
        return self.scores(x), gold


class SpeechTransformer(nn.Module):
    """A Speech-Transformer: encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _Encoder()
        self.decoder = _Decoder()

    def forward(self, frames: Tensor, lengths: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores of each next character, and the right next characters."""
        return self.decoder(targets, self.encoder(frames, lengths), lengths)


def present_until(sequences: Tensor, lengths: Tensor) -> Tensor:
    """Return 1 before and 0 after each length, as (batch, length, 1). Reading a length from its tensor breaks the graph."""
    present = sequences.new_ones(sequences.shape[:-1])
    for row in range(sequences.size(0)):
        present[row, lengths[row] :] = 0
    return present.unsqueeze(-1)


def _split(x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    return x.view(batch, length, HEADS, HEAD_WIDTH).permute(2, 0, 1, 3).reshape(-1, length, HEAD_WIDTH)


def _shifted(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the decoder's input (a start symbol first) and its targets (an end symbol last)."""
    sentences = [row[row != IGNORED] for row in targets]
    start, end = targets.new_tensor([START]), targets.new_tensor([END])
    read = [torch.cat([start, sentence]) for sentence in sentences]
    say = [torch.cat([sentence, end]) for sentence in sentences]
    return _padded(read, END), _padded(say, IGNORED)


def loss(output: Any, targets: Any) -> Tensor:
    """Compute cross entropy with label smoothing over the characters that are not padding."""
    scores, gold = output
    return functional.cross_entropy(scores.flatten(0, 1), gold.flatten(), ignore_index=IGNORED, label_smoothing=0.1)


def build(batch_size: int, phase: Phase, device: str) -> Built:
    """Build the model with random frames; the first utterance is the longest, all have at least half its frames."""
    model = SpeechTransformer()
    lengths = torch.randint(_FRAMES // 2, _FRAMES + 1, (batch_size,))
    lengths[0] = _FRAMES
    frames = torch.randn(batch_size, _FRAMES, FEATURES)
    frames[torch.arange(_FRAMES) >= lengths.unsqueeze(1)] = 0
    spoken = torch.randint(_CHARACTERS // 2, _CHARACTERS + 1, (batch_size, 1))
    spoken[0] = _CHARACTERS
    targets = torch.randint(END + 1, VOCABULARY, (batch_size, _CHARACTERS))
    targets[torch.arange(_CHARACTERS) >= spoken] = IGNORED
    return Built(model, (frames, lengths, targets), {}, loss)


def _key_mask(present: Tensor, queries: int) -> Tensor:
    return present.squeeze(-1).lt(1).unsqueeze(1).expand(-1, queries, -1)


def _padded(rows: list[Tensor], filler: int) -> Tensor:
    padded = rows[0].new_full((len(rows), max(row.size(0) for row in rows)), filler)
    for row, characters in zip(padded, rows, strict=True):
        row[: characters.size(0)] = characters
    return padded
