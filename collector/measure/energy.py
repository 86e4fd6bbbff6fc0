"""Joules of a call, by the energy counter of NVIDIA's GPUs.

The counter (`nvmlDeviceGetTotalEnergyConsumption`, millijoules since the driver was loaded) moves in steps of 20 to 100 ms, and
most calls are shorter. So calls are made in a row and the counter is read between them: where it has just moved it is up to
date. The energy from the first such moment to the last one, over the calls between them, is off by one reading's interval at
most, which must be `_PRECISION` of the time between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

#: The largest share by which the energy of a call may be off, and by which its halves may differ besides what is misread.
_PRECISION = 0.03
#: Seconds for which calls are made in a row: at least and at most.
_LEAST_S, _MOST_S = 0.6, 3.0
#: Seconds between two readings, where calls are not longer: reading takes a part of a millisecond.
_BETWEEN_S = 0.01
#: Seconds between two movements of the counter, together at both ends.
_STEP_S = 0.2
#: Movements of the counter that are needed.
_STEPS = 6


class NoEnergyError(RuntimeError):
    """The energy of a call cannot be read well enough; the message says why."""


class EnergyReading(NamedTuple):
    """The counter in millijoules, when it was read, in seconds, and after how many calls."""

    at: float
    calls: int
    millijoules: int


def joules_of(call: Callable[[], Any], finish: Callable[[], None], read: Callable[[], int], call_s: float) -> float:
    """Return the joules of one call, its GPU's idle power for that time included.

    `call_s` is about what a call takes; `finish` waits for the device, which nobody else may use. Raises `NoEnergyError`.
    """
    window = max(_LEAST_S, call_s / _PRECISION)
    if window > _MOST_S:
        raise NoEnergyError(f"a call takes {call_s:.2f} s: {_PRECISION:.0%} would take {window:.0f} s of calls")
    finish()
    begin = time.perf_counter()
    readings = [EnergyReading(begin, 0, _counter(read))]
    calls = 0
    # What comes before the first movement and after the last one does not count.
    while time.perf_counter() - begin < window + _STEP_S:
        call()
        finish()
        calls += 1
        if time.perf_counter() - readings[-1].at >= _BETWEEN_S:
            readings.append(EnergyReading(time.perf_counter(), calls, _counter(read)))
    return joules_per_call(readings)


def _counter(read: Callable[[], int]) -> int:
    try:
        return read()
    except Exception as error:  # NVML's own kinds of errors come with its package
        raise NoEnergyError(f"the counter cannot be read: {error}") from error


def joules_per_call(readings: Sequence[EnergyReading]) -> float:
    """Return the joules of one call from readings of the counter in their order. Raises `NoEnergyError`."""
    steps = [later for earlier, later in pairwise(readings) if later.millijoules != earlier.millijoules]
    if len(steps) < _STEPS:
        raise NoEnergyError(f"the counter moved {len(steps)} times in {readings[-1].at - readings[0].at:.1f} s")
    first, middle, last = steps[0], steps[len(steps) // 2], steps[-1]
    between = [one for one in readings if first.at <= one.at <= last.at]
    gap = max(later.at - earlier.at for earlier, later in pairwise(between))
    if gap > _PRECISION * (last.at - first.at):
        raise NoEnergyError(
            f"read every {gap:.3f} s in {last.at - first.at:.1f} s, which is not within {_PRECISION:.0%}"
        )
    halves = [_between(first, middle), _between(middle, last)]
    misread = 2 * gap / min(middle.at - first.at, last.at - middle.at)
    if max(halves) > (1 + _PRECISION + misread) * min(halves):
        raise NoEnergyError(f"the first half of the calls took {halves[0]:.4g} J each, the second {halves[1]:.4g} J")
    return _between(first, last)


def _between(first: EnergyReading, last: EnergyReading) -> float:
    return (last.millijoules - first.millijoules) / 1e3 / max(1, last.calls - first.calls)
