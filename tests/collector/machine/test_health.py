"""Whether a failure may be the device's, what is said of one that does not answer, and what a full GPU does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from unittest.mock import MagicMock

import pytest
import torch
from torch import nn

from collector.machine import health
from collector.machine.health import LITTLE_MEMORY, is_suspect, why_unhealthy
from collector.process.launcher import Preload
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.pool.device_slots import list_gpus, make_slots
from jobs.pool.runner import Pool
from jobs.pool.testbeds import probe
from tests.collector.processes import ROOT, dead, pooled, wait_until
from tests.jobs.acting import Stage, acted, player_variables, slot

#: As torch 2.x, Triton and cuDNN print them.
OF_THE_DEVICE = [
    "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported at some other API call",
    "CUDA unknown error - this may be due to an incorrectly set up environment",
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices()",
    "No CUDA GPUs are available",
    "Can't initialize NVML",
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
    "backend='inductor' raised:\nRuntimeError: Triton Error [CUDA]: unspecified launch failure",
    "no CUDA-capable device is detected",
]
OF_THE_PROGRAM = [
    "",
    "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "out of resource: shared memory, Required: 294912, Hardware limit: 232448",
]


def test_what_cuda_and_its_driver_say_is_suspect_what_a_model_says_not():
    assert [message for message in (*OF_THE_DEVICE, *OF_THE_PROGRAM) if is_suspect(message)] == OF_THE_DEVICE


def checked(folder, code, timeout_s=60.0, **environ):
    """The reason when the check's process runs this code before anything else."""
    (folder / "sitecustomize.py").write_text(code)
    return why_unhealthy({**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", **environ}, "cuda", timeout_s)


_TRACEBACK = """Traceback (most recent call last):
  File "collector/machine/health.py", line 1, in main
torch.AcceleratorError: CUDA error: unspecified launch failure
Search for `cudaErrorLaunchFailure' in https://docs.nvidia.com/cuda/ for more information.
CUDA kernel errors might be asynchronously reported at some other API call.

"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"os.write(2, {_TRACEBACK.encode()!r}); os._exit(1)", _TRACEBACK.splitlines()[2]),
        ("os.kill(os.getpid(), 11)", "the check ended with code -11"),
        ("os.write(2, b'\\xff bad bytes'); os._exit(1)", "\ufffd bad bytes"),
        ("os.write(2, b'a warning'); os._exit(0)", None),
        ("os.write(2, os.environ['CUDA_VISIBLE_DEVICES'].encode()); os._exit(1)", "GPU-1234"),
        ("os.write(2, b'torch.AcceleratorError: CUDA error: out of memory'); os._exit(1)", None),
    ],
)
def test_the_reason_is_the_error_in_one_line(tmp_path, code, reason):
    assert checked(tmp_path, f"import os; {code}", CUDA_VISIBLE_DEVICES="GPU-1234") == reason


def test_a_device_that_hangs_is_given_up_in_time(tmp_path):
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    began = time.monotonic()
    assert checked(tmp_path, code, 1.0) == "it did not answer within 1 s"
    assert time.monotonic() - began < 60  # and not the 600 s that it sleeps
    wait_until(lambda: dead(int((tmp_path / "pid").read_text())))


@pytest.mark.parametrize(
    ("total", "free_bytes", "ends_with"),
    [
        (256.0**3, 0, None),
        (256.0**3 + 1, 1 << 40, "wrong results"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED"), LITTLE_MEMORY - 1, "out of memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED"), LITTLE_MEMORY, RuntimeError),
        (RuntimeError("CUDA error: unspecified launch failure"), 1 << 40, RuntimeError),
    ],
)
def test_a_product_that_fails_is_the_gpus_fault_unless_it_is_full(total, free_bytes, ends_with, monkeypatch):
    ones = MagicMock()  # stands for a tensor on a GPU: its product raises, or has a sum
    ones.__matmul__.side_effect = total if isinstance(total, Exception) else None
    ones.__matmul__.return_value.sum.return_value = total
    monkeypatch.setattr(torch, "ones", lambda *_, **__: ones)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_bytes, 1 << 40))
    if ends_with is None:
        assert health.main("cuda") is None
        return
    kind, words = (ends_with, "CUDA error") if ends_with is RuntimeError else (SystemExit, ends_with)
    with pytest.raises(kind, match=words):
        health.main("cuda")


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
    settings = Settings(rounds=5, warmups=3, sample_limit_s=5, timeout_s=100)
    preload = Preload("nowhere", ["torch._inductor.compile_fx"])
    found = [outcome.measurement for outcome in pooled(cells, settings, place, preload)]
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
