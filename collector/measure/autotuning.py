"""Holds of the device while a program is made: in its first call, and while Inductor tunes, whose results are recorded.

For each graph in turn, a first call compiles for seconds or minutes on the CPU and runs for some milliseconds on the device.
Dynamo calls back when a compilation starts and ends (`torch._dynamo.on_compile_start`), including the compilation of a backward
pass and of each graph after a graph break. Code that runs between two compilations uses the device.

Inductor times candidates in two places. The choices of a GEMM or convolution go through
`benchmarking.Benchmarker.benchmark_gpu`, all choices of one operation in `AlgorithmSelectorCache.benchmark_choices`; a Triton
kernel's configurations go through `CachingAutotuner.benchmark_all_configs`. All exist since torch 2.7. If a torch lacks one of
these functions, it tunes without the hold, and its results are not recorded.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from collector.vocabulary import short_hash

#: The most results that are kept with a measurement, and the most characters of a name.
_KEPT, _LENGTH = 60, 160


#: The class of an operation's candidates that are kernels of Triton (torch 2.7 to 2.13).
_TRITON_CANDIDATE = "TritonTemplateCaller"


#: A function that returns a context in which the device belongs to this process alone, for a purpose.
Exclusive = Callable[[str], AbstractContextManager[None]]
#: A function that returns a context in which this process does not hold the device that it held before.
Released = Callable[[], AbstractContextManager[None]]


#: The depth of nested choices of a Triton kernel's configuration, and whether the timed candidates are compiled already.
_depth, _is_compiled = 0, False
#: Whether candidates are only called now, and not timed.
_is_rehearsal = False


def hold_device_while_tuning(exclusive: Exclusive, released: Released = nullcontext) -> None:
    """Wrap Inductor's timing functions in this process so that they hold the device. Do nothing without Triton.

    The configurations of one kernel are launched alike, so that a late launch favours none of them: they are timed under the
    purpose `tune`, and so are Triton's candidates of an operation. A library's matrix product takes longer to launch than a
    Triton kernel, and loses if the host is busy: it is timed under the purpose `choose`, for which all other cells stand still.

    The first call of a candidate may compile, for a second on the CPU, or make a library's plan. This call comes before the
    device is requested alone, so that other cells can use it in this time. A kernel's configurations, which were compiled before,
    have no such call: beside other cells it was stopped by them again and again, for most of the time that `max_autotune` tuned
    in a night. All candidates of one operation are timed in one hold, since with a hold for each a cell waited more than a
    hundred times.

    Coordinate descent compiles one configuration after the other, for minutes, within a call for which the device is held beside
    other cells. It holds the device only while it times, since a holder is stopped whenever another cell has the device alone.
    """
    wrapped: tuple[tuple[str, dict[str, Callable[[Any, Exclusive], Any]]], ...] = (
        ("torch._inductor.runtime.benchmarking", {"benchmark_gpu": _holding_once_compiled}),
        (
            "torch._inductor.runtime.triton_heuristics",
            {"benchmark_all_configs": _holding, "coordinate_descent_tuning": _of_a_kernel},
        ),
        ("torch._inductor.runtime.coordinate_descent_tuner", {"autotune": partial(_released_while, released)}),
        (
            "torch._inductor.select_algorithm",
            {"benchmark_choices": _holding_for_all, "benchmark_choice": _launched_as_kernels_are},
        ),
    )
    for module_name, names in wrapped:
        with suppress(ImportError):
            module = importlib.import_module(module_name)
            for _, owner in inspect.getmembers(module, inspect.isclass):
                for name in names.keys() & vars(owner).keys() if owner.__module__ == module_name else ():
                    setattr(owner, name, names[name](vars(owner)[name], exclusive))


def _of_a_kernel(function: Callable[..., Any], _: Exclusive, is_compiled: bool = True) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global _depth, _is_compiled
        before = _depth, _is_compiled
        _depth, _is_compiled = _depth + 1, is_compiled
        try:
            return function(*args, **kwargs)
        finally:
            _depth, _is_compiled = before

    return counted


def _holding(function: Callable[..., Any], exclusive: Exclusive) -> Callable[..., Any]:
    inner = _of_a_kernel(function, exclusive)

    @functools.wraps(function)
    def held(*args: Any, **kwargs: Any) -> Any:
        with exclusive("tune"):
            return inner(*args, **kwargs)

    return held


def _released_while(released: Released, function: Callable[..., Any], _: Exclusive) -> Callable[..., Any]:
    @functools.wraps(function)
    def let_go(*args: Any, **kwargs: Any) -> Any:
        with released():
            return function(*args, **kwargs)

    return let_go


def _holding_for_all(function: Any, exclusive: Exclusive) -> Any:
    if not isinstance(function, classmethod):
        return function
    inner = function.__func__

    @functools.wraps(inner)
    def held(*args: Any, **kwargs: Any) -> Any:
        with suppress(Exception), exclusive("device"), _rehearsal():  # an error here is raised again below
            inner(*args, **kwargs)
        with exclusive("tune"):  # a library's candidate asks for `choose`
            return inner(*args, **kwargs)

    return classmethod(held)


def _launched_as_kernels_are(function: Any, exclusive: Exclusive) -> Any:
    if not isinstance(function, classmethod):
        return function
    inner = function.__func__
    kernels_alone = _of_a_kernel(inner, exclusive, is_compiled=False)

    @functools.wraps(inner)
    def timed(cls: Any, choice: Any, *args: Any, **kwargs: Any) -> Any:
        is_kernel = type(choice).__name__ == _TRITON_CANDIDATE
        return (kernels_alone if is_kernel else inner)(cls, choice, *args, **kwargs)

    return classmethod(timed)


@contextmanager
def _rehearsal() -> Iterator[None]:
    global _is_rehearsal
    _is_rehearsal = True
    try:
        yield
    finally:
        _is_rehearsal = False


def _holding_once_compiled(benchmark_gpu: Callable[..., Any], exclusive: Exclusive) -> Callable[..., Any]:
    @functools.wraps(benchmark_gpu)
    def held(self: Any, candidate: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        if _is_rehearsal:
            candidate()
            return 0.0
        if not _is_compiled:
            with suppress(Exception), exclusive("device"):  # an error is raised again below, where Inductor expects it
                candidate()
        with exclusive("tune" if _depth else "choose"):
            return benchmark_gpu(self, candidate, *args, **kwargs)

    return held


#: The kernel or operation, the number of candidates, the candidate that won, and its milliseconds if it was timed.
Choice = tuple[str, int, str, float | None]

_choices: list[Choice] = []
_listening = False


def listen() -> None:
    """Record Inductor's autotuning results in this process from now on, and forget earlier ones.

    Results that this torch does not report are missing. Recording changes no result.
    """
    global _listening
    _choices.clear()
    if not _listening:
        _listening = True
        with suppress(ImportError, AttributeError):
            importlib.import_module("torch._inductor.select_algorithm").add_feedback_saver(note_operation)
        with suppress(ImportError, AttributeError):  # there is no Triton
            watch_kernels(importlib.import_module("torch._inductor.runtime.triton_heuristics").CachingAutotuner)


def results() -> dict[str, Any]:
    """Return the results as details of a measurement: a list, and a hash that is equal if all choices are equal."""
    if not _choices:
        return {}
    unique = sorted({(what, chosen) for what, _, chosen, _ in _choices})
    return {"autotuned": [list(choice) for choice in _choices[:_KEPT]], "autotuned_id": short_hash(unique)}


def note_operation(timings: Mapping[Any, float], name: str, _: Any, candidates: Any, *__: Any) -> None:
    """Record one tuned matrix product or convolution. This is a feedback function for Inductor, of torch 2.7 and later."""
    timed = {choice: ms for choice, ms in timings.items() if ms == ms and ms != float("inf")}
    if timed:
        best = min(timed, key=lambda choice: timed[choice])
        chosen = f"{getattr(best, 'name', best)} {getattr(best, 'description', '') or ''}".strip()
        _note(name, len(candidates), chosen, float(timed[best]))


def watch_kernels(autotuner: Any) -> None:
    """Wrap the two methods that choose a Triton kernel's configuration, so that each choice is recorded."""
    for name, note in (("benchmark_all_configs", _note_timings), ("coordinate_descent_tuning", _note_descent)):
        if method := vars(autotuner).get(name):
            setattr(autotuner, name, _watched(method, note))


