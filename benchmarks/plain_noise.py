"""How well latencies repeat between processes in a plain script, with torch alone: three models on an idle GPU.

    python -m benchmarks plain_noise [--processes 8] [--out FILE]

All processes compile first, each on two cores. Then they measure one after the other while the others sleep: a recorded CUDA
graph of the eager model, the model compiled with cudagraphs, and the same with an eager call before each sample. Prints the
standard deviation of the logarithm of the medians between processes, pinned to two cores and free to use all. Uses nothing of
this tool.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median, stdev
from typing import Any

_SAMPLES = 30
#: Seconds to wait for processes that are still compiling.
_PATIENCE_S = 90


def main() -> None:
    """Starts the processes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--out", type=Path, help="keep each process's medians, a JSON line each")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        _measure(asked.one, asked.processes, asked.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks", "plain_noise", "--processes", str(asked.processes)]
        started = [
            subprocess.Popen([*command, "--one", str(number), "--folder", folder], stdout=subprocess.PIPE, text=True)
            for number in range(asked.processes)
        ]
        lines = [line for process in started for line in process.communicate()[0].splitlines()]
    if asked.out:
        asked.out.write_text("".join(f"{line}\n" for line in lines))
    _print_table([json.loads(line) for line in lines])


def _print_table(rows: list[dict[str, Any]]) -> None:
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in rows:
        values[row["model"], row["cores"], row["form"]].append(row["ms"])
    print(f"{'model':<18}{'cores':<8}{'form':<24}{'ms':>8}{'noise':>9}  medians of the processes")
    for (model, cores, form), ms in sorted(values.items()):
        noise = stdev(math.log(value) for value in ms) if len(ms) > 1 else math.nan
        listed = " ".join(f"{value:.3f}" for value in ms)
        print(f"{model:<18}{cores:<8}{form:<24}{median(ms):8.3f}{noise:9.2%}  {listed}")


def _measure(number: int, processes: int, folder: Path) -> None:
    every = sorted(os.sched_getaffinity(0))
    own = {every[(2 * number + offset) % len(every)] for offset in (0, 1)}
    os.sched_setaffinity(0, own)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / f"cache{number}")
    os.environ["OMP_NUM_THREADS"] = "2"
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    prepared = {name: _forms(make) for name, make in _models().items()}
    (folder / f"ready{number}").touch()
    deadline = time.monotonic() + _PATIENCE_S
    while len(list(folder.glob("ready*"))) < processes and time.monotonic() < deadline:
        time.sleep(0.2)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for cores, affinity in (("two", own), ("all", set(every))):
            os.sched_setaffinity(0, affinity)
            for name, forms in prepared.items():
                for form, (before, call) in forms.items():
                    row = {"process": number, "model": name, "cores": cores, "form": form}
                    print(json.dumps(row | {"ms": _latency_ms(before, call)}), flush=True)


def _latency_ms(before: Callable[[], Any], call: Callable[[], Any]) -> float:
    import torch

    samples = []
    for _ in range(_SAMPLES + 5):
        before()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append(1e3 * (time.perf_counter() - start))
    return median(samples[5:])


def _models() -> dict[str, Callable[[], tuple[Any, Any]]]:
    import timm
    import torch
    import torchvision
    from transformers import BertConfig, BertForMaskedLM

    def images(batch: int) -> torch.Tensor:
        return torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)

    return {
        "resnet50": lambda: (torchvision.models.resnet50(), images(64)),
        "deit_tiny": lambda: (timm.create_model("deit_tiny_patch16_224", pretrained=False), images(64)),
        "BertForMaskedLM": lambda: (
            BertForMaskedLM(BertConfig()),
            torch.randint(0, 30_000, (16, 512), device="cuda"),
        ),
    }


def _forms(make: Callable[[], tuple[Any, Any]]) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """By form, what comes before each sample and what is timed."""
    import torch

    torch.manual_seed(0)
    model, inputs = make()
    model = model.to("cuda", torch.bfloat16).eval()

    def eager() -> Any:
        with torch.no_grad():
            return model(inputs)

    for _ in range(3):
        eager()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.no_grad(), torch.cuda.graph(graph):
        model(inputs)
    optimized = torch.compile(model, options={"triton.cudagraphs": True})

    def compiled() -> Any:
        with torch.no_grad():
            return optimized(inputs)

    for _ in range(5):
        compiled()
    torch.cuda.synchronize()
    nothing: Callable[[], Any] = lambda: None  # noqa: E731
    return {
        "recorded graph": (nothing, graph.replay),
        "compiled": (nothing, compiled),
        "compiled after eager": (eager, compiled),
        "eager": (nothing, eager),
    }


if __name__ == "__main__":
    main()
