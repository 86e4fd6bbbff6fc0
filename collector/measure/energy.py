"""Joules of a call, by the energy counter of NVIDIA's GPUs.

The counter (`nvmlDeviceGetTotalEnergyConsumption`, millijoules since the driver was loaded) moves in steps of 20 to 100 ms, and
most calls are shorter. So calls are made in a row while a thread reads the counter, which is up to date right after a movement.
The energy from one of the first movements to one of the last is divided by the calls between them. Its error is the longer
interval between readings at these two ends; calls go on until that is at most `_PRECISION` of the time between the ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, product
from threading import Event, Thread
from typing import Any, NamedTuple

#: The largest relative error of a call's energy, and the largest relative difference of its halves besides reading errors.
_PRECISION = 0.03
#: The least and the most seconds for which calls are made in a row.
_LEAST_S, _MOST_S = 0.8, 3.0
#: Seconds between two readings, and seconds of further calls if the readings do not suffice.
_BETWEEN_S, _AGAIN_S = 0.005, 0.2
#: The fewest movements of the counter: each end is one of the first or last `_ENDS`, and one lies between them.
_STEPS, _ENDS = 7, 3


class NoEnergyError(RuntimeError):
    """An energy of a call that cannot be read precisely enough; the message says why."""


class EnergyReading(NamedTuple):
    """A reading of the counter: its time in seconds, the number of calls before it, and the millijoules."""

    at: float
    calls: int
    millijoules: int


def joules_of(call: Callable[[], Any], finish: Callable[[], None], read: Callable[[], int], call_s: float) -> float:
    """Return the joules of one call, including the GPU's idle power for its time.

    `call_s` is the approximate time of a call; `finish` waits for the device, which nobody else may use. Raises `NoEnergyError`.
    """
    window = max(_LEAST_S, call_s / _PRECISION)
    if window > _MOST_S:
        raise NoEnergyError(f"a call takes {call_s:.2f} s: {_PRECISION:.0%} would take {window:.0f} s of calls")
    readings = _Readings(read)
    finish()
    with readings.taken_beside():
        begin = time.perf_counter()
        while True:
            call()
            finish()
            readings.calls += 1
            if (spent := time.perf_counter() - begin) < window:
                continue
            try:
                return joules_per_call(readings.so_far())
            except NoEnergyError:
                if spent >= _MOST_S:
                    raise
            window += _AGAIN_S


class _Readings:
    """Readings of the counter that a thread takes while calls are made; a reading takes up to 25 ms on an H100."""

    def __init__(self, read: Callable[[], int]) -> None:
        self.calls = 0
        self._read, self._done = read, Event()
        self._taken: list[EnergyReading] = []
        self._error: NoEnergyError | None = None

    @contextmanager
    def taken_beside(self) -> Iterator[None]:
        """Take readings until the end of this context."""
        thread = Thread(target=self._take, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()

    def _take(self) -> None:
        try:
            while not self._done.is_set():
                found = _counter(self._read)
                # The time of a reading is its end, as for calls.
                self._taken.append(EnergyReading(time.perf_counter(), self.calls, found))
                self._done.wait(_BETWEEN_S)
        except NoEnergyError as error:
            self._error = error

    def so_far(self) -> list[EnergyReading]:
        """Return the readings so far, in order. Raises `NoEnergyError` if the counter could not be read."""
        if self._error:
            raise self._error
        return list(self._taken)


def _counter(read: Callable[[], int]) -> int:
    try:
        return read()
    except Exception as error:  # NVML's own error types are in its package, which may be absent
        raise NoEnergyError(f"the counter cannot be read: {error}") from error


def joules_per_call(readings: Sequence[EnergyReading]) -> float:
    """Return the joules of one call from the counter's readings, in order. Raises `NoEnergyError`."""
    if not readings:
        raise NoEnergyError("the counter was not read in time")
    steps = [(one, two) for one, two in pairwise(readings) if two.millijoules != one.millijoules]
    if len(steps) < _STEPS:
        raise NoEnergyError(f"the counter moved {len(steps)} times in {readings[-1].at - readings[0].at:.1f} s")
    # The movements at both ends are seen late, so that the error is at most the longer of the two delays.
    doubt, (start, end) = min(
        (max(map(_interval, pair)) / (pair[1][1].at - pair[0][1].at), pair)
        for pair in product(steps[:_ENDS], steps[-_ENDS:])
    )
    if doubt > _PRECISION:
        took = end[1].at - start[1].at
        raise NoEnergyError(f"read every {doubt * took:.3f} s in {took:.1f} s, which is not within {_PRECISION:.0%}")
    half = steps[len(steps) // 2]
    first, middle, last = start[1], half[1], end[1]
    begun, halfway, ended = map(_interval, (start, half, end))
    halves = [_between(first, middle), _between(middle, last)]
    misread = max(begun, halfway) / (middle.at - first.at) + max(halfway, ended) / (last.at - middle.at)
    if max(halves) > (1 + _PRECISION + misread) * min(halves):
        raise NoEnergyError(f"the first half of the calls took {halves[0]:.4g} J each, the second {halves[1]:.4g} J")
    return _between(first, last)


def _interval(step: tuple[EnergyReading, EnergyReading]) -> float:
    """Return the seconds between the readings before and after a movement."""
    before, after = step
    return after.at - before.at


def _between(first: EnergyReading, last: EnergyReading) -> float:
    return (last.millijoules - first.millijoules) / 1e3 / max(1, last.calls - first.calls)
