"""Why a GPU was held back while a cell was measured: the words of the collector as one small number.

It is kept beside the metrics (`db.packing.packed_metrics`), where whoever judges device times finds it for thousands
of rows at once;
the words themselves, with clocks and watts, are among a measurement's details.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The column's name.
THROTTLED = "throttled"
#: The reasons, the first of them worth 1, the next 2, 4, ... Part of the format: new ones go to the end, none ever moves.
#: They are `collector.machine.telemetry.THROTTLING`.
REASONS = ("power_cap", "hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake")


def throttled_of(details: Mapping[str, Any]) -> float | None:
    """The sum of the reasons that held right after the timed rounds; 0 for none, None where nobody looked (a CPU).

    Only then: a reason that held before the rounds is that of what the GPU had done until then.
    """
    surroundings = details.get("surroundings")
    after = surroundings.get("after") if isinstance(surroundings, Mapping) else None
    held_by = after.get("clocks_held_by") if isinstance(after, Mapping) else None
    if not isinstance(held_by, list | tuple):
        return None
    return float(sum(1 << place for place, name in enumerate(REASONS) if name in held_by))


def reasons_of(throttled: float | None) -> tuple[str, ...]:
    """The words behind the number; none for None and NaN."""
    if throttled is None or throttled != throttled:
        return ()
    return tuple(name for place, name in enumerate(REASONS) if int(throttled) >> place & 1)
