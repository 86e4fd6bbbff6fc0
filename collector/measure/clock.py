"""Wall-clock samples of eager and compiled calls, interleaved, with the device synchronised around each."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from collector.measure.precision import is_precise

Call = Callable[[], Any]


def synchronize(device: str) -> None:
    """Waits until the device has nothing left to do; on a CPU there is nothing to wait for."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed_s(call: Call, device: str) -> float:
    """Seconds of one call, from an idle device to an idle device. The result is dropped after the clock stops."""
    synchronize(device)
    start = time.perf_counter()
    made = call()
    synchronize(device)
    elapsed = time.perf_counter() - start
    del made
    return elapsed


def settle(eager: Call, compiled: Call, device: str, limit_s: float = 0.05, within: float = 0.05) -> int:
    """Calls both in turn until the last three compiled calls agree to `within`, or `limit_s` is spent; how often it did.

    Clocks that rise from idle, and caches of the host that are cold after a wait, then are no part of the samples.
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
    eager: Call,
    compiled: Call,
    device: str,
    rounds: int,
    limit_s: float,
    precision: float = 0.0,
    before_round: Callable[[], None] = lambda: None,
) -> tuple[list[float], list[float]]:
    """`rounds` pairs of samples in milliseconds, eager and compiled in turn so that drift meets both alike.

    Stops early, but not before five pairs, once `limit_s` seconds are spent: the number of samples kept then tells. With
    a `precision` it goes on, up to ten times `rounds`, until both medians are known to it.
    """
    samples: tuple[list[float], list[float]] = ([], [])
    deadline = time.perf_counter() + limit_s
    for done in range(10 * rounds if precision else rounds):
        if done >= 5 and time.perf_counter() > deadline:
            break
        if done >= rounds and done % 10 == 0 and all(is_precise(found, precision) for found in samples):
            break
        before_round()
        # Which of the two comes first changes each round, so that neither always runs on the other's warm caches.
        for which in ((0, 1), (1, 0))[done % 2]:
            samples[which].append(1e3 * timed_s((eager, compiled)[which], device))
    return samples


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Keeps Python's cyclic collector from running in the middle of a sample. Collect once before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
