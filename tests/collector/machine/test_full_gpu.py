"""A GPU whose memory other processes hold: what does not fit is `oom`, and nobody takes the GPU for lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from collector.machine.health import why_unhealthy
from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.launcher import Preload
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.pool.device_slots import list_gpus, make_slots
from jobs.pool.gpu_scheduler import GpuScheduler
from jobs.pool.runner import Pool
from jobs.pool.testbeds import probe
from tests.collector.processes import ROOT
from tests.jobs.acting import Stage, acted, player_variables, slot

#: For each number of bytes that it reads, holds all but so many of the GPU's memory, and says how many are left.
BALLAST = """
import sys, torch
held = []
for line in sys.stdin:
    held.clear()
    torch.cuda.empty_cache()
    size = 1 << 34
    while size >= 16 << 20:
        try:
            if torch.cuda.mem_get_info()[0] - int(line) < size:
                raise MemoryError
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except (MemoryError, RuntimeError):
            size //= 2
    print(torch.cuda.mem_get_info()[0], flush=True)
"""

MODELS = ("products", "convolutions")


def test_a_check_that_finds_no_memory_ends_no_run(tmp_path):
    stage = Stage(tmp_path)
    cells = [acted("work:0.05,exit:3", 1, "cuda"), acted("work:0.05", 2, "cuda")]
    where = slot(1, variables=player_variables(stage.log, PLAY_HEALTH="the GPU answers, it is out of memory"))
    found = [outcome.measurement.status for _, outcome in Pool([stage.scheduler(cells, where)]).run()]
    assert found == [Status.CRASHED, Status.PASS]


def products(batch_size):
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), (torch.randn(batch_size, 64),)


def convolutions(batch_size):
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3)), (torch.randn(batch_size, 3, 64, 64),)


def statuses(place, device, config):
    """Measure both models at once in a device slot."""
    cells = [Cell("user", f"{__name__}:{name}", Phase.INFERENCE, "float32", device, 2, config) for name in MODELS]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), SKIP_VARIABLE: "1"}
    preload = Preload("nowhere", ["torch._inductor.compile_fx"])
    lane = GpuScheduler(cells, Settings(rounds=5, warmups=3, sample_limit_s=5, timeout_s=100), place, environ, preload)
    found = [outcome.measurement for _, outcome in Pool([lane]).run()]
    assert len(found) == len(MODELS)
    return {item.status: item.failure for item in found}


@pytest.fixture(scope="module")
def ballast():
    """A function that leaves so many bytes of the first GPU free, and returns the GPU."""
    first = list_gpus()[0]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": first.uuid}
    command, pipe = [sys.executable, "-c", BALLAST], subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, text=True) as process:

        def leave(free_bytes):
            process.stdin.write(f"{free_bytes}\n")
            process.stdin.flush()
            assert int(process.stdout.readline()) < free_bytes + (64 << 20)
            return list_gpus()[0]

        yield leave


@pytest.mark.gpu
def test_a_full_gpu_is_not_lost(ballast):
    gpu = ballast(8 << 20)
    assert why_unhealthy({**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid}, "cuda") is None


@pytest.mark.gpu
@pytest.mark.parametrize(("free_bytes", "status"), [(8 << 20, Status.OOM), (6 << 30, Status.PASS)])
def test_a_run_beside_a_ballast_ends_with_the_right_status(free_bytes, status, ballast):
    (place,) = make_slots([ballast(free_bytes)], 2, "fork")
    assert place.memory_bytes < free_bytes + (64 << 20)
    if status is Status.OOM:
        assert probe("cuda", place)["device"] == "cuda"  # a run begins on a full GPU, too
    found = statuses(place, "cuda", Config(template="cudagraphs"))
    assert found.keys() == {status}, found
