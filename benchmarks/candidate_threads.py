"""Compile candidates of a matrix product in one thread and in several, without a GPU.

    taskset -c 0,1 python -m benchmarks candidate_threads [--threads 2 --threads 4]

The candidates are Triton kernels as autotuning compiles them, for an H100. Each round compiles all candidates with each
number of threads, each time into an empty cache. Needs Triton, which a torch for CUDA installs, and no torch.
"""

from __future__ import annotations

import importlib
import itertools
import os
import runpy
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

#: Sizes of a block in three directions, stages and warps of each candidate.
_CANDIDATES = [
    (*block, *shape)
    for block in itertools.product((32, 64, 128), (32, 64, 128), (32, 64))
    for shape in ((3, 4), (4, 8))
]
_SOURCE = """
import triton
import triton.language as tl


@triton.jit
def product(one, two, made, M, N, K, one_m, one_k, two_k, two_n, made_m, made_n,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    place = tl.program_id(0)
    across = tl.cdiv(N, BN)
    m = place // across * BM + tl.arange(0, BM)
    n = place % across * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left, right = one + m[:, None] * one_m + k[None, :] * one_k, two + k[:, None] * two_k + n[None, :] * two_n
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inside = k < K - start
        total += tl.dot(tl.load(left, mask=inside[None, :], other=0.0), tl.load(right, mask=inside[:, None], other=0.0))
        left += BK * one_k
        right += BK * two_k
    tl.store(made + m[:, None] * made_m + n[None, :] * made_n, total.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))
"""


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--threads", "numbers", default=(2,), show_default=True, multiple=True, type=click.IntRange(2))
def main(rounds: int, numbers: tuple[int, ...]) -> None:
    """Compile candidates in one thread and in several."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        path = Path(folder, "kernels.py")  # Triton reads a kernel's source from its file
        path.write_text(_SOURCE, encoding="utf-8")
        product = runpy.run_path(str(path))["product"]
        triton = importlib.import_module("triton")
        compiler = importlib.import_module("triton.compiler")
        target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
        signature = dict.fromkeys(("one", "two", "made"), "*bf16")
        signature |= dict.fromkeys(["M", "N", "K", "one_m", "one_k", "two_k", "two_n", "made_m", "made_n"], "i32")
        signature |= dict.fromkeys(("BM", "BN", "BK"), "constexpr")

        def compiled(candidate: tuple[int, ...]) -> None:
            source = compiler.ASTSource(product, signature, dict(zip(("BM", "BN", "BK"), candidate, strict=False)))
            options = {"num_stages": candidate[3], "num_warps": candidate[4]}
            triton.compile(source, target=target, options=options)

        compiled((16, 16, 16, 2, 4))  # a first compilation, which imports the compiler's modules
        for number in range(rounds):
            took = {}
            for threads in (1, *numbers):
                os.environ["TRITON_CACHE_DIR"] = str(Path(folder, f"{number} {threads}"))
                began = time.monotonic()
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(compiled, _CANDIDATES))
                took[threads] = time.monotonic() - began
            others = ", ".join(f"{number} {took[number]:.1f} s ({took[1] / took[number]:.2f})" for number in numbers)
            print(f"{len(_CANDIDATES)} candidates: one thread {took[1]:.1f} s; threads, seconds (ratio): {others}")


if __name__ == "__main__":
    main()
