"""Which cores a process may use. Set before torch is imported, which sizes its thread pools by them."""

from __future__ import annotations

import os
from collections.abc import Sequence

#: Core numbers separated by commas, handed to a cell's process and inherited by all it starts.
VARIABLE = "INDUCTOR_WATCH_CORES"


def pin_to_cores() -> None:
    """Keeps this process to the cores named in the variable; without it nothing changes."""
    if text := os.environ.get(VARIABLE):
        os.sched_setaffinity(0, {int(number) for number in text.split(",")})


def spell_cores(cores: Sequence[int]) -> dict[str, str]:
    """The variable that has a process keep to these cores; nothing for none."""
    return {VARIABLE: ",".join(map(str, cores))} if cores else {}


def share_out(cores: Sequence[int], workers: int) -> list[list[int]]:
    """Divides cores among workers, equally many each and neighbours together; what is left over stays free.

    Raises:
        ValueError: more workers than cores.
    """
    each = len(cores) // workers
    if each == 0:
        raise ValueError(f"{workers} workers need at least {workers} cores, there are {len(cores)}")
    return [list(cores[first * each : (first + 1) * each]) for first in range(workers)]
