"""A separate profiler pass: how long the device was busy in a call, and with which kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from collector.measure.timing import synchronize
from collector.spans import union_length

#: Kernels kept by name, those that take longest; the rest is summed under "(other)".
_KEPT = 24
#: The end of the name of what launches a graph, in CUDA's runtime and in its driver.
_GRAPH_LAUNCH = ("GraphLaunch", "GraphLaunch_ptsz")


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Device time of one call.

    `busy_ms` is the length of the union of all device intervals: the median over the calls, since a process that uses the
    GPU for some milliseconds makes one call longer. It is the mean where calls differ in their number of kernels. `kernels`
    lists [name, launches, ms] per call, in the mean.
    """

    busy_ms: float
    kernels: list[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class GraphUse:
    """What of one call's work on the device was launched with a CUDA graph.

    `launches` counts the graphs, `share` is the part of the device time of kernels and copies that ran in them, and
    `outside` has the others as [name, launches, ms] per call, as `DeviceTime.kernels` does; `kernels_outside` is their number.
    """

    launches: float
    share: float
    kernels_outside: float
    outside: list[tuple[str, float, float]]


def warm_up() -> None:
    """Starts and stops the profiler once, since its first start in a process takes longer than the calls."""
    with _profiler():
        torch.zeros(1, device="cuda")
        synchronize("cuda")


def record(call: Callable[[], Any], calls: int) -> profile:
    """Profiles `calls` calls on the GPU. The profiler is read later, when the machine need not be quiet."""
    synchronize("cuda")
    with _profiler() as profiler:
        for _ in range(calls):
            call()
            synchronize("cuda")
    return profiler


def device_time(profiler: profile, calls: int) -> DeviceTime | None:
    """The device-busy time of one of `calls` calls and its kernels; None if the profiler saw no device activity."""
    events = _work(_raw_events(profiler))
    if not events:
        return None
    # Counted from the first event: nanoseconds since 1970 exceed what a float holds exactly.
    origin = min(event.start_ns() for event in events)
    spans = sorted((float(event.start_ns() - origin), float(event.duration_ns())) for event in events)
    return DeviceTime(busy_ms(spans, calls), _table(events, calls))


def graph_use(profiler: profile, calls: int) -> GraphUse | None:
    """What of one of `calls` calls ran in CUDA graphs; None if the profiler saw no device activity.

    CUPTI gives what a graph runs the correlation id of the graph's launch.
    """
    raw = _raw_events(profiler)
    launches = [event.correlation_id() for event in raw if event.name().endswith(_GRAPH_LAUNCH) and not _on_gpu(event)]
    known, work = frozenset(launches), _work(raw)
    total_ns = sum(event.duration_ns() for event in work)
    if not total_ns:
        return None
    outside = [event for event in work if event.correlation_id() not in known]
    inside_ns = total_ns - sum(event.duration_ns() for event in outside)
    return GraphUse(len(launches) / calls, inside_ns / total_ns, len(outside) / calls, _table(outside, calls))


def _raw_events(profiler: profile) -> list[Any]:
    # Building the tree of profiler.events() takes seconds for a large model.
    return list(profiler.profiler.kineto_results.events()) if profiler.profiler else []


def _work(raw: list[Any]) -> list[Any]:
    return [event for event in raw if _on_gpu(event) and not _annotation(event)]


def _on_gpu(event: Any) -> bool:
    return bool(event.device_type() == torch.autograd.DeviceType.CUDA)


def busy_ms(spans: Sequence[tuple[float, float]], calls: int) -> float:
    """Return the milliseconds in which the device was busy in one of `calls` calls, each from an idle device to an idle one.

    `spans` are start and length in nanoseconds, in the order of their starts.
    """
    ends = [(start, start + length) for start, length in spans]
    each, rest = divmod(len(ends), calls)
    if rest:
        return union_length(ends) / 1e6 / calls
    return median(union_length(ends[at : at + each]) for at in range(0, len(ends), each)) / 1e6


def _profiler() -> profile:
    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=False)


def _annotation(event: Any) -> bool:
    # A user annotation covers the gaps between kernels too; torch 2.7 has no flag for it, there the name tells.
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
