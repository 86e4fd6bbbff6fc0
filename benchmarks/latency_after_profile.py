"""Latencies of a model before and after a profile in the same process, since a profile makes later calls slower.

    python -m benchmarks latency_after_profile SUITE/MODEL... [--device cpu]

A model is compiled in a process of its own, while the other processes compile theirs. Then they measure in turn: before any
profile, after a profile of one small operator, and after a profile of both forms, each twice.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from collector.measure import timing
from collector.settings import BackendFlags
from collector.vocabulary import Cell, Config, Phase

_SAMPLES = 30


def latencies(calls: Sequence[Callable[[], Any]], device: str) -> list[float]:
    """Return the median latencies of these calls in milliseconds, taken twice in turn."""
    found = []
    for _ in range(2):
        timing.settle(*calls, device)
        found += [round(median(taken.ms), 3) for taken in timing.interleaved(calls, device, _SAMPLES, 60.0)]
    return found


def measured(name: str, device: str, lock: Path) -> dict[str, list[float]]:
    """Compile a model, wait for the lock, and return its latencies: eager, compiled, and both once more, for each moment."""
    import torch

    from collector.measure.program import Subject, seed_everything
    from collector.templates import resolve_config
    from collector.zoo.registry import find

    BackendFlags().apply()
    suite, _, model = name.partition("/")
    spec, dtype = find(suite, model), "float32" if device == "cpu" else "bfloat16"
    batch = spec.batch_size(Phase.INFERENCE, device)
    cell = Cell(suite, model, Phase.INFERENCE, dtype, device, batch, Config(template="triton"))
    seed_everything()
    subject = Subject(cell, spec.build(batch, Phase.INFERENCE, device))
    calls = subject.eager, subject.compiled(resolve_config(cell.config, device))
    for call in calls * 5:
        call()
    gc.collect()
    gc.disable()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = {"before": latencies(calls, device)}
        timing.record(lambda: torch.zeros(1, device=device), 1, device)
        found["after a small profile"] = latencies(calls, device)
        for call in calls * 2:
            timing.record(call, 3, device)
        found["after a whole one"] = latencies(calls, device)
    return found


def main() -> None:
    """Measure each model in a process of its own and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="SUITE/MODEL")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.lock:
        print(json.dumps(measured(options.models[0], options.device, options.lock)))
        return
    with tempfile.TemporaryDirectory() as folder:
        how = ["--device", options.device, "--lock", str(Path(folder, "lock"))]
        command = [sys.executable, "-m", "benchmarks", "latency_after_profile", *how]
        started = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in options.models]
        outputs = [process.communicate()[0] for process in started]
    print("| model | | eager ms | compiled ms | eager again | compiled again |\n|---|---|---|---|---|---|")
    for name, output in zip(options.models, outputs, strict=True):
        for moment, found in json.loads(output.splitlines()[-1]).items():
            print(f"| {name} | {moment} | {' | '.join(map(str, found))} |")


if __name__ == "__main__":
    main()
