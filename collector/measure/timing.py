"""Wall-clock samples of eager and compiled calls, and how well they determine their median."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

Call = Callable[[], Any]

#: The 97.5 % quantile of the normal distribution, for a 95 % interval.
_Z = 1.959964
#: Fewer samples than this give no interval.
_FEWEST = 6
#: torch's instruction counter returns -1 as an unsigned number where the kernel or the container forbids it.
_NO_COUNT = 1 << 63


def synchronize(device: str) -> None:
    """Waits until the device has finished all work. Does nothing on a CPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed_s(call: Call, device: str) -> float:
    """Seconds of one call, from an idle device to an idle device. The result is freed after the clock stops."""
    synchronize(device)
    start = time.perf_counter()
    made = call()
    synchronize(device)
    elapsed = time.perf_counter() - start
    del made
    return elapsed


def settle(eager: Call, compiled: Call, device: str, limit_s: float = 0.05, within: float = 0.05) -> int:
    """Calls both forms in turn until the last three compiled calls agree to `within`, or `limit_s` is spent.

    This keeps rising clocks and cold host caches out of the samples. Returns the number of rounds.
    """
    deadline = time.perf_counter() + limit_s
    took: list[float] = []
    while len(took) < 3 or max(took[-3:]) > (1 + within) * min(took[-3:]):
        timed_s(eager, device)
        took.append(timed_s(compiled, device))
        if time.perf_counter() > deadline:
            break
    return len(took)


def interleaved_ms(
    calls: Sequence[Call],
    device: str,
    rounds: int,
    limit_s: float,
    precision: float = 0.0,
) -> list[list[float]]:
    """`rounds` samples of each call in milliseconds. Drift affects all calls equally: each round has one of each.

    Stops early once `limit_s` seconds are spent, but not before five rounds. With a `precision` it continues until all
    medians are known to that fraction, up to ten times `rounds`.
    """
    samples: list[list[float]] = [[] for _ in calls]
    deadline = time.perf_counter() + limit_s
    for done in range(10 * rounds if precision else rounds):
        if done >= 5 and time.perf_counter() > deadline:
            break
        if done >= rounds and done % 10 == 0 and all(_is_precise(form, precision) for form in samples):
            break
        for call, sampled in zip(calls, samples, strict=True):
            sampled.append(1e3 * timed_s(call, device))
    return samples


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Keeps Python's cyclic garbage collector from running inside a sample. Collect once before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def counted(action: Callable[[], float]) -> tuple[float, int | None]:
    """The result of `action`, and the user-space instructions that this thread retired in it.

    None where the machine cannot count (Linux perf events). Compile workers and other threads are not counted.
    """
    end = counter_from_here()
    try:
        result = action()
    finally:
        found = end() if end else 0
    return result, found or None


def counter_from_here() -> Callable[[], int] | None:
    """Begin to count this thread's user-space instructions; the returned function ends that. None where that is forbidden."""
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
    """Half the 95 % confidence interval of the median, divided by the median; None for fewer than six samples.

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
    """The median of the last third over that of the first third, minus one; None for fewer than six samples.

    A value far from zero means that clock, temperature or a cache had not settled.
    """
    third = len(samples) // 3
    if len(samples) < _FEWEST or (first := median(samples[:third])) <= 0:
        return None
    return median(samples[-third:]) / first - 1


def _is_precise(samples: Sequence[float], wanted: float) -> bool:
    width = relative_half_width(samples)
    return width is not None and width <= wanted
