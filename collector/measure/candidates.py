"""Candidates of autotuning: where, when and in what order a process compiles them, and the folder in which they are shared.

The configs of a model that tune compile mostly equal candidates. Triton stores compiled kernels by source, options and target,
so that a process can take a candidate that another process has compiled. The shared folder is set only while this process
chooses: it compiles the kernels of its program itself (`collector.measure.tuning`). Each process that compiles candidates leaves
an empty file in the folder, since the time that it takes depends on the other processes.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from collector.vocabulary import short_hash

#: Triton's documented variable for the folder of its compiled kernels.
_TRITON_FOLDER = "TRITON_CACHE_DIR"
#: The suffix of the files that name the processes which compiled candidates in a folder.
_USER = ".user"

#: Processes in which one of the longest cells of a night compiles, on the cores of all workers.
_PROCESSES = 4

#: The longest time in seconds for which no candidate is compiled because the main thread works. After it candidates are compiled
#: at any time: the main thread may wait in a way that is unknown here.
_PATIENCE_S = 300.0


class MainThread:
    """The state of the main thread, by which other threads compile candidates, one at a time, only while it waits for them."""

    def __init__(self) -> None:
        self._waits, self._is_over = threading.Event(), False
        self._compiling = threading.Lock()

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Mark that the main thread waits for candidates; at the end no candidate is being compiled, so that it can time."""
        self._waits.set()
        try:
            yield
        finally:
            self._waits.clear()
            with self._compiling:
                pass

    def compile_beside(self, compile_candidate: Callable[[], Any]) -> Any:
        """Compile a candidate while the main thread waits; after `_PATIENCE_S` compile it in any case."""
        while True:
            self._is_over = self._is_over or not self._waits.wait(_PATIENCE_S)
            with self._compiling:
                if self._is_over or self._waits.is_set():
                    return compile_candidate()


def use_one_assembler() -> None:
    """Make this process assemble kernels as torch's compile workers do, which take the assembler of torch, not that of Triton.

    torch 2.11 has ptxas 13.0 and its Triton 12.8. Triton looks for a compiled kernel by the version too, so that a process
    compiled each candidate again that a worker had compiled, one after the other, before it timed it. A process
    without workers takes torch's assembler from the first kernel of its program on, and Triton still looks by the version that it
    saw first.
    """
    with suppress(ImportError, AttributeError):
        importlib.import_module("torch._inductor.runtime.compile_tasks")._set_triton_ptxas_path()


def compile_in_processes(cores: Sequence[int]) -> None:
    """Make Inductor compile kernels and candidates in processes of its own on these cores; without cores change nothing.

    The processes inherit the cores of the thread that starts them. Until they have imported torch, and with a torch that has no
    such processes, this process compiles everything itself. The configurations of a program's kernels are compiled there, too:
    those of the ten kernels of `adamw_step` take minutes.
    """
    if not cores:
        return
    own = os.sched_getaffinity(0)
    with suppress(ImportError, AttributeError):
        found = importlib.import_module("torch._inductor.async_compile").AsyncCompile
        config: Any = importlib.import_module("torch._inductor.config")
        config.compile_threads = min(_PROCESSES, len(cores))
        try:
            os.sched_setaffinity(0, cores)
            found.use_process_pool()  # starts them
        finally:
            os.sched_setaffinity(0, own)


def compile_candidates_beside(main_thread: MainThread) -> None:
    """Make Inductor's threads compile an operation's candidates only while the main thread waits for candidates.

    In a process of one core Inductor compiles candidates in a thread for each operation, beside the main thread (torch 2.7 to
    2.13). All share the core and Python's lock, so that the main thread's work in this time, which counts as compilation, took
    longer, and so did the calls that it timed. One candidate is compiled at a time: one core can do no more. A torch that has
    processes to compile in (`compile_in_processes`, a cell of several cores), or lacks these functions, compiles at any time.
    """
    with suppress(ImportError, AttributeError, KeyError):
        select = importlib.import_module("torch._inductor.select_algorithm")
        owner, caller = select.AlgorithmSelectorCache, select.TritonTemplateCaller
        owner.make_precompile_fn = _awaited(vars(owner)["make_precompile_fn"], main_thread)
        if (importlib.import_module("torch._inductor.config").compile_threads or 1) == 1:
            caller.precompile = _after_the_main_thread(vars(caller)["precompile"], main_thread)


class _Wait:
    """A wrapper of Inductor's function that waits for an operation's candidates, with the function's attributes."""

    def __init__(self, wait: Callable[[], Any], main_thread: MainThread) -> None:
        self._wait, self._main_thread = wait, main_thread

    def __call__(self) -> Any:
        with self._main_thread.waits():
            return self._wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wait, name)


def _awaited(begin: Callable[..., Callable[[], Any]], main_thread: MainThread) -> Callable[..., Callable[[], Any]]:
    @functools.wraps(begin)
    def begun(cache: Any, choices: Sequence[Any], *args: Any, **kwargs: Any) -> Callable[[], Any]:
        if folder := os.environ.get(_TRITON_FOLDER):
            _leave_name(Path(folder))
        return _Wait(begin(cache, in_own_order(choices), *args, **kwargs), main_thread)

    return begun


def in_own_order(choices: Sequence[Any]) -> list[Any]:
    """Return candidates in an order that is fixed within this process and differs between processes.

    Then two cells of a model that compile equal candidates at the same time rarely compile the same one, and each finds the
    other's results.
    """
    with suppress(AttributeError):  # a torch whose candidates have no such key
        return sorted(choices, key=lambda choice: short_hash([os.getpid(), choice.kernel_hash_key()]))
    return list(choices)


def _leave_name(folder: Path) -> None:
    with suppress(OSError):  # Triton will report the problem of the folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{os.getpid()}{_USER}").touch()


def others_in(folder: Path) -> int:
    """Return the number of other processes that have compiled candidates in a folder."""
    return sum(file.stem != str(os.getpid()) for file in folder.glob(f"*{_USER}"))


@contextmanager
def compiled_in(folder: Path | None) -> Iterator[None]:
    """Make Triton keep compiled kernels in a folder, and look for them there, in this context; None changes nothing."""
    before = os.environ.get(_TRITON_FOLDER)
    if folder:
        os.environ[_TRITON_FOLDER] = str(folder)
    try:
        yield
    finally:
        if folder and before is not None:
            os.environ[_TRITON_FOLDER] = before
        elif folder:
            os.environ.pop(_TRITON_FOLDER, None)


def _after_the_main_thread(compile_candidate: Callable[..., Any], main_thread: MainThread) -> Callable[..., Any]:
    @functools.wraps(compile_candidate)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return compile_candidate(*args, **kwargs)  # the main thread may need this very candidate
        return main_thread.compile_beside(lambda: compile_candidate(*args, **kwargs))

    return compiled
