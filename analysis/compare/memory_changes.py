"""Why the memory of a compiled program changed: what is saved for the backward pass, and what is alive at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from analysis.compare.side_differences import REST

#: Units of bytes: from which value on, the divisor, and how.
_UNITS = ((1e9, 1e9, "{:.2f} GB"), (1e6, 1e6, "{:.0f} MB"))
#: Where details have what, as `collector.measure.memory` writes it.
_SAVED, _PEAK = "saved_tensors", "peak_lines"


def byte_words(number: float) -> str:
    """Return a number of bytes with its unit; many are in MB (10^6) or GB (10^9)."""
    large = ((divisor, form) for least, divisor, form in _UNITS if abs(number) >= least)
    divisor, form = next(large, (1.0, "{:,.0f} B"))
    return form.format(number / divisor)


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Tensors of one shape and dtype that are saved, or what one line allocated that is alive at the peak.

    `about` has the operators that made the tensors, as far as they are known. A side without such a part has 0 of it.
    """

    name: str
    about: str
    base: int
    new: int
    base_bytes: int
    new_bytes: int
    is_saved: bool

    @property
    def change(self) -> int:
        """How many bytes more new has."""
        return self.new_bytes - self.base_bytes

    @property
    def words(self) -> str:
        """`+0.84 GB: 2 more tensors of [128, 96, 56, 56] float32 saved for backward (mul)`."""
        size = f"{'+' if self.change > 0 else ''}{byte_words(self.change)}"
        if not self.is_saved:
            return f"{size} alive at the peak ({self.base} -> {self.new} times): {self.name}"
        count = abs(self.new - self.base)
        which = "more " if self.new > self.base else "fewer " if self.new < self.base else "larger "
        tensors = f"{f'{count} ' if count else ''}{which}tensor{'s' * (count != 1)} of {self.name} saved for backward"
        return f"{size}: {tensors}{f' ({self.about})' if self.about else ''}"


def saved_parts(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[MemoryPart]:
    """Return what two measurements' details say is saved for the backward pass, the largest change first.

    Nothing where a side does not say it. A part of one side that may be among those that the other does not list is left out.
    """
    return _parts(base, new, _SAVED)


def peak_parts(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[MemoryPart]:
    """Return what is alive at the peak by the line that allocated it, as `saved_parts` does."""
    return _parts(base, new, _PEAK)


def memory_words(base: Mapping[str, Any], new: Mapping[str, Any], least: float) -> list[str]:
    """Return a sentence for each part that changed by `least` bytes: of what is saved, or where none did, of the peak."""
    for parts in (saved_parts(base, new), peak_parts(base, new)):
        if changed := [part.words for part in parts if abs(part.change) >= max(least, 1.0)]:
            return changed
    return []


def _parts(base: Mapping[str, Any], new: Mapping[str, Any], key: str) -> list[MemoryPart]:
    if key not in base or key not in new:
        return []
    before, after = (_rows(details[key], key) for details in (base, new))
    parts = []
    for name in dict.fromkeys((*before, *after)):
        (of_base, base_count, base_bytes), (of_new, new_count, new_bytes) = (
            side.get(name, ("", 0, 0)) for side in (before, after)
        )
        is_unknown = any(
            name not in side and REST in side and other[name][2] <= min(size for _, _, size in side.values())
            for side, other in ((before, after), (after, before))
        )
        if name != REST and not is_unknown:
            counts = base_count, new_count, base_bytes, new_bytes
            parts.append(MemoryPart(name, of_new or of_base, *counts, is_saved=key == _SAVED))
    return sorted(parts, key=lambda part: (-abs(part.change), -part.new_bytes))


def _rows(listed: Any, key: str) -> dict[str, tuple[str, int, int]]:
    """Return operators, count and bytes by name; what another version wrote otherwise is left out."""
    return dict(_named(listed, key)) if isinstance(listed, list) else {}


def _named(listed: list[Any], key: str) -> Iterator[tuple[str, tuple[str, int, int]]]:
    for row in listed:
        match row:
            case [str(operators), list(shape), str(dtype), int(count), int(size)] if key == _SAVED:
                yield f"{shape} {dtype}", (operators, count, size)
            case [str(rest), None, _, int(count), int(size)] if key == _SAVED:
                yield rest, ("", count, size)
            case [str(line), int(count), int(size)] if key == _PEAK:
                yield line, ("", count, size)
