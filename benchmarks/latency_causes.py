"""Which settings of a measuring process change the wall-clock latencies that it measures.

    python -m benchmarks.latency_causes --processes 8 --out causes.jsonl
    python -m benchmarks.latency_causes --table causes.jsonl

Each process builds the models, compiles them without cudagraphs, does what its suspect says, and times eager and compiled
calls. One suspect is on in each process, or none, or all. The processes are drawn in random order. Several prepare at
once; then one after the other measures, while the rest sleeps and the GPU is idle. Except for the suspect `fresh` they are
forked from a process that has imported everything and has never touched the GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

#: What may be on in a process, and what that means.
SUSPECTS = {
    "cublas": "CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment",
    "profiler": "a profiler pass before the timing",
    "deterministic": "a call under deterministic algorithms before the timing",
    "freeze": "gc.freeze() after the imports",
    "fresh": "a new interpreter instead of a forked process",
    "pinned": "kept to two cores",
    "quietest": "driven from the quietest core (needs collector/quiet_cores.py)",
    "collector_on": "Python's garbage collector runs during the timing",
    "alternated": "eager and compiled swap their order in each round",
    "flags": "the runner's flags: reduction in math attention, TF32 for matrix products",
    "waiting": "a pause of 100 ms before each round, as behind other cells",
}
_ALL = set(SUSPECTS) - {"fresh", "quietest"}
_ROUNDS = 30
_MODELS = ["timm/deit_tiny_patch16_224.fb_in1k", "huggingface/OPTForCausalLM", "huggingface/BertForMaskedLM"]


def import_all(models: list[str]) -> None:
    """Imports what the models and the compiler need. Computes nothing: a forked process could not use the GPU then."""
    import importlib

    import torch._inductor.compile_fx  # noqa: F401

    from collector.zoo.registry import find

    for name in models:
        suite, _, model = name.partition("/")
        spec = find(suite, model)
        for library in (*spec.needs, spec.builder.partition(":")[0]):
            importlib.import_module(library)
        if architecture := spec.params.get("architecture"):
            getattr(importlib.import_module("transformers"), architecture)


def prepare(models: list[str], suspects: set[str], device: str) -> dict[str, tuple[Any, Any]]:
    """The eager and the compiled call of each model, with what the suspects ask for done."""
    if "cublas" in suspects:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    from collector.program import Subject, seed_everything
    from collector.templates import resolve_config
    from collector.vocabulary import Cell, Config, Phase
    from collector.zoo.registry import find

    if "freeze" in suspects:
        gc.collect()
        gc.freeze()
    if "flags" in suspects:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
        torch.backends.cuda.matmul.allow_tf32 = True
    calls = {}
    for name in models:
        suite, _, model = name.partition("/")
        spec = find(suite, model)
        dtype = "bfloat16" if device == "cuda" else "float32"
        batch = spec.batch_size(Phase.INFERENCE, device)
        cell = Cell(suite, model, Phase.INFERENCE, dtype, device, batch, Config())
        seed_everything()
        subject = Subject(cell, spec.build(batch, Phase.INFERENCE, device))
        compiled = subject.compiled(resolve_config(cell.config, device))
        for _ in range(5):
            subject.eager()
            compiled()
        if "deterministic" in suspects:
            subject.deterministic_pair()
        if "profiler" in suspects:
            with torch.profiler.profile():
                subject.eager()
                compiled()
        calls[name] = (subject.eager, compiled)
    return calls


def time_calls(calls: tuple[Any, Any], suspects: set[str], device: str) -> dict[str, float]:
    """Median milliseconds of the eager and the compiled call."""
    from collector.clock import timed_s

    gc.collect()
    if "collector_on" not in suspects:
        gc.disable()
    samples: list[list[float]] = [[], []]
    for done in range(3 + _ROUNDS):
        if "waiting" in suspects:
            time.sleep(0.1)
        for which in (1, 0) if "alternated" in suspects and done % 2 else (0, 1):
            samples[which].append(1e3 * timed_s(calls[which], device))
    return {"eager_ms": median(samples[0][3:]), "compiled_ms": median(samples[1][3:])}


def _from_quietest(suspects: set[str], device: str, calls: dict[str, Any]) -> dict[str, Any]:
    if "quietest" not in suspects:
        return {name: time_calls(pair, suspects, device) for name, pair in calls.items()}
    from collector.environment import FREE_CORES_VARIABLE
    from collector.quiet_cores import quietest

    cores = sorted(os.sched_getaffinity(0))
    os.environ[FREE_CORES_VARIABLE] = ",".join(map(str, cores))
    os.sched_setaffinity(0, cores[:2])
    with quietest(device):
        return {name: time_calls(pair, suspects, device) for name, pair in calls.items()}


class Process:
    """A measuring process: says when it is prepared, measures when it is told to."""

    def __init__(self, arm: str, models: list[str], device: str, core: int) -> None:
        self.arm = arm
        suspects = {"none": set(), "all": set(_ALL)}.get(arm, {arm})
        self._go, go = os.pipe()[::-1]
        self._ready, ready = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(go)
            os.close(ready)
            return
        try:
            os.close(self._go)
            os.close(self._ready)
            if "fresh" in suspects:
                os.set_inheritable(go, True)
                os.set_inheritable(ready, True)
                words = [word for name in models for word in ("--model", name)]
                command = [sys.executable, "-m", "benchmarks.latency_causes", "--child", f"{go},{ready}"]
                os.execv(sys.executable, [*command, "--device", device, *words])  # noqa: S606 - no shell is wanted
            if "pinned" in suspects:
                every = sorted(os.sched_getaffinity(0))
                os.sched_setaffinity(0, {every[core % len(every)], every[(core + 1) % len(every)]})
            child(models, suspects, device, go, ready)
        finally:
            os._exit(1)

    def prepared(self) -> bool:
        """Waits until the process is prepared."""
        return os.read(self._ready, 1) == b"r"

    def result(self) -> dict[str, Any] | None:
        """Has the process measure; None if it died."""
        os.write(self._go, b"g")
        with os.fdopen(self._ready) as stream:
            text = stream.read()
        os.close(self._go)
        os.waitpid(self.pid, 0)
        return json.loads(text) if text else None


def child(models: list[str], suspects: set[str], device: str, go: int, ready: int) -> None:
    """Prepares, waits for a byte on `go`, measures, writes the result to `ready` and ends the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    calls = prepare(models, suspects, device)
    os.write(ready, b"r")
    os.read(go, 1)
    os.write(ready, json.dumps(_from_quietest(suspects, device, calls)).encode())
    os._exit(0)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: the median over the processes of each arm, its ratio to the processes without a suspect, and the range."""
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for model, found in row["found"].items():
            for metric, value in found.items():
                values[model, metric][row["arm"]].append(value)
    heads = [f"{model.split('/')[1].split('_patch')[0]} {metric[:-3]}" for model, metric in values]
    lines = ["| on | processes | " + " | ".join(heads) + " |", "|---|---|" + "---|" * len(heads)]
    for arm in [arm for arm in ("none", *SUSPECTS, "all") if any(arm in by_arm for by_arm in values.values())]:
        cells = []
        for by_arm in values.values():
            here, plain = by_arm[arm], by_arm["none"] or by_arm[arm]
            cells.append(
                f"{median(here):.2f} ms, x{median(here) / median(plain):.2f} ({min(here):.2f}-{max(here):.2f})"
            )
        lines.append(f"| {arm} | {len(here)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Entry point of `python -m benchmarks.latency_causes`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8, help="processes per suspect [8]")
    parser.add_argument("--together", type=int, default=8, help="processes that prepare at once [8]")
    parser.add_argument("--suspect", action="append", choices=[*SUSPECTS, "none", "all"], help="[each, none and all]")
    parser.add_argument("--model", action="append", help=f"SUITE/MODEL of the zoo {_MODELS}")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--out", type=Path, help="JSON Lines, one a process")
    parser.add_argument("--table", type=Path, help="print the table of an earlier --out and stop")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    models = options.model or _MODELS
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    if options.child:
        go, ready = map(int, options.child.split(","))
        child(models, set(), options.device, go, ready)
    arms = (options.suspect or ["none", *SUSPECTS, "all"]) * options.processes
    random.Random(0).shuffle(arms)
    # Few threads while they prepare beside each other; who launches kernels is one thread in any case.
    os.environ |= {
        "OMP_NUM_THREADS": "2",
        "HF_HUB_OFFLINE": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    import_all(models)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        # All processes share one cache: what is asked here is how fast programs are called, not how they are compiled.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        first = Process("none", models, options.device, 0)
        if not (first.prepared() and first.result()):
            sys.exit("the first process died: run one with --child 1,1 to see why")
        for start in range(0, len(arms), options.together):
            batch = arms[start : start + options.together]
            processes = [Process(arm, models, options.device, 2 * at) for at, arm in enumerate(batch)]
            for process in [process for process in processes if process.prepared()]:
                if (found := process.result()) is not None:
                    rows.append({"arm": process.arm, "found": found})
            if options.out:
                options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
            print(f"{start + len(batch)} of {len(arms)} processes, {len(rows)} with a result", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
