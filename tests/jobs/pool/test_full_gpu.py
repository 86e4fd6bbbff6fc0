"""A GPU whose memory other processes hold: what does not fit is `oom`, and nobody takes the GPU for lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from collector.bundle import read_bundle
from collector.machine.health import why_unhealthy
from collector.vocabulary import Status
from jobs.pool.device_pool import Pool
from tests.jobs.acting import Stage, acted, player_variables, slot

#: Holds all but so many bytes of the first GPU, says so, and waits for its input to close.
BALLAST = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = [torch.empty(max(0, free - int(sys.argv[1])), dtype=torch.uint8, device="cuda")]
print("held", flush=True)
sys.stdin.read()
"""

#: As torch, CUDA and cuBLAS say it.
OUT_OF_MEMORY = (
    "torch.AcceleratorError: CUDA error: out of memory",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.18 GiB",
    "the GPU answers, it is out of memory",
)


@pytest.mark.parametrize("said", OUT_OF_MEMORY)
def test_a_check_that_finds_no_memory_ends_no_run(said, tmp_path):
    stage = Stage(tmp_path)
    cells = [acted("work:0.05,exit:3", 1, "cuda"), acted("work:0.05", 2, "cuda")]
    where = slot(1, variables=player_variables(stage.log, PLAY_HEALTH=said))
    found = [outcome.measurement.status for _, outcome in Pool([stage.scheduler(cells, where)]).run()]
    assert found == [Status.CRASHED, Status.PASS]


@pytest.fixture
def ballast():
    """Starts processes that leave so many bytes of the GPU free."""
    started = []

    def leave(free_bytes):
        process = subprocess.Popen(
            [sys.executable, "-c", BALLAST, str(free_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"

    yield leave
    for process in started:
        process.stdin.close()
        process.wait(30)


@pytest.mark.gpu
def test_a_full_gpu_is_not_lost(ballast):
    ballast(8 << 20)
    assert why_unhealthy(os.environ) is None


@pytest.mark.gpu
@pytest.mark.parametrize(("free_bytes", "statuses"), [(8 << 20, {Status.OOM}), (6 << 30, {Status.PASS})])
def test_a_run_beside_a_ballast_ends_with_the_right_status(free_bytes, statuses, ballast, tmp_path):
    ballast(free_bytes)
    command = ["run", "--model", "resnet18", "--model", "mnasnet1_0", "--batch-size", "2", "--config", "cudagraphs"]
    subprocess.run(
        [sys.executable, "-m", "jobs.cli", *command, "--samples", "5", "--no-store", "--out", str(tmp_path)], check=True
    )
    (bundle,) = tmp_path.glob("*.gz")
    assert {item.status for item in read_bundle(bundle).measurements} == statuses
