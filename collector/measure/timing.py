"""Wall-clock samples of calls, the precision of their medians, and a separate profiler pass."""

from __future__ import annotations

import gc
import math
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any, NamedTuple, Self

import torch
from torch.profiler import profile, record_function, supported_activities

from collector.device import device_named
from collector.measure.host_time import CALL, Span
from collector.process.outcome import union_length

Call = Callable[[], Any]

#: The 97.5 % quantile of the normal distribution, for a 95 % interval.
_Z = 1.959964
#: The fewest samples that give an interval.
_FEWEST = 6
#: torch's instruction counter returns -1 as an unsigned number where the kernel or the container forbids it.
_NO_COUNT = 1 << 63


class CallTime(NamedTuple):
    """Seconds of one call from an idle device to an idle device, and seconds until it returned to the host."""

    whole_s: float
    returned_s: float


@dataclass(frozen=True, slots=True)
class Samples:
    """Milliseconds of each call, in order, with the two times of `CallTime`."""

    ms: list[float] = field(default_factory=list)
    returned_ms: list[float] = field(default_factory=list)

    def add(self, took: CallTime) -> None:
        """Add a call."""
        self.ms.append(1e3 * took.whole_s)
        self.returned_ms.append(1e3 * took.returned_s)


def call_time(call: Call, device: str) -> CallTime:
    """Time one call. Its result is freed after the clock stops."""
    finish = device_named(device).synchronize
    finish()
    start = time.perf_counter()
    made = call()
    returned = time.perf_counter()
    finish()
    ended = time.perf_counter()
    del made
    return CallTime(ended - start, returned - start)


def timed_s(call: Call, device: str) -> float:
    """Return the seconds of one call, from an idle device to an idle device."""
    return call_time(call, device).whole_s


def settle(eager: Call, compiled: Call, device: str, limit_s: float = 0.05, within: float = 0.05) -> int:
    """Call both forms in turn until the last three compiled calls agree to `within`, or `limit_s` is spent.

    This keeps rising clocks and cold host caches out of the samples. Return the number of rounds.
    """
    deadline = time.perf_counter() + limit_s
    took: list[float] = []
    while len(took) < 3 or max(took[-3:]) > (1 + within) * min(took[-3:]):
        timed_s(eager, device)
        took.append(timed_s(compiled, device))
        if time.perf_counter() > deadline:
            break
    return len(took)


def interleaved(
    calls: Sequence[Call],
    device: str,
    rounds: int,
    limit_s: float,
    precision: float = 0.0,
    every: Sequence[int] = (),
) -> list[Samples]:
    """Take a sample of each call in each of `rounds` rounds, so that drift affects all calls equally.

    `every` has a number for each call: the call is in each round (1), in every other (2), in every third (3). Stop early once
    `limit_s` seconds are spent, but not before five rounds. With a `precision` continue until all medians are known to that
    fraction, up to ten times `rounds`.
    """
    samples = [Samples() for _ in calls]
    deadline = time.perf_counter() + limit_s
    for done in range(10 * rounds if precision else rounds):
        if done >= 5 and time.perf_counter() > deadline:
            break
        if done >= rounds and done % 10 == 0 and all(_is_precise(form.ms, precision) for form in samples):
            break
        for call, sampled, each in zip(calls, samples, every or [1] * len(calls), strict=True):
            if done % each == 0:
                sampled.add(call_time(call, device))
    return samples


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Turn Python's cyclic garbage collector off in this context, so that it runs in no sample. Collect once before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def counted(action: Callable[[], float]) -> tuple[float, int | None]:
    """Run an action; return its result and the user-space instructions that this thread retired in it.

    The count is None if the machine cannot count (Linux perf events). Compile workers and other threads are not counted.
    """
    end = counter_from_here()
    try:
        result = action()
    finally:
        found = end() if end else 0
    return result, found or None


def counter_from_here() -> Callable[[], int] | None:
    """Begin to count this thread's user-space instructions; return the function that ends the count, or None if forbidden."""
    try:
        from torch._C import _instruction_counter as counter
    except ImportError:  # not in this build
        return None
    number = counter.start()
    if number < 0:
        return None

    def end() -> int:
        count = int(counter.end(number))
        return count if 0 < count < _NO_COUNT else 0

    return end


def relative_half_width(samples: Sequence[float]) -> float | None:
    """Return half the 95 % confidence interval of the median, divided by the median; None for fewer than six samples.

    The interval lies between the order statistics `(n - z sqrt(n)) / 2` and `1 + (n + z sqrt(n)) / 2`, rounded (Conover,
    Practical Nonparametric Statistics, section 3.2). Differences between processes are not in it.
    """
    count, middle = len(samples), median(samples) if samples else 0.0
    if count < _FEWEST or middle <= 0:
        return None
    ordered, reach = sorted(samples), _Z * math.sqrt(count)
    low = max(1, round((count - reach) / 2))
    high = min(count, round(1 + (count + reach) / 2))
    return (ordered[high - 1] - ordered[low - 1]) / 2 / middle


