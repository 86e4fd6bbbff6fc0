"""Builds models of the zoo and runs them in eager mode: one JSON line a model, as soon as it is known.

    python scripts/check_zoo.py --device cuda --dtype bfloat16
    python scripts/check_zoo.py --suite timm --training --isolate 'mobile*'
    python scripts/check_zoo.py --tag cpu-night --compile --isolate

In one process by default (importing the libraries once); with --isolate each model has a process, caches and a time limit
of its own. Needs nothing but torch and the model libraries. Exit codes: 0 all fine, 1 a model failed, 2 usage.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.vocabulary import DTYPES, Phase
from collector.zoo.offline import forbid_hubs
from collector.zoo.registry import select
from collector.zoo.spec import Built, ModelSpec, ZooError

_TAIL = 400


def main() -> int:
    """Checks the models that the command line names."""
    options = _parse()
    forbid_hubs()
    try:
        specs = select(in_suites=options.suite, patterns=options.models, tagged=options.tag)
    except ZooError as error:
        print(error, file=sys.stderr)
        return 2
    failed = 0
    for spec in specs:
        result = _skipped(spec, options) or (_in_process if options.isolate else _here)(spec, options)
        print(json.dumps({"model": str(spec), **result}), flush=True)
        failed += not result.get("ok", True)
    return 1 if failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names or globs, of NAME or SUITE/NAME; all by default")
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--tag", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--training", action="store_true", help="forward, loss and backward instead of forward")
    parser.add_argument("--compile", action="store_true", help="compile as well, and tell the seconds that took")
    parser.add_argument("--calls", type=int, default=5, help="timed calls of each form, of which the median is told")
    parser.add_argument("--batch-size", type=int, help="instead of each model's own")
    parser.add_argument("--isolate", action="store_true", help="a process and fresh caches for each model")
    parser.add_argument("--limit-s", type=float, default=300, help="time limit of an isolated model")
    return parser.parse_args()


def _skipped(spec: ModelSpec, options: argparse.Namespace) -> dict[str, Any] | None:
    phase = Phase.TRAINING if options.training else Phase.INFERENCE
    if missing := spec.missing():
        return {"skipped": f"needs {', '.join(missing)}"}
    if not spec.supports(phase, options.device, options.dtype):
        return {"skipped": f"not measured in {phase} on {options.device} in {options.dtype}: {spec.notes}"}
    return None


def _in_process(spec: ModelSpec, options: argparse.Namespace) -> dict[str, Any]:
    flags = [f"--{name}" for name in ("training", "compile") if getattr(options, name)]
    if options.batch_size:
        flags += ["--batch-size", str(options.batch_size)]
    command = [sys.executable, __file__, str(spec), "--device", options.device, "--dtype", options.dtype, *flags]
    command += ["--calls", str(options.calls)]
    with tempfile.TemporaryDirectory() as caches:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": caches, "TRITON_CACHE_DIR": f"{caches}/triton"}
        started, used = time.perf_counter(), _children_cpu_s()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit_s, env=environment)
        except subprocess.TimeoutExpired:
            return {"ok": False, "error": f"not done after {options.limit_s:g} s"}
    lines = done.stdout.splitlines()
    if not lines:
        return {"ok": False, "error": f"exit code {done.returncode}: {done.stderr[-_TAIL:]}"}
    result: dict[str, Any] = json.loads(lines[-1])
    # Processor time as well: on a shared machine the wall clock tells more about the neighbours.
    spent = {"process_s": time.perf_counter() - started, "process_cpu_s": _children_cpu_s() - used}
    return {**result, **{name: round(value, 1) for name, value in spent.items()}}


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _here(spec: ModelSpec, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    started = time.perf_counter()
    on_gpu = torch.device(options.device).type == "cuda" and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        result = {"ok": True, **_measured(spec, options)}
    except Exception as error:
        result = {"ok": False, "error": f"{type(error).__name__}: {error}"[:_TAIL]}
    # On a CPU there is but the process's own high-water mark, which includes the models before.
    peak = torch.cuda.max_memory_allocated() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    torch.compiler.reset()
    gc.collect()
    return {**result, "seconds": round(time.perf_counter() - started, 2), "peak_gb": round(peak / 2**30, 2)}


def _measured(spec: ModelSpec, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    phase = Phase.TRAINING if options.training else Phase.INFERENCE
    batch_size = options.batch_size or spec.batch_size(phase, options.device)
    _seed()
    started = time.perf_counter()
    built = spec.build(batch_size, phase, options.device)
    build_s = time.perf_counter() - started
    parameters = sum(parameter.numel() for parameter in built.model.parameters())
    forms = _forms(built, phase, options)
    found = {"batch_size": batch_size, "build_s": round(build_s, 2), "parameters": parameters}
    for form, step in forms:
        first_s, made = _timed(step, options.device)
        calls = [_timed(step, options.device)[0] for _ in range(options.calls)]
        found[f"{form}_ms"] = round(median(calls) * 1e3, 2)
        if form == "compiled":
            found["compile_s"] = round(first_s - median(calls), 1)
        else:
            tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
            found["outputs"] = len(tensors)
            found["finite"] = all(bool(t.isfinite().all()) for t in tensors)
    return found


def _seed() -> None:
    import random

    import torch

    torch.manual_seed(1337)
    random.seed(1337)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(1337)


def _timed(step: Callable[[], Any], device: str) -> tuple[float, Any]:
    import torch

    started = time.perf_counter()
    made = step()
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started, made


def _forms(built: Built, phase: Phase, options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The eager step, and the compiled one if asked for."""
    import torch

    dtype = torch.float32 if options.dtype == "amp" else getattr(torch, options.dtype)
    training = phase is Phase.TRAINING
    model = built.model.to(device=options.device, dtype=dtype).train(training).requires_grad_(training)

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(device=options.device, dtype=dtype if value.is_floating_point() else value.dtype)

    args, kwargs, targets = torch.utils._pytree.tree_map(moved, (built.args, built.kwargs, built.targets))

    def forward() -> Any:
        output = model(*args, **kwargs)
        return built.loss(output, targets) if training else output

    def step_of(run: Callable[[], Any]) -> Callable[[], Any]:
        def step() -> Any:
            with (
                torch.set_grad_enabled(training),
                torch.autocast(torch.device(options.device).type, enabled=options.dtype == "amp"),
            ):
                made = run()
            if not training:
                return made
            model.zero_grad(set_to_none=True)
            made.backward()
            return [made.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

        return step

    yield "eager", step_of(forward)
    if options.compile:
        yield "compiled", step_of(torch.compile(forward))


if __name__ == "__main__":
    sys.exit(main())
