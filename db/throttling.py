"""What held a GPU's clocks down while a cell was measured, from the details of the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.machine.telemetry import THROTTLING


def throttled_by(details: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The reasons right after the timed rounds, in the order of their names; None where nobody looked (a CPU).

    Reasons before the rounds do not count: they come from what the GPU did until then.
    """
    readings = details.get("surroundings")
    after = readings.get("after") if isinstance(readings, Mapping) else None
    reasons = after.get("clocks_held_by") if isinstance(after, Mapping) else None
    if not isinstance(reasons, list | tuple):
        return None
    return tuple(sorted(name for name in THROTTLING if name in reasons))