def drift(samples: Sequence[float]) -> float | None:
    """Return the median of the last third over the median of the first third, minus one; None for fewer than six samples.

    A value far from zero means that clock, temperature or a cache had not settled.
    """
    third = len(samples) // 3
    if len(samples) < _FEWEST or (first := median(samples[:third])) <= 0:
        return None
    return median(samples[-third:]) / first - 1


def _is_precise(samples: Sequence[float], wanted: float) -> bool:
    width = relative_half_width(samples)
    return width is not None and width <= wanted


#: The most kernels that are kept by name, by their time; the rest is summed under "(other)".
_KEPT = 24
#: The name of an event in which the allocator hands memory out.
_MEMORY = "[memory]"
#: The beginning of the name of the event around a pass; the number of the pass follows.
_AROUND = "## inductor-watch pass"
#: Seconds without work before each call and after the last one of a pass, so that what ran in a call is known although the clocks
#: of host and device may differ by some microseconds.
_APART_S = 2e-4
#: The endings of the functions that launch a graph, in CUDA's runtime and in its driver.
_GRAPH_LAUNCH = ("GraphLaunch", "GraphLaunch_ptsz")


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """The device time of a call, in the mean of the calls of a pass.

    `busy_ms` is the length of the union of all device intervals. `kernels` lists [name, launches, ms] per call.
    """

    busy_ms: float
    kernels: list[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class GraphUse:
    """The part of one call's work on the device that CUDA graphs launched.

    `launches` counts the graphs, and `share` is the part of the device time in kernels and copies that ran in them. `outside` has
    all other kernels and copies as [name, launches, ms] per call, as in `DeviceTime.kernels`; `kernels_outside` is their number.
    """

    launches: float
    share: float
    kernels_outside: float
    outside: list[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class Pass:
    """The profiler's events of some calls, one after the other, on the host and on the device."""

    events: list[Any]
    calls: int


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A kernel or a copy that ran on the device: its whole name and its duration."""

    name: str
    duration_ns: int


class Profile:
    """A profile of several passes, a context. Only `record` needs a quiet machine: the profiler starts before and is read later.

    A profile makes every later call of its process slower.
    """

    def __init__(self, device: str) -> None:
        self._finish = device_named(device).synchronize
        self._profiler = profile(activities=supported_activities(), acc_events=False)
        self._calls: list[int] = []

    def __enter__(self) -> Self:
        self._profiler.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._profiler.__exit__(*error)

    def record(self, call: Call, calls: int) -> None:
        """Record a pass of `calls` calls, each from an idle device to an idle device."""
        self._finish()
        with record_function(f"{_AROUND} {len(self._calls)}"):
            for _ in range(calls):
                time.sleep(_APART_S)
                with record_function(CALL):
                    call()
                self._finish()
            time.sleep(_APART_S)
        self._calls.append(calls)

    def passes(self) -> list[Pass]:
        """Return the recorded passes, once the profile has ended."""
        # Building the tree of profiler.events() takes seconds for a large model.
        raw = list(self._profiler.profiler.kineto_results.events()) if self._profiler.profiler else []
        spans = {event.name(): event for event in raw if event.name().startswith(_AROUND) and not _on_device(event)}
        made = []
        for number, calls in enumerate(self._calls):
            span = spans.get(f"{_AROUND} {number}")
            begin, end = (span.start_ns(), span.start_ns() + span.duration_ns()) if span else (0, 0)
            made.append(Pass([event for event in raw if begin < event.start_ns() < end], calls))
        return made


def record(call: Call, calls: int, device: str) -> Pass:
    """Return a pass of `calls` calls of a profile of its own."""
    with Profile(device) as profiled:
        profiled.record(call, calls)
    return profiled.passes()[0]


def host_spans(made: Pass) -> list[Span]:
    """Return a pass's events on the host, without memory events."""
    return [
        Span(event.name(), event.device_resource_id(), event.start_ns(), event.start_ns() + event.duration_ns())
        for event in made.events
        if not _on_device(event) and event.name() != _MEMORY
    ]


def device_time(made: Pass) -> DeviceTime | None:
    """Return the device-busy time of one call of a pass, and its kernels; None if the profiler saw no device activity."""
    events = _work(made.events)
    if not events:
        return None
    # Counted from the first event, since a float cannot hold nanoseconds since 1970 exactly.
    origin = min(event.start_ns() for event in events)
    spans = sorted((float(event.start_ns() - origin), float(event.duration_ns())) for event in events)
    busy_ms = union_length((start, start + length) for start, length in spans) / 1e6 / made.calls
    return DeviceTime(busy_ms, _table(events, made.calls))


def device_events(made: Pass) -> list[DeviceEvent]:
    """Return the kernels and copies that ran on the device, in the order of their starts."""
    events = sorted(_work(made.events), key=lambda event: event.start_ns())
    return [DeviceEvent(event.name(), event.duration_ns()) for event in events]


@dataclass(frozen=True, slots=True)
class _Undisturbed:
    """A kernel or a copy of one call, with its shortest duration in any call."""

    event: Any
    ns: int

    def duration_ns(self) -> int:
        return self.ns

    def __getattr__(self, name: str) -> Any:
        return getattr(self.event, name)


def quietest_call(passes: Sequence[Pass]) -> Pass:
    """Return the call with the shortest device time, as a pass of one call; the first one if there was no device activity.

    Its kernels take as long as in the call in which each was shortest, of the calls that launched the same ones. When the GPU
    turns to another process for a moment, a kernel takes 0.2 to 0.4 ms longer, which may be a tenth of the call, and no call may
    be without that. Nothing makes a kernel shorter.
    """

    def busy(one: Pass) -> float:
        found = device_time(one)
        return found.busy_ms if found else math.inf

    calls = [call for made in passes for call in _each_call(made)]
    quietest = min(calls, key=busy, default=Pass([], 1))
    launched = [_launches(call) for call in calls]
    own = _launches(quietest)
    alike = [one for one in launched if one.keys() == own.keys()]
    shortest = {id(event): min(one[key].duration_ns() for one in alike) for key, event in own.items()}
    events = [_Undisturbed(one, shortest[id(one)]) if id(one) in shortest else one for one in quietest.events]
    return Pass(events, 1)


def _launches(call: Pass) -> dict[tuple[str, int], Any]:
    """Return the kernels and copies of a call by name and number: the first one of a name is 0, as the device began them."""
    numbers = defaultdict[str, Iterator[int]](count)
    work = sorted(_work(call.events), key=lambda event: event.start_ns())
    return {(event.name(), next(numbers[event.name()])): event for event in work}


def _each_call(made: Pass) -> list[Pass]:
    """Return the calls of a pass: what began between the pause before a call and the pause before the next one."""
    starts = sorted(event.start_ns() for event in made.events if event.name() == CALL and not _on_device(event))
    starts = [start - int(1e9 * _APART_S / 2) for start in starts]
    calls = [Pass([], 1) for _ in starts]
    for event in made.events:
        if at := bisect_right(starts, event.start_ns()):
            calls[at - 1].events.append(event)
    return calls


def graph_use(made: Pass) -> GraphUse | None:
    """Return the part of one call of a pass that ran in CUDA graphs; None if the profiler saw no device activity.

    CUPTI gives the kernels of a graph the correlation id of the graph's launch.
    """
    raw, calls = made.events, made.calls
    launches = [
        event.correlation_id() for event in raw if event.name().endswith(_GRAPH_LAUNCH) and not _on_device(event)
    ]
    known, work = frozenset(launches), _work(raw)
    total_ns = sum(event.duration_ns() for event in work)
    if not total_ns:
        return None
    outside = [event for event in work if event.correlation_id() not in known]
    inside_ns = total_ns - sum(event.duration_ns() for event in outside)
    return GraphUse(len(launches) / calls, inside_ns / total_ns, len(outside) / calls, _table(outside, calls))


def _work(raw: list[Any]) -> list[Any]:
    return [event for event in raw if _on_device(event) and not _annotation(event)]


def _on_device(event: Any) -> bool:
    return bool(event.device_type() != torch.autograd.DeviceType.CPU)


def _annotation(event: Any) -> bool:
    # A user annotation covers the gaps between kernels too. torch 2.7 has no flag for annotations, so the name decides there.
    flag = getattr(event, "is_user_annotation", None)
    return bool(flag()) if flag else event.name().startswith(("ProfilerStep", "Torch-Compiled Region", "## "))


def _table(events: list[Any], calls: int) -> list[tuple[str, float, float]]:
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, int] = defaultdict(int)
    for event in events:
        name = event.name()[:160]
        counts[name] += 1
        times[name] += event.duration_ns()
    names = sorted(times, key=lambda name: -times[name])
    rows = [(name, counts[name] / calls, round(times[name] / 1e6 / calls, 6)) for name in names[:_KEPT]]
    if rest := names[_KEPT:]:
        spent = round(sum(times[name] for name in rest) / 1e6 / calls, 6)
        rows.append(("(other)", sum(counts[name] for name in rest) / calls, spent))
    return rows
