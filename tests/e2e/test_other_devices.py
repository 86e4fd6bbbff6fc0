"""A night on an accelerator that is none of torch's: a CPU under another name, of which torch tells nothing more."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from collector.bundle import read_bundle
from collector.machine.toolchain import SKIP_VARIABLE
from tests.command_line import ROOT, tell

#: Python runs it in every process of the night, before the program.
DEVICE = 'import collector.device; collector.device.DEVICES["imagined"] = "imagined_device:ImaginedDevice"'
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


@pytest.mark.slow
def test_nights_on_an_unknown_accelerator_are_measured_and_compared(tmp_path):
    for name, text in (("sitecustomize", DEVICE), ("imagined_device", ANSWERS), ("own", MODEL)):
        (tmp_path / f"{name}.py").write_text(text)

    environ = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "COLUMNS": "200", SKIP_VARIABLE: "1"}

    def watch(*words):
        command = [sys.executable, "-m", "jobs.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, tell(done)
        return done.stdout

    for _ in range(2):
        watch("nightly", *NIGHT, "--phase", "training", "--branch", "main", "--replicates", "1")
    cells = [cell for path in (tmp_path / "runs").glob("*.gz") for cell in read_bundle(path).measurements]
    assert {(cell.cell.device, cell.status.value) for cell in cells} == {("imagined", "pass")}
    for cell in cells:
        assert {"eager_ms", "compiled_ms", "compile_cold_s", "kernels_generated"} <= cell.metrics.keys()
        # Nobody told: absent, with the reason, and nothing is 0.
        absent = {"eager_peak_bytes", "eager_kernel_ms", "yardstick_gpu_ms", "leak_bytes_per_call"}
        absent |= {"roof_share", "host_overhead_us"}
        assert not absent & cell.metrics.keys()
        reasons = {"no_device_time", "no_peak_bytes", "no_peak_lines", "no_yardstick", "no_idle_probe", "no_host_parts"}
        assert reasons <= cell.details.keys()
    compared = json.loads(watch("compare", "latest~1", "latest", "--json"))["cells"]
    assert [cell["device"] for cell in compared] == ["imagined"]
