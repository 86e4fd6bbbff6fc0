"""A neighbour on the GPU: its queued kernels are waited for, and nothing of them is in a measurement.

Each measurement has a process of its own, as in a run: a profiler makes all later calls of its process slower.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from collector.machine.idle import IdleProbe
from collector.measure.cell import Alone, measure
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from collector.zoo.spec import Built

#: At each SIGUSR1 it queues about two seconds of float64 products and stops itself.
NEIGHBOUR = """
import os, signal, torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.float64)
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
a @ a
begin.record(); a @ a; end.record(); torch.cuda.synchronize()
many = min(1000, int(2000 / begin.elapsed_time(end)) + 1)
def queue(*_):
    for _ in range(many):
        a @ a
    os.kill(os.getpid(), signal.SIGSTOP)
signal.signal(signal.SIGUSR1, queue)
print("ready", flush=True)
while True:
    signal.pause()
"""
CELL = Cell("tests", "layers", Phase.INFERENCE, "float32", "cuda", 64, Config())


@pytest.fixture
def neighbour():
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process.pid
    process.kill()
    process.wait()


class Beside(Alone):
    """As in a pool: right before the measurement the neighbour queues its work and is stopped."""

    def __init__(self, pid):
        self.pid = pid

    @contextmanager
    def exclusive(self, purpose="measure"):
        if purpose == "measure":
            os.kill(self.pid, signal.SIGUSR1)
            while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.001)
        yield
        os.kill(self.pid, signal.SIGCONT)


def layers(batch_size, phase, device):
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(24)), nn.GELU())
    return Built(model, (torch.randn(4096, 2048),), {}, lambda output, _: output.sum())


def figures(pid, waits):
    """The times of the cell, and its probe, beside the neighbour of this number or, without one, alone."""
    if not waits:
        IdleProbe.wait = IdleProbe.ms
    outcome = measure(CELL, layers, Settings(), Beside(pid) if pid else Alone()).measurement
    assert outcome.status is Status.PASS, outcome.failure
    names = ("eager_ms", "compiled_ms", "eager_kernel_ms", "compiled_kernel_ms")
    return {name: outcome.metrics[name] for name in names}, outcome.details["idle_probe"]


def in_a_process(pid=0, waits=True):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        return processes.submit(figures, pid, waits).result()


@pytest.mark.gpu
def test_a_stopped_neighbours_queue_is_waited_for(neighbour):
    alone, _ = in_a_process()
    beside, probe = in_a_process(neighbour)
    print(f"alone {alone}, beside a stopped neighbour with two seconds queued {beside}, probe {probe}")  # noqa: T201
    for name, value in alone.items():
        assert beside[name] == pytest.approx(value, rel=0.02), name


@pytest.mark.gpu
def test_without_the_wait_the_neighbour_is_in_the_figures(neighbour):
    alone, _ = in_a_process()
    beside, probe = in_a_process(neighbour, waits=False)
    print(f"alone {alone}, without the wait {beside}, probe {probe}")  # noqa: T201
    assert beside["compiled_ms"] > 1.2 * alone["compiled_ms"]
    assert probe["before_ms"] > 1.5 * probe["after_ms"]
