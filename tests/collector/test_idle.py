"""A neighbour on the GPU: its queued kernels are waited for, and nothing of them is in a measurement."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from collector.idle import IdleProbe
from collector.measure import Alone, measure
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from collector.zoo.spec import Built

#: Queues about two seconds of float64 products each time it reads a line, and says when they are queued.
NEIGHBOUR = """
import sys, torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.float64)
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
a @ a
begin.record(); a @ a; end.record(); torch.cuda.synchronize()
many = int(2000 / begin.elapsed_time(end)) + 1
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(many):
        a @ a
    print("queued", flush=True)
"""
CELL = Cell("tests", "layers", Phase.INFERENCE, "float32", "cuda", 64, Config())


@pytest.fixture
def neighbour():
    process = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()


class Beside(Alone):
    """As the pool does: right before the measurement the neighbour, which has just queued its work, is stopped."""

    def __init__(self, neighbour):
        self.neighbour = neighbour

    @contextmanager
    def exclusive(self, purpose="measure"):
        if purpose == "measure":
            self.neighbour.stdin.write("go\n")
            self.neighbour.stdin.flush()
            assert self.neighbour.stdout.readline() == "queued\n"
            os.kill(self.neighbour.pid, signal.SIGSTOP)
        yield
        os.kill(self.neighbour.pid, signal.SIGCONT)


def layers(batch_size, phase, device):
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(24)), nn.GELU())
    return Built(model, (torch.randn(4096, 2048),), {}, lambda output, _: output.sum())


def figures(host):
    outcome = measure(CELL, layers, Settings(), host).measurement
    assert outcome.status is Status.PASS, outcome.failure
    names = ("eager_ms", "compiled_ms", "eager_kernel_ms", "compiled_kernel_ms")
    print(outcome.metrics, outcome.details["idle_probe"], outcome.details["surroundings"])  # noqa: T201
    return {name: outcome.metrics[name] for name in names}, outcome.details["idle_probe"]


@pytest.mark.gpu
def test_a_stopped_neighbours_queue_is_waited_for(neighbour):
    alone, _ = figures(Alone())
    beside, probe = figures(Beside(neighbour))
    print(f"alone {alone}, beside a stopped neighbour with two seconds queued {beside}, probe {probe}")  # noqa: T201
    for name, value in alone.items():
        assert beside[name] == pytest.approx(value, rel=0.02), name


@pytest.mark.gpu
def test_without_the_wait_the_neighbour_is_in_the_figures(neighbour, monkeypatch):
    alone, _ = figures(Alone())
    monkeypatch.setattr(IdleProbe, "wait", IdleProbe.ms)
    beside, probe = figures(Beside(neighbour))
    print(f"alone {alone}, without the wait {beside}, probe {probe}")  # noqa: T201
    assert beside["compiled_ms"] > 1.2 * alone["compiled_ms"]
    assert probe["before_ms"] > 1.5 * probe["after_ms"]
