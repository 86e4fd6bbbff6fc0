"""Whether it matters which core calls a model: the latency of one process's launches, core by core, sweep by sweep.

python scripts/core_speed.py [MODEL] [--sweeps 3] [--busy]      on a GPU; docs/metrics.md reads what it prints

Two processes of the same code can differ by half in a latency that waits for launches. The script moves one process from core
to core and times the same eager and cudagraph calls on each; with --busy every core of the other half of the machine works
meanwhile, as a second GPU's workers do. Prints what part of the variance of ln(latency) the core explains, and time; then
how much trials differ that are made from a core drawn at random, and from the quietest (collector/quiet_cores.py), in turn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median, stdev

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# Before torch is imported: its pools then have one thread, as a worker of a pool has.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collector.clock import Call, garbage_collection_off, timed_s
from collector.program import Subject, seed_everything
from collector.quiet_cores import Cores
from collector.spelling import parse_config
from collector.templates import resolve_config
from collector.vocabulary import Cell, Phase
from collector.zoo.registry import find

_BURN = "x = 1\nwhile True: x = x * 1103515245 % 4294967291"


def main() -> None:
    """Prints a row a form: medians by core, and how the variance divides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="timm/deit_tiny_patch16_224.fb_in1k")
    parser.add_argument("--sweeps", type=int, default=3)
    parser.add_argument("--calls", type=int, default=15)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    ours, others = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    calls = _calls(options.model)
    burning = [_burn(core) for core in others] if options.busy else []
    try:
        with garbage_collection_off():
            found = _sweep(calls, ours, options.sweeps, options.calls)
            trials = _trials(calls, ours, options.trials, options.calls)
    finally:
        for process in burning:
            process.kill()
    print(f"{options.model}, {len(ours)} cores, {options.sweeps} sweeps, others {'busy' if options.busy else 'idle'}")
    for name, table in found.items():
        _report(name, table)
    for (name, way), values in trials.items():
        spread = 100 * stdev(map(math.log, values))
        print(f"{name}, {way}: {len(values)} trials, median {median(values):.3f} ms, sd of ln {spread:.2f} %")
        print(json.dumps([round(value, 3) for value in values]), flush=True)


def _calls(model: str) -> dict[str, Call]:
    spec = find(*model.split("/", 1))
    batch = spec.batch_size(Phase.INFERENCE, "cuda")
    cell = Cell(spec.suite, spec.name, Phase.INFERENCE, "bfloat16", "cuda", batch, parse_config("cudagraphs"))
    seed_everything()
    subject = Subject(cell, spec.build(batch, Phase.INFERENCE, "cuda"))
    calls = {"eager": subject.eager, "cudagraphs": subject.compiled(resolve_config(cell.config, "cuda"))}
    for call in calls.values():
        for _ in range(8):
            timed_s(call, "cuda")
    return calls


def _burn(core: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", _BURN])
    os.sched_setaffinity(process.pid, {core})
    return process


def _sweep(calls: dict[str, Call], cores: list[int], sweeps: int, times: int) -> dict[str, list[list[float]]]:
    """Median milliseconds, by form, sweep and core."""
    found: dict[str, list[list[float]]] = {name: [[] for _ in range(sweeps)] for name in calls}
    for sweep in range(sweeps):
        for core in cores:
            os.sched_setaffinity(0, {core})
            for name, call in calls.items():
                timed_s(call, "cuda")
                found[name][sweep].append(1e3 * median(timed_s(call, "cuda") for _ in range(times)))
    return found


def _trials(calls: dict[str, Call], cores: list[int], trials: int, times: int) -> dict[tuple[str, str], list[float]]:
    """Medians in milliseconds of trials half a second apart, by form and by the way that the core is chosen."""
    drawn = random.Random(0)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(trials):
        for way in ("random core", "quietest core"):
            chosen = Cores(cores, 1)
            if way == "random core":
                os.sched_setaffinity(0, {drawn.choice(cores)})
            else:
                chosen.settle()
            samples: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(times):
                if chosen.chosen:
                    chosen.look()
                for name, call in calls.items():
                    samples[name].append(1e3 * timed_s(call, "cuda"))
            for name, values in samples.items():
                found[name, way].append(median(values))
        time.sleep(0.5)
    return found


def _report(name: str, table: list[list[float]]) -> None:
    logs = [[math.log(value) for value in row] for row in table]
    whole = fmean(value for row in logs for value in row)
    by_core = [fmean(column) for column in zip(*logs, strict=True)]
    by_sweep = [fmean(row) for row in logs]
    total = fmean((value - whole) ** 2 for row in logs for value in row)
    parts = {"core": fmean((v - whole) ** 2 for v in by_core), "sweep": fmean((v - whole) ** 2 for v in by_sweep)}
    said = ", ".join(f"{part} {100 * value / total:.0f} %" for part, value in parts.items())
    print(
        f"{name}: geometric mean {math.exp(whole):.3f} ms, sd of ln {100 * math.sqrt(total):.2f} %, of the variance {said}"
    )
    print(json.dumps([[round(value, 3) for value in row] for row in table]), flush=True)


if __name__ == "__main__":
    main()
