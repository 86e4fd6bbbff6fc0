"""Look for candidates that Inductor's processes have compiled, without a GPU.

    python -m benchmarks found_candidates [--tritons-assembler]

Prints the seconds in which the processes compile a product's candidates, and those in which the process that would time them
gets them from Triton, with the number of kernels that it compiled again. With `--tritons-assembler` that process takes Triton's
assembler, as torch does by itself. Nothing is timed: an H100 is imitated as in a census. Needs a torch for CUDA, and not Python
3.11.0 to 3.11.8, with which torch compiles no candidates beforehand.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

#: Rows of the first matrix, columns of the first and of the second one.
_SIZES = (512, 1024, 768)


class _EnoughError(Exception):
    """An error that ends the compilation once the candidates were looked for."""


@click.command()
@click.option("--tritons-assembler", is_flag=True, help="Leave the assembler of the process that times as it is.")
def main(tritons_assembler: bool) -> None:
    """Compile candidates, and look for them."""
    with TemporaryDirectory() as folder:
        caches = {f"{name}_CACHE_DIR": str(Path(folder, name)) for name in ("TORCHINDUCTOR", "TRITON")}
        os.environ |= caches | {"TORCHINDUCTOR_WORKER_START": "fork"}
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(own)})  # as a cell of one core
        _look(Path(folder, "candidates"), sorted(own), tritons_assembler)


def _look(candidates: Path, cores: Sequence[int], tritons_assembler: bool) -> None:
    # Imported here, under the variables and on the core of a cell, and what asks torch for the GPU after the imitation.
    from collector.census.absent_gpu import pretend
    from collector.census.gpu_models import find_gpu, replace_private

    pretend(find_gpu("H100"))
    import torch
    from torch._inductor import config

    from collector.census.generating import fake_mode
    from collector.measure import candidates as compiling
    from collector.measure.tuning import recorded, watch

    replace_private("torch._inductor.runtime.triton_helpers:set_driver_to_gpu", lambda: None)
    if not tritons_assembler:
        compiling.use_one_assembler()
    compiling.compile_in_processes(cores)
    compiling.compile_candidates_beside(compiling.MainThread())
    watch()
    began = time.monotonic()

    def benchmark_choices(_: Any, choices: Sequence[Any], *__: Any, **___: Any) -> None:
        took_s, made, start = time.monotonic() - began, _kernels(candidates), time.monotonic()
        for choice in choices:
            with suppress(RuntimeError):  # there is no GPU to load the kernel on
                choice.bmreq.precompile()
        again = _kernels(candidates) - made
        print(f"{made} candidates compiled in {took_s:.1f} s, by {config.compile_threads} processes")
        print(f"looked for in {time.monotonic() - start:.1f} s; {again} of them were compiled again")
        raise _EnoughError

    replace_private(
        "torch._inductor.select_algorithm:AlgorithmSelectorCache.benchmark_choices", classmethod(benchmark_choices)
    )
    rows, inner, columns = _SIZES
    options = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
    with fake_mode(), torch.no_grad(), recorded(candidates):
        one, other = (
            torch.empty(size, device="cuda", dtype=torch.bfloat16) for size in ((rows, inner), (inner, columns))
        )
        try:
            torch.compile(torch.mm, options=options)(one, other)
        except Exception as error:
            if "_EnoughError" not in str(error):
                raise


def _kernels(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.cubin"))


if __name__ == "__main__":
    main()
