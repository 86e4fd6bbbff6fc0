"""What Inductor's counter of kernels counts: beside it the functions that it generated, and the calls of them, on a CPU.

python scripts/count_kernels.py      in the environment of any torch; docs/history.md has what two of them print
"""

from __future__ import annotations

import re

import torch
from torch import nn
from torch._inductor import metrics
from torch._inductor.utils import run_and_get_code

_MODELS = {"LayerNorm": nn.LayerNorm(64), "GELU": nn.GELU(), "Linear": nn.Linear(64, 64)}


def main() -> None:
    """Prints a line a model."""
    for name, model in _MODELS.items():
        torch._dynamo.reset()
        metrics.reset()
        with torch.no_grad():
            _, codes = run_and_get_code(torch.compile(model), torch.randn(8, 64))
        functions, calls = count("\n".join(codes))
        print(
            f"torch {torch.__version__}, {name}: counter {metrics.generated_kernel_count}, {functions} functions, {calls} calls"
        )


def count(code: str) -> tuple[int, int]:
    """C++ functions that a generated program defines, and calls of them in it."""
    return len(re.findall(r"async_compile\.cpp", code)), len(re.findall(r"^\s+(?:\w+\.)?cpp_fused\w*\(", code, re.M))


if __name__ == "__main__":
    main()
