"""The compilation of an operation's candidates on cores that are idle.

A cell of many workers has one core, and an operation has dozens of candidates: on one core they took most of the time of a
night, while half of the cores were idle (docs/results.md). They are no part of `compile_cold_s`, so it does not matter how
many cores they had (`collector.measure.tuning`).
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Seconds between two looks whether a thread may begin a candidate, and those after which it begins whatever the answer is.
_LOOK_S, _PATIENCE_S = 0.02, 30.0


def compile_candidates_on(cores: set[int], is_alone: Callable[[], bool]) -> None:
    """Let Inductor compile candidates in as many threads as there are cores, on these, while nobody else uses them.

    Inductor starts a thread for each core that the process may use, in `make_precompile_fn` (torch 2.7 to 2.13). Where this
    torch has no such function, or compiles in processes of its own, as it does in a cell of several cores, nothing changes:
    these processes would keep the cores. No thread begins a candidate while
    `is_alone()` says that the process has the device alone, for up to half a minute: all threads of a process share Python's
    lock, which may slow down what is timed.
    """
    own = os.sched_getaffinity(0)
    if cores <= own:
        return
    with suppress(ImportError, AttributeError, KeyError):
        if (importlib.import_module("torch._inductor.config").compile_threads or 1) > 1:
            return
        select = importlib.import_module("torch._inductor.select_algorithm")
        owner, caller = select.AlgorithmSelectorCache, select.TritonTemplateCaller
        owner.make_precompile_fn = _on_idle_cores(vars(owner)["make_precompile_fn"], own, cores | own)
        caller.precompile = _when_shared(vars(caller)["precompile"], is_alone)


def _when_shared(compile_candidate: Callable[..., Any], is_alone: Callable[[], bool]) -> Callable[..., Any]:
    @functools.wraps(compile_candidate)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        end = time.monotonic() + _PATIENCE_S
        # The main thread may need this very candidate.
        while threading.current_thread() is not threading.main_thread() and is_alone() and time.monotonic() < end:
            time.sleep(_LOOK_S)
        return compile_candidate(*args, **kwargs)

    return compiled


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
    with suppress(OSError):  # none of these cores is there any more
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
        except ProcessLookupError:
            raise
        except OSError:  # this kernel has no such class, or does not allow it
            os.sched_setaffinity(thread, own)


def _threads() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}
