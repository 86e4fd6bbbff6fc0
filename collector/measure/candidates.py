"""The compilation of an operation's candidates on cores that are idle.

A cell of many workers has one core, and a template of a matrix product has dozens of candidates: whisper's encoder compiled for
500 s under `max_autotune` on one core, while half of the others were idle (docs/results.md). What candidates take is no part of
`compile_cold_s` (`collector.measure.tuning_time`), so it does not matter how many cores they had.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def compile_candidates_on(cores: set[int]) -> None:
    """Let Inductor compile candidates in as many threads as there are cores, on these, while nobody else uses them.

    Inductor starts a thread for each core that the process may use, in `make_precompile_fn` (torch 2.7 to 2.13). Where this
    torch has no such function, or compiles in processes of its own, nothing changes.
    """
    own = os.sched_getaffinity(0)
    if cores <= own:
        return
    with suppress(ImportError, AttributeError, KeyError):
        owner = importlib.import_module("torch._inductor.select_algorithm").AlgorithmSelectorCache
        owner.make_precompile_fn = _on_idle_cores(vars(owner)["make_precompile_fn"], own, cores | own)


def _on_idle_cores(start: Callable[..., Any], own: set[int], cores: set[int]) -> Callable[..., Any]:
    @functools.wraps(start)
    def started(*args: Any, **kwargs: Any) -> Any:
        before = _threads()
        with _running_on(cores, own):
            wait = start(*args, **kwargs)
            for thread in _threads() - before:
                _give_way(thread, own)
        return wait

    return started


@contextmanager
def _running_on(cores: set[int], own: set[int]) -> Iterator[None]:
    """Let this thread, and those that it starts meanwhile, run on these cores. Its own may not be those that it is on now."""
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def _give_way(thread: int, own: set[int]) -> None:
    """Make a thread, and the processes that it starts, run where nothing else does; it stays on its own cores otherwise."""
    with suppress(ProcessLookupError):  # it has ended
        try:
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        except PermissionError:
            os.sched_setaffinity(thread, own)


def _threads() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}
