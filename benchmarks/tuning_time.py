"""Where max-autotune's compile time goes, in a plain script: BertForMaskedLM on a GPU, without this tool.

python -m benchmarks tuning_time

Prints the seconds of the first call, those inside of Inductor's timing functions, and Inductor's own tables of candidates. It
uses an empty cache. With `taskset --cpu-list 0-1` before it, it shows what two cores do.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

_TIMERS = (
    ("torch._inductor.runtime.benchmarking", "benchmark_gpu"),
    ("torch._inductor.runtime.triton_heuristics", "benchmark_all_configs"),
)
_seconds: defaultdict[str, list[float]] = defaultdict(list)


def _timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            _seconds[name].append(time.perf_counter() - began)

    return timed


def main() -> None:
    """Compiles once and prints the times."""
    if not torch.cuda.is_available():
        sys.exit("tuning_time needs a GPU: Inductor tunes nothing of this kind on a CPU")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        _compile()


def _compile() -> None:
    from transformers import BertConfig, BertForMaskedLM

    for module_name, name in _TIMERS:
        module = importlib.import_module(module_name)
        for _, owner in inspect.getmembers(module, inspect.isclass):
            if owner.__module__ == module_name and name in vars(owner):
                setattr(owner, name, _timed(f"{owner.__name__}.{name}", getattr(owner, name)))
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig()).to("cuda", torch.bfloat16).eval()
    tokens = torch.randint(0, 30_000, (16, 512), device="cuda")
    with torch.no_grad():
        model(tokens)
        torch.cuda.synchronize()
        began = time.perf_counter()
        torch.compile(model, mode="max-autotune-no-cudagraphs")(tokens)
        torch.cuda.synchronize()
        took = time.perf_counter() - began
    print(f"first call {took:.1f} s on {len(os.sched_getaffinity(0))} cores")
    for name, seconds in _seconds.items():
        print(
            f"{name}: {len(seconds)} calls, {sum(seconds):.1f} s, median {median(seconds):.3f} s, max {max(seconds):.2f} s"
        )


if __name__ == "__main__":
    main()
