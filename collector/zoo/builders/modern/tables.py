"""Models of sparse data: a recommendation model with embedding bags, and a graph network."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from collector.vocabulary import Phase
from collector.zoo.builders.user import own_loss_or_mean_squares
from collector.zoo.spec import Built, is_cpu

_DENSE, _TABLES = 13, 26
#: Items of a bag. Criteo's data has one; several make the bag sum.
_ITEMS = 4


def build_dlrm(batch_size: int, phase: Phase, device: str) -> Built:
    """DLRM with MLPerf's layers for Criteo's Terabyte data (13-512-256-128 and 1024-1024-512-256-1, 26 tables of width 128).

    The tables have 100,000 rows each, not up to 40 million, and four items a bag, not one.
    """
    rows, width, bottom, top = (
        (100, 8, (16, 8), (16, 1)) if is_cpu(device) else (100_000, 128, (512, 256, 128), (1024, 1024, 512, 256, 1))
    )
    model = Dlrm(rows, width, bottom, top)
    items = torch.randint(0, rows, (_TABLES, batch_size, _ITEMS))
    return Built(model, (torch.randn(batch_size, _DENSE), items), {}, own_loss_or_mean_squares)


def build_gcn(batch_size: int, phase: Phase, device: str) -> Built:
    """Three graph convolutions with OGB's sizes for ogbn-arxiv: 169,343 nodes, 1,166,243 edges, 128 features, width 256.

    The graph is random, so its degrees are more even than those of papers that cite each other.
    """
    nodes, edges, width = (200, 1000, 16) if is_cpu(device) else (169_343, 1_166_243, 256)
    model = GraphConvolutions((128, width, width, 40))
    ends = torch.randint(0, nodes, (2, edges))
    return Built(model, (torch.randn(nodes, 128), ends), {}, own_loss_or_mean_squares)


def _layers(sizes: tuple[int, ...]) -> nn.Sequential:
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*(part for one, two in pairs for part in (nn.Linear(one, two), nn.ReLU())))


class Dlrm(nn.Module):  # type: ignore[misc]
    """Dense features and sums of embeddings, all products of two of them, and layers over these."""

    def __init__(self, rows: int, width: int, bottom: tuple[int, ...], top: tuple[int, ...]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(_TABLES))
        self.bottom = _layers((_DENSE, *bottom))
        pairs = torch.tril_indices(_TABLES + 1, _TABLES + 1, offset=-1)
        self.register_buffer("pairs", pairs)
        self.top = _layers((width + pairs.shape[1], *top[:-1]))
        self.end = nn.Linear(top[-2], top[-1])

    def forward(self, dense: Tensor, items: Tensor) -> Tensor:
        """Scores: batch, 1. `items` has the rows of each table's bags: tables, batch, items."""
        state = self.bottom(dense)
        bags = [table(bag) for table, bag in zip(self.tables, items.unbind(), strict=True)]
        features = torch.stack([state, *bags], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        scores: Tensor = self.end(self.top(torch.cat([state, products], dim=1)))
        return scores


class GraphConvolutions(nn.Module):  # type: ignore[misc]
    """Layers of: transform the nodes, gather along the edges, sum at their ends."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(one, two) for one, two in itertools.pairwise(sizes))

    def forward(self, nodes: Tensor, ends: Tensor) -> Tensor:
        """Scores of the nodes. `ends` has the nodes at which each edge starts and ends: 2, edges."""
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
