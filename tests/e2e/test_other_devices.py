"""A night on an accelerator that is none of torch's: a CPU under another name, of which torch tells nothing more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collector.bundle import read_bundle
from collector.machine.toolchain import SKIP_VARIABLE
from tests.command_line import ROOT, tell

#: Python runs it in every process of the night, before the program.
DEVICE = """
import collector.device
collector.device.DEVICES["imagined"] = "imagined_device:ImaginedDevice"
"""
ANSWERS = """
from collector.accelerator_device import AcceleratorDevice

class ImaginedDevice(AcceleratorDevice):
    name, torch_name = "imagined", "cpu"

    def is_here(self):
        return True

    def synchronize(self):
        pass
"""
MODEL = """
import torch
from torch import nn

def small():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), (torch.randn(8, 64),)
"""
NIGHT = ["--model", "own:small", "--config", "triton", "--device", "imagined", "--dtype", "float32", "--samples", "5"]


@pytest.fixture
def call(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(DEVICE)
    (tmp_path / "imagined_device.py").write_text(ANSWERS)
    (tmp_path / "own.py").write_text(MODEL)
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "COLUMNS": "200", SKIP_VARIABLE: "1"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jobs.cli", *words]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    return run


@pytest.mark.slow
def test_nights_on_an_unknown_accelerator_are_measured_and_compared(call, tmp_path):
    for _ in range(2):
        done = call("nightly", *NIGHT, "--phase", "training", "--branch", "main", "--replicates", "1")
        assert done.returncode == 0, tell(done)
    cells = [cell for path in sorted(Path(tmp_path, "runs").glob("*.gz")) for cell in read_bundle(path).measurements]
    assert {(cell.cell.device, cell.status.value) for cell in cells} == {("imagined", "pass")}
    for cell in cells:
        assert {"eager_ms", "compiled_ms", "compile_cold_s", "kernels_generated"} <= cell.metrics.keys()
        # Nobody told: absent, with the reason, and nothing is 0.
        absent = {
            "eager_peak_bytes",
            "eager_kernel_ms",
            "yardstick_gpu_ms",
            "leak_bytes_per_call",
            "roof_share",
            "host_overhead_us",
        }
        assert not absent & cell.metrics.keys()
        reasons = {"no_device_time", "no_peak_bytes", "no_peak_lines", "no_yardstick", "no_idle_probe", "no_host_parts"}
        assert reasons <= cell.details.keys()
    done = call("compare", "latest~1", "latest", "--json")
    assert done.returncode == 0, tell(done)
    assert "imagined" in json.dumps(json.loads(done.stdout))
