"""A neighbour on the GPU: its queued kernels are waited for, and nothing of them is in a measurement.

Each measurement has a process of its own, as in a run: a profiler makes all later calls of its process slower.
"""

import os
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from collector.zoo.spec import Built
from tests.collector.hosts import ListeningHost
from tests.collector.measure.tiny_cells import measured_apart
from tests.collector.processes import state, wait_until

#: At a signal it queues about two seconds of float64 products and stops itself: at once, or at SIGUSR2 when they are done.
NEIGHBOUR = """
import os, signal, torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.float64)
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
a @ a
begin.record(); a @ a; end.record(); torch.cuda.synchronize()
many = min(1000, int(2000 / begin.elapsed_time(end)) + 1)
def queue(number, _):
    for _ in range(many):
        a @ a
    if number == signal.SIGUSR2:
        torch.cuda.synchronize()
    os.kill(os.getpid(), signal.SIGSTOP)
signal.signal(signal.SIGUSR1, queue)
signal.signal(signal.SIGUSR2, queue)
print("ready", flush=True)
while True:
    signal.pause()
"""
#: Processes alone differ by up to 7 % in these five profiled calls; a queue that is not waited for doubles the figures.
MARGIN = 1.1
CELL = Cell("tests", "layers", Phase.INFERENCE, "float32", "cuda", 64, Config())


class Beside(ListeningHost):
    """As in a pool: right before the measurement the neighbour gets its signal, works and is stopped."""

    def __init__(self, pid, number):
        super().__init__()
        self.pid, self.signal = pid, number

    def before(self, purpose):
        if purpose == "measure":
            os.kill(self.pid, self.signal)
            wait_until(lambda: state(self.pid) == "T", 30)

    def after(self, purpose):
        os.kill(self.pid, signal.SIGCONT)


def layers(batch_size, phase, device):
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(24)), nn.GELU())
    return Built(model, (torch.randn(4096, 2048),), {}, lambda output, _: output.sum())


def figures(pid, number):
    """The figures beside the neighbour, measured in a process of its own."""
    outcome = measured_apart(CELL, layers, Settings(), Beside(pid, number)).measurement
    assert outcome.status is Status.PASS, outcome.failure
    names = ("eager_ms", "compiled_ms", "eager_kernel_ms", "compiled_kernel_ms")
    return {name: outcome.metrics[name] for name in names}, outcome.details["idle_probe"]


@pytest.mark.gpu
def test_a_stopped_neighbours_queue_is_waited_for():
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True) as neighbour:
        try:
            assert neighbour.stdout.readline() == "ready\n"
            # Two processes on an idle GPU that is as warm as behind the neighbour's queue.
            alone = [figures(neighbour.pid, signal.SIGUSR2)[0] for _ in range(2)]
            beside, probe = figures(neighbour.pid, signal.SIGUSR1)
        finally:
            neighbour.kill()
    print(f"alone {alone}, beside a stopped neighbour with two seconds queued {beside}, probe {probe}")  # noqa: T201
    assert not [name for name, value in beside.items() if value > MARGIN * max(one[name] for one in alone)]
