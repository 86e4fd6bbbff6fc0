"""What a measuring process hands back to its parent, and the lengths of the spans of time in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from collector.vocabulary import Measurement, Status

#: Details that say what a process took itself, and what was wrong with its latencies.
_OF_A_PROCESS = ("stage_s", "waited_s", "stopped_s", "held_s", "disturbed")
#: Begin and end, in any unit.
Span = tuple[float, float]


def union_length(spans: Iterable[Span]) -> float:
    """Length of the union of half-open intervals, in the unit of its ends; an interval that ends before it starts is empty."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        begin = max(start, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total


def merged(spans: Iterable[Span], within: Span) -> list[Span]:
    """Return the union of intervals as far as it lies in `within`: disjoint intervals that are not empty, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        begin, stop = max(start, within[0]), min(end, within[1])
        if begin >= stop:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((begin, stop))
    return found


def gaps(spans: Iterable[Span], within: Span) -> list[Span]:
    """Return what `merged` leaves of `within`."""
    found, reached = [], within[0]
    for begin, end in [*merged(spans, within), (within[1], within[1])]:
        if begin > reached:
            found.append((reached, begin))
        reached = end
    return found


@dataclass(slots=True)
class Outcome:
    """A measurement, the environment, program and code behind its ids, and signals for the parent, which are not stored.

    `code` is a `collector.code.Code` as JSON, `texts` are its texts by id.

    `compile_windows`: by metric the spans on the monotonic clock in which it was spent; the parent subtracts the time for
    which the process stood still in them. `lacked_room`: for want of memory no reference decided, or near ties could
    not be told, which proves nothing beside other cells, so the cell is measured again alone. `timed`: the metrics and
    details that were taken while the program was timed and profiled.
    """

    measurement: Measurement
    environment: dict[str, Any] = field(default_factory=dict)
    program: dict[str, Any] = field(default_factory=dict)
    code: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    compile_windows: dict[str, list[Span]] = field(default_factory=dict)
    lacked_room: bool = False
    timed: list[str] = field(default_factory=list)

    def timed_again(self, again: Outcome) -> Outcome | None:
        """Return this outcome with the latencies of another process, which found the program that this one had compiled.

        None where that process failed, or has another program: what it says is then about something else.
        """
        first, second = self.measurement, again.measurement
        if second.status is not Status.PASS or second.code_id != first.code_id or not again.timed:
            return None
        theirs = {*self.timed, *again.timed, *_OF_A_PROCESS}

        def mixed(ours: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
            kept = {name: value for name, value in ours.items() if name not in theirs}
            return kept | {name: value for name, value in new.items() if name in theirs}

        measurement = replace(
            first,
            started_at=second.started_at,
            wall_s=second.wall_s,
            metrics=mixed(first.metrics, second.metrics),
            details=mixed(first.details, second.details),
            samples=second.samples,
        )
        return replace(again, measurement=measurement)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return {name: getattr(self, name) for name in self.__slots__} | {"measurement": self.measurement.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The inverse of `to_json`."""
        windows = {
            name: [(float(begin), float(end)) for begin, end in spans]
            for name, spans in data["compile_windows"].items()
        }
        return cls(**{**data, "measurement": Measurement.from_json(data["measurement"]), "compile_windows": windows})
