"""What this machine is, asked of a short process: this one never touches the GPU, so that its children can."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

from collector.errors import ExpectedError
from collector.machine.cores import spell_cores
from collector.machine.toolchain import SKIP_VARIABLE
from jobs.pool.gpu_scheduler import DeviceSlot


class HostError(ExpectedError):
    """torch cannot be used here; the text says why and what to do."""


def probe(device: str | None, slot: DeviceSlot | None = None) -> dict[str, Any]:
    """The environment's fingerprint as a cell in a slot sees it; without a device the GPU if there is one, else the CPU.

    Raises:
        HostError: torch is not installed, or the device asked for is not there.
    """
    command = [sys.executable, "-m", "collector.machine.environment", *([device] if device else [])]
    environ = os.environ | ({**slot.variables, **spell_cores(slot.cores[0])} if slot else {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode != 0:
        raise HostError(_reason(done.stderr, device))
    environment: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return environment


@cache
def cell_variables(start: str) -> dict[str, str]:
    """Environment variables for the cells of a run on this machine; forked cells get them from their server.

    They matter on a GPU as well: a graph with one scalar on the CPU has a C++ kernel.
    """
    if start == "fork" or SKIP_VARIABLE in os.environ:
        return {}
    done = subprocess.run([sys.executable, "-m", "collector.machine.toolchain"], capture_output=True, check=False)
    return {SKIP_VARIABLE: "1"} if done.returncode == 0 else {}


def _reason(stderr: str, device: str | None) -> str:
    last = stderr.strip().splitlines()[-1] if stderr.strip() else "no output"
    if "No module named 'torch'" in last:
        return "torch is not installed in this environment: run `make setup`, or pip install torch"
    if device == "cuda":
        return f"no usable GPU here ({last}): use --device cpu, or see `inductor-watch doctor`"
    return f"torch does not start here: {last}"
