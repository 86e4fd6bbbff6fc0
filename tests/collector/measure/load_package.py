"""Compile two layers with AOTInductor and load the package, with nothing of this project: whether a crash is torch's.

    python -X faulthandler tests/collector/measure/load_package.py [cuda|cpu]

It takes less than a minute and prints a line for each step. A process that dies prints its C++ and its Python stack.
"""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn


def main(device: str) -> None:
    """Do all steps in this process, which a signal ends where it hangs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(200)
    torch._C._set_print_stack_traces_on_fatal_signal(True)  # of C++, before Python's
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(device)
    given = torch.randn(8, 64, device=device)
    with TemporaryDirectory() as folder, torch.no_grad():
        package = str(Path(folder, "model.pt2"))
        torch._inductor.aoti_compile_and_package(torch.export.export(model, (given,)), package_path=package)
        print(f"compiled: torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)  # noqa: T201
        loaded = torch._inductor.aoti_load_package(package)
        print("loaded", flush=True)  # noqa: T201
        print(f"compared: differs by {(loaded(given) - model(given)).abs().max().item():.3g}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cuda")
