"""Which settings of a measuring process change the wall-clock latencies that it measures.

    python -m benchmarks latency_causes --processes 8 --out causes.jsonl
    python -m benchmarks latency_causes --table causes.jsonl

Each process builds the models, compiles them without cudagraphs and times eager and compiled calls, twice for each
suspect: without it and with it. The order of the suspects is random. What cannot be taken back (a profiler, deterministic
algorithms, a frozen heap) stays on for what follows, on both sides. Half of the processes are forked from one that has
imported everything and never touched the GPU, half are new interpreters. They prepare at once; then one after the other
measures, while the rest sleeps and the GPU is idle.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

#: What is turned on, and what that means.
SUSPECTS = {
    "cublas": "CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment",
    "profiler": "a profiler pass before",
    "deterministic": "a comparison under deterministic algorithms before",
    "freeze": "gc.freeze() before",
    "collector": "Python's garbage collector runs meanwhile",
    "alternated": "eager and compiled swap their order in each round",
    "waiting": "a pause of 20 ms before each round, as behind other cells",
    "pinned": "kept to two cores",
}
_ROUNDS = 12
_MODELS = ["timm/deit_tiny_patch16_224.fb_in1k", "huggingface/OPTForCausalLM"]
Calls = dict[str, tuple[Callable[[], Any], Callable[[], Any]]]


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


def prepare(models: list[str], device: str) -> tuple[Calls, list[Any]]:
    """The eager and the compiled call of each model, and the models with which they were made."""
    from collector.configs.templates import resolve_config
    from collector.measure.program import Subject, seed_everything
    from collector.vocabulary import Cell, Config, Phase
    from collector.zoo.registry import find

    calls, subjects = {}, []
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
        calls[name] = (subject.eager, compiled)
        subjects.append(subject)
    return calls, subjects


def time_calls(calls: Calls, device: str, suspect: str = "") -> dict[str, dict[str, float]]:
    """Median milliseconds of the eager and the compiled call of each model."""
    from collector.measure.timing import timed_s

    found = {}
    for name, pair in calls.items():
        samples: list[list[float]] = [[], []]
        for done in range(3 + _ROUNDS):
            if suspect == "waiting":
                time.sleep(0.02)
            for which in (1, 0) if suspect == "alternated" and done % 2 else (0, 1):
                samples[which].append(1e3 * timed_s(pair[which], device))
        found[name] = {"eager": median(samples[0][3:]), "compiled": median(samples[1][3:])}
    return found


def leave_behind(suspect: str, calls: Calls, subjects: list[Any]) -> None:
    """Does what the suspect says and cannot be taken back."""
    import torch

    if suspect == "profiler":
        with torch.profiler.profile():
            for eager, _ in calls.values():
                eager()
    elif suspect == "deterministic":
        for subject in subjects:
            subject.eager_runs()
    elif suspect == "freeze":
        gc.collect()
        gc.freeze()


@contextmanager
def turned_on(suspect: str) -> Iterator[None]:
    """Does what the suspect says, and takes it back."""
    cores = os.sched_getaffinity(0)
    if suspect == "cublas":
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    elif suspect == "collector":
        gc.enable()
    elif suspect == "pinned":
        os.sched_setaffinity(0, random.sample(sorted(cores), 2))
    try:
        yield
    finally:
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
        gc.disable()
        for task in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def measure(calls: Calls, subjects: list[Any], suspects: list[str], device: str) -> list[dict[str, Any]]:
    """Times without and with each suspect; which of the two comes first is drawn, where that can be."""
    gc.collect()
    gc.disable()
    rows = []
    for suspect in suspects:
        off_first = suspect in ("profiler", "deterministic", "freeze") or random.random() < 0.5
        off = time_calls(calls, device) if off_first else {}
        leave_behind(suspect, calls, subjects)
        with turned_on(suspect):
            on = time_calls(calls, device, suspect)
        rows.append({"suspect": suspect, "off": off or time_calls(calls, device), "on": on})
    return rows


class Process:
    """A measuring process: says when it is prepared, measures when it is told to."""

    def __init__(self, seed: int, start: str, models: list[str], suspects: list[str], device: str) -> None:
        go, self._go = os.pipe()
        self._ready, ready = os.pipe()
        self.start = start
        self.pid = os.fork()
        if self.pid:
            os.close(go)
            os.close(ready)
            return
        try:
            os.close(self._go)
            os.close(self._ready)
            words = [str(go), str(ready), str(seed), ",".join(suspects), device, *models]
            if start == "fresh":
                os.set_inheritable(go, True)
                os.set_inheritable(ready, True)
                command = [sys.executable, "-m", "benchmarks.latency_causes", "--child", *words]
                os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted
            child(words)
        finally:
            os._exit(1)

    def prepared(self) -> bool:
        """Waits until the process is prepared; False if it died."""
        return os.read(self._ready, 1) == b"r"

    def result(self) -> list[dict[str, Any]]:
        """Has the process measure."""
        os.write(self._go, b"g")
        with os.fdopen(self._ready) as stream:
            text = stream.read()
        os.close(self._go)
        os.waitpid(self.pid, 0)
        return json.loads(text) if text else []


def child(words: list[str]) -> None:
    """Prepares, waits for a byte, measures, writes the result and ends the process."""
    go, ready, seed, suspects, device, *models = words
    random.seed(int(seed))
    calls, subjects = prepare(models, device)
    os.write(int(ready), b"r")
    os.read(int(go), 1)
    order = suspects.split(",")
    random.shuffle(order)
    os.write(int(ready), json.dumps(measure(calls, subjects, order, device)).encode())
    os._exit(0)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: with over without each suspect, the median over the processes and the range."""
    ratios: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    plain: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for model, forms in row["on"].items():
            for form, value in forms.items():
                ratios[row["suspect"]][model, form].append(value / row["off"][model][form])
                plain[row["start"]][model, form].append(row["off"][model][form])
    columns = list(next(iter(ratios.values())))
    heads = [f"{model.split('/')[1].split('_patch')[0]} {form}" for model, form in columns]
    lines = ["| suspect | processes | " + " | ".join(heads) + " |", "|---|---|" + "---|" * len(heads)]
    for suspect in sorted(ratios):
        here = [ratios[suspect][column] for column in columns]
        cells = [f"x{median(found):.2f} ({min(found):.2f} to {max(found):.2f})" for found in here]
        lines.append(f"| {suspect} | {len(here[0])} | " + " | ".join(cells) + " |")
    for start, found in plain.items():
        cells = [
            f"{median(found[column]):.2f} ms ({min(found[column]):.2f} to {max(found[column]):.2f})"
            for column in columns
        ]
        lines.append(f"| none, {start} |  | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Entry point of `python -m benchmarks latency_causes`."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8, help="processes of each start: forked, fresh [8]")
    parser.add_argument("--suspect", action="append", choices=[*SUSPECTS], help="[all]")
    parser.add_argument("--model", action="append", help=f"SUITE/MODEL of the zoo {_MODELS}")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--out", type=Path, help="JSON Lines, one a process and suspect")
    parser.add_argument("--table", type=Path, help="print the table of an earlier --out and stop")
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    models, suspects = options.model or _MODELS, options.suspect or list(SUSPECTS)
    # Few threads while they prepare beside each other; who launches kernels is one thread in any case.
    os.environ |= {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "2", "TORCHINDUCTOR_WORKER_START": "fork"}
    os.environ |= {"HF_HUB_OFFLINE": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    import_all(models)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        starts = ["forked", "fresh"] * options.processes
        processes = [Process(seed, start, models, suspects, options.device) for seed, start in enumerate(starts)]
        ready = [process for process in processes if process.prepared()]
        print(f"{len(ready)} of {len(processes)} processes are prepared", flush=True)
        for process in ready:
            rows += [{"start": process.start, **row} for row in process.result()]
            if options.out:
                options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
            print(f"process {processes.index(process) + 1} has measured", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
