"""Which part of the host's work in a call takes longer: guards, bytecode, AOTAutograd, Inductor's wrapper, launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HostPart:
    """Microseconds of one call that a part of the host's work takes on both sides, 0 where a side has none of it."""

    name: str
    base_us: float
    new_us: float

    @property
    def change_us(self) -> float:
        """How much longer new takes."""
        return self.new_us - self.base_us


def host_parts(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[HostPart]:
    """Return the parts of two measurements' details, the largest change first; nothing where a side does not say them."""
    before, after = (_parts(details) for details in (base, new))
    if not before or not after:
        return []
    parts = [HostPart(name, before.get(name, 0.0), after.get(name, 0.0)) for name in dict.fromkeys((*before, *after))]
    return sorted(parts, key=lambda part: (-abs(part.change_us), -part.new_us))


def host_words(parts: list[HostPart]) -> str:
    """`host time 120 -> 170 us, most of it in guards (+45 us)`; empty where it did not change by a tenth."""
    base, new = sum(part.base_us for part in parts), sum(part.new_us for part in parts)
    if not parts or abs(new - base) < 0.1 * base:
        return ""
    most = max(parts, key=lambda part: part.change_us * (new - base))
    return f"host time {base:.0f} -> {new:.0f} us, most of it in {most.name} ({most.change_us:+.0f} us)"


def _parts(details: Mapping[str, Any]) -> dict[str, float]:
    recorded = details.get("host_parts_us")
    return {str(name): float(us) for name, us in recorded.items()} if isinstance(recorded, Mapping) else {}
