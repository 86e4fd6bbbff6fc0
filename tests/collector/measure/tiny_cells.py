"""Cells of a few lines, measured in the test's own process or in one of their own."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import torch
from torch import nn

from collector.measure.cell import measure
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Measurement, Phase
from collector.zoo.spec import Built

FEW = Settings(rounds=5, warmups=1, sample_limit_s=5)
#: Dynamo without Inductor: whatever does not depend on generated kernels is asked of this, it compiles in no time.
EAGER_BACKEND = Config(backend="eager")
INDUCTOR = Config(template="triton")
CELL = Cell("tests", "tiny", Phase.INFERENCE, "float32", "cpu", 4, EAGER_BACKEND)


class Breaks(nn.Module):
    """Two layers with a graph break between them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x).relu()
        torch._dynamo.graph_break("asked for by the test")
        return self.last(x)


def tiny():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))


def mean_square(out, _):
    return out.float().square().mean()


def builder(make):
    def build(batch_size, phase, device):
        return Built(make(), (torch.randn(batch_size, 16),), {}, mean_square)

    return build


def measured(make, settings=FEW, host=None, **changes) -> Measurement:
    return measure(replace(CELL, **changes), builder(make), settings, host).measurement


def measured_apart(cell, build, settings=FEW, host=None):
    """The outcome from a process of its own, whose folders are set before torch is imported."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        return processes.submit(measure, cell, build, settings, host).result()
