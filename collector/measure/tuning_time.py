"""Measures apart what a first compiled call spends on autotuning: timing candidates, and compiling them.

Inductor's functions that choose among candidates are wrapped; the names are those of torch 2.7 to 2.13. Where one is missing,
its work counts as compilation. Torch's own columns (`compile_time_autotune_time_us`, `runtime_triton_autotune_time_us`) are not
enough: they leave out the candidates that the scheduler compiles, and configurations of a kernel that workers compile.
"""

from __future__ import annotations

import functools
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from collector.measure.timing import counter_from_here
from collector.spans import Span

#: By module and class the methods that do nothing but choose. `benchmark*` alone would leave out the candidates' compilation.
_CHOOSING = (
    ("runtime.benchmarking", "Benchmarker", ("benchmark", "benchmark_cpu")),
    ("runtime.benchmarking", "TritonBenchmarker", ("benchmark_gpu",)),
    ("runtime.benchmarking", "InductorBenchmarker", ("benchmark_gpu",)),
    ("runtime.triton_heuristics", "CachingAutotuner", ("benchmark_all_configs", "coordinate_descent_tuning")),
    ("runtime.triton_heuristics", "CachingAutotuner", ("_combo_sequential_autotune",)),
    ("select_algorithm", "AlgorithmSelectorCache", ("__call__",)),
    ("ir", "MultiTemplateBuffer", ("choice_timings",)),
    ("scheduler", "Scheduler", ("compile_kernel", "benchmark_fused_nodes", "benchmark_codegened_module")),
    ("scheduler", "Scheduler", ("_evaluate_pending_template_fusions",)),
)


@dataclass(slots=True)
class Tuning:
    """What was spent: spans on the monotonic clock that may overlap, and instructions of the thread that began it."""

    spans: list[Span] = field(default_factory=list)
    instructions: int = 0
    thread: int = field(default_factory=threading.get_ident)
    can_count: bool = True


class _Depth(threading.local):
    """How deep a thread is in a choice, and in the wait for the kernels of a finished program."""

    choosing = waiting = 0


_depth = _Depth()
_tuning: Tuning | None = None
_is_watching = False


def watch() -> None:
    """Wrap Inductor's functions in this process, if that is not done yet."""
    global _is_watching
    if _is_watching:
        return
    _is_watching = True
    for module, owner, names in _CHOOSING:
        for name in names:
            _replace(module, owner, name, _choosing)
    _replace("async_compile", "AsyncCompile", "wait", _waiting)
    _replace("codecache", "LambdaFuture", "result", _awaited)
    _replace("runtime.triton_heuristics", "CachingAutotuner", "precompile", _precompiled)


@contextmanager
def recorded() -> Iterator[Tuning]:
    """Record what Inductor spends on tuning in this context, in all threads; nothing unless `watch` was called."""
    global _tuning
    _tuning = found = Tuning()
    try:
        yield found
    finally:
        _tuning = None


def _replace(module: str, owner: str, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    with suppress(ImportError, AttributeError, KeyError):  # there is no Triton, or this torch has no such function
        found = getattr(importlib.import_module(f"torch._inductor.{module}"), owner)
        if callable(method := vars(found)[name]):
            setattr(found, name, wrap(method))


def _choosing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method whose whole time is tuning."""

    @functools.wraps(method)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if _tuning is None or _depth.choosing:
            return method(*args, **kwargs)
        begin, count = time.monotonic(), _instructions(_tuning)
        _depth.choosing += 1
        try:
            return method(*args, **kwargs)
        finally:
            _depth.choosing -= 1
            if _tuning is not None:
                _tuning.spans.append((begin, time.monotonic()))
                _tuning.instructions += count()

    return timed


def _instructions(tuning: Tuning) -> Callable[[], int]:
    """Begin to count instructions; the returned function ends that. 0 where they are not counted (`timing.counted`)."""
    if not tuning.can_count or threading.get_ident() != tuning.thread:
        return int
    end = counter_from_here()
    tuning.can_count = end is not None  # torch prints a line each time that it is asked in vain
    return end or int


def _waiting(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the wait for the kernels of a finished program: what a process awaits elsewhere are candidates."""

    @functools.wraps(wait)
    def noted(*args: Any, **kwargs: Any) -> Any:
        _depth.waiting += 1
        try:
            return wait(*args, **kwargs)
        finally:
            _depth.waiting -= 1

    return noted


def _awaited(result: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the wait for one kernel that a worker compiles."""

    @functools.wraps(result)
    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()
        kernel = result(*args, **kwargs)
        if _candidates(kernel):
            _note(kernel, begin, is_whole=not _depth.waiting)
        return kernel

    return timed


def _precompiled(precompile: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the compilation of a kernel's configurations, which this process does itself if it has no workers."""

    @functools.wraps(precompile)
    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()
        made = precompile(self, *args, **kwargs)
        _note(self, begin, is_whole=False)
        return made

    return timed


def _candidates(kernel: Any) -> int:
    """Return with how many configurations a kernel was compiled; 0 for what is no Triton kernel."""
    results = getattr(kernel, "compile_results", None)
    return len(results) if isinstance(results, list) else 0


def _note(kernel: Any, begin: float, *, is_whole: bool) -> None:
    """Record the time since `begin`, which went into a kernel: all of it, or the share of all configurations but one.

    Inductor compiles the configurations of a kernel one after the other in one call, and tells their time together.
    """
    end, candidates = time.monotonic(), _candidates(kernel)
    if _tuning is not None and not _depth.choosing and (is_whole or candidates > 1):
        share = 1.0 if is_whole else 1 - 1 / candidates
        _tuning.spans.append((end - share * (end - begin), end))