def _watched(method: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = method(self, *args, **kwargs)
        with suppress(Exception):  # recording must not fail a compilation
            note(self, made, *args[:1])
        return made

    return watched


def _note_timings(autotuner: Any, timings: Mapping[Any, float], *_: Any) -> None:
    best = min(timings, key=lambda launcher: timings[launcher])
    _note(_kernel(autotuner), len(timings), str(best.config), float(timings[best]))


def _note_descent(autotuner: Any, launcher: Any, started_from: Any = None) -> None:
    if launcher is not started_from:
        _note(_kernel(autotuner), 0, f"{launcher.config} (coordinate descent)", None)


def _kernel(autotuner: Any) -> str:
    return str(autotuner.inductor_meta.get("kernel_name") or autotuner.fn.__name__)


def _note(what: str, candidates: int, chosen: str, ms: float | None) -> None:
    _choices.append((what[:_LENGTH], candidates, chosen[:_LENGTH], None if ms is None else round(ms, 6)))


#: A function that returns a context which holds the device, or which interrupts a hold.
Take = Callable[[], AbstractContextManager[None]]

#: The triggers that torch 2.8 and later announce as compilations but that are work on the device (`torch._dynamo.callback`).
_ON_THE_DEVICE = frozenset({"CUDAGRAPH_RECORDING", "TRITON_AUTOTUNING"})


class _Parts:
    """A context that is entered for some parts of a call, from one of Dynamo's callbacks to another."""

    def __init__(self, make: Take) -> None:
        self._make, self._entered = make, ExitStack()
        self._is_inside = self._is_over = False

    def enter(self, *said: Any) -> None:
        """Enter the context, unless it is entered already; a callback of work on the device is ignored."""
        if not self._is_inside and not self._is_over and not _uses_device(said):
            self._entered.enter_context(self._make())
            self._is_inside = True

    def leave(self, *said: Any) -> None:
        """Leave the context, if it is entered; a callback of work on the device is ignored."""
        if self._is_inside and not _uses_device(said):
            self._is_inside = False
            self._entered.close()

    def end(self) -> None:
        """Leave the context, and never enter it again."""
        self._is_over = True
        self.leave()


def _uses_device(said: tuple[Any, ...]) -> bool:
    """Return whether the arguments of torch's callback (none before 2.8) announce work on the device."""
    return any(getattr(getattr(one, "callback_trigger", None), "name", "") in _ON_THE_DEVICE for one in said)


@contextmanager
def held_between_compilations(take: Take) -> Iterator[None]:
    """Enter `take()` for the parts of the calls in this context that run compiled or eager code after a compilation.

    With a torch whose Dynamo has no callbacks the device is never held.
    """
    parts = _Parts(take)
    _listen(parts.leave, parts.enter)
    try:
        yield
    finally:
        parts.end()


@contextmanager
def released_while_compiling(release: Take) -> Iterator[None]:
    """Enter `release()`, which gives the device back, for the compilations in the calls of this context."""
    parts = _Parts(release)
    _listen(parts.enter, parts.leave)
    try:
        yield
    finally:
        parts.end()


def _listen(started: Callable[..., None], ended: Callable[..., None]) -> None:
    """Register callbacks for the start and end of compilations. Register them again after each `torch._dynamo.reset`."""
    import torch._dynamo  # not at the top: it imports many modules, which a server without a compiler does not need

    if hasattr(torch._dynamo, "on_compile_start"):
        torch._dynamo.on_compile_start(started)
        torch._dynamo.on_compile_end(ended)
