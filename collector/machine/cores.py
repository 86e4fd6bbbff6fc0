"""The cores that a process may use. Set them before torch is imported, which sizes its thread pools by them."""

from __future__ import annotations

import os
from collections.abc import Sequence

#: Core numbers separated by commas; a cell's process gets the variable, and its children inherit it.
VARIABLE = "INDUCTOR_WATCH_CORES"
#: Spelled likewise: the cores of all workers of a device, on which a cell may compile candidates while they are idle.
LENT_VARIABLE = "INDUCTOR_WATCH_LENT_CORES"


def pin_to_cores() -> None:
    """Restricts this process to the cores in the variable, if it is set."""
    if cores := _read(VARIABLE):
        os.sched_setaffinity(0, cores)


def lent_cores() -> set[int]:
    """Return the cores on which this process may compile candidates while they are idle; empty for none but its own."""
    return _read(LENT_VARIABLE)


def spell_cores(cores: Sequence[int], variable: str = VARIABLE) -> dict[str, str]:
    """The variable that restricts a process to these cores, or another one; empty for no cores."""
    return {variable: ",".join(map(str, cores))} if cores else {}


def share_out(cores: Sequence[int], workers: int) -> list[list[int]]:
    """Divides cores among workers: equally many neighbouring cores each. Remaining cores stay free.

    Raises:
        ValueError: more workers than cores.
    """
    each = len(cores) // workers
    if each == 0:
        raise ValueError(f"{workers} workers need at least {workers} cores, there are {len(cores)}")
    return [list(cores[first * each : (first + 1) * each]) for first in range(workers)]


def _read(variable: str) -> set[int]:
    return {int(number) for number in os.environ.get(variable, "").split(",") if number}
