"""The check that a GPU still works: a small product in a separate process with a time limit.

A GPU that has fallen off the bus (NVIDIA's Xid 79), or whose driver hangs, fails every later cell. A GPU without free memory
reports this error, so that it counts as working.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

from collector.failures import lacks_memory

#: The free device memory in bytes below which a failing library is assumed to lack memory: on an H100 cuBLAS alone takes 32 MiB
#: of workspace, and its handle and kernels about as much.
LITTLE_MEMORY = 256 << 20
#: Parts of error messages of CUDA's runtime, its driver and NVML. A wrong output or a missing operator has none of them.
_SIGNS = (
    "CUDA error",
    "CUDA driver",
    "CUDA unknown",
    "Triton Error [CUDA]",
    "cuDNN error",
    "cudaGet",
    "NVML",
    "No CUDA GPUs",
    "no CUDA-capable device",
    "no NVIDIA driver",
    "not compiled with CUDA",
)
#: The beginning of a traceback's line with the exception's name; CUDA's messages continue for several lines.
_NAMED = re.compile(r"[\w.]*(Error|Exception)\b")


def is_suspect(message: str) -> bool:
    """Return whether a failure's message may come from a broken device, and not from the program or full memory."""
    return any(sign in message for sign in _SIGNS) and not lacks_memory(message)


def why_unhealthy(environ: Mapping[str, str], device: str, timeout_s: float = 60.0) -> str | None:
    """Return the device's problem in one line, or None if a small product on the device is correct in a new process.

    Return None also if that process finds no memory: other processes hold the memory, and the driver has answered.
    """
    command = [sys.executable, "-m", "collector.machine.health", device]
    check = subprocess.Popen(
        command, env=dict(environ), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        _, text = check.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        check.kill()  # without waiting: a process that hangs in a driver does not end
        return f"it did not answer within {timeout_s:g} s"
    if check.returncode == 0 or lacks_memory(text):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _NAMED.match(line)]
    return (named or lines or [f"the check ended with code {check.returncode}"])[-1]


def main(name: str) -> None:
    """Run as `python -m collector.machine.health NAME`: exit with 0 if this device computes a small product correctly."""
    import torch

    from collector.device import device_named

    device = device_named(name)

    try:
        ones = torch.ones(256, 256, device=device.torch_name)
        total = float((ones @ ones).sum())
    except RuntimeError:
        # cuBLAS says "not initialized" where it finds no room for its workspace.
        if device.is_full():
            sys.exit("the GPU answers, it is out of memory")
        raise
    if total != 256.0**3:
        sys.exit("the GPU computes wrong results")


if __name__ == "__main__":
    main(sys.argv[1])
