"""Checks whether the GPU still works: a small product in a separate process with a time limit.

A GPU that has fallen off the bus (NVIDIA's Xid 79), or whose driver hangs, fails every later cell.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

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
#: The line of a traceback with the exception's name; CUDA's messages continue for several lines.
_NAMED = re.compile(r"[\w.]*(Error|Exception)\b")


def is_suspect(message: str) -> bool:
    """Whether a failure's message may come from the device and not from the program."""
    return any(sign in message for sign in _SIGNS)


def why_unhealthy(environ: Mapping[str, str], timeout_s: float = 60.0) -> str | None:
    """None if a small product on the GPU is correct in a new process, else the problem in one line."""
    command = [sys.executable, "-m", "collector.machine.health"]
    check = subprocess.Popen(
        command, env=dict(environ), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        _, text = check.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        check.kill()  # without waiting: a process that hangs in a driver does not end
        return f"it did not answer within {timeout_s:g} s"
    if check.returncode == 0:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _NAMED.match(line)]
    return (named or lines or [f"the check ended with code {check.returncode}"])[-1]


def main() -> None:
    """Entry point of `python -m collector.machine.health`: exits with 0 if the GPU computes."""
    import torch

    ones = torch.ones(256, 256, device="cuda")
    if float((ones @ ones).sum()) != 256.0**3:
        sys.exit("the GPU computes wrong results")


if __name__ == "__main__":
    main()
