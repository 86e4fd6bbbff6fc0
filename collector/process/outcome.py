"""The outcome that a measuring process returns to its parent, and arithmetic of the time spans in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from collector.vocabulary import Measurement, Status

#: Details on the process itself: its times, and disturbances of its latencies.
_OF_A_PROCESS = ("stage_s", "waited_s", "stopped_s", "held_s", "disturbed")
#: Begin and end, in any unit.
Span = tuple[float, float]


def union_length(spans: Iterable[Span]) -> float:
    """Return the length of the union of half-open intervals; an interval that ends before it starts is empty."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        begin = max(start, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total


def merged(spans: Iterable[Span], within: Span) -> list[Span]:
    """Return the part of the union of intervals that lies in `within`, as disjoint intervals in order, none empty."""
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
    """Return the intervals of `within` that the union of `spans` does not cover, in order."""
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

    `compile_windows`: the spans on the monotonic clock in which a metric of compile time was spent, by metric; the parent
    subtracts the time for which the process was stopped in them. `lacked_room`: lack of memory prevented a reference or the
    search for near ties; other cells may have held the memory, so the cell is measured again alone. `timed`: the metrics and
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
        """Return this outcome with the latencies of another process that found this process's compiled program.

        Return None if the other process failed or has other code, since its latencies are then of another program.
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
        """Return a JSON object that `from_json` reads back."""
        return {name: getattr(self, name) for name in self.__slots__} | {"measurement": self.measurement.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """Build an outcome from the object that `to_json` made."""
        windows = {
            name: [(float(begin), float(end)) for begin, end in spans]
            for name, spans in data["compile_windows"].items()
        }
        return cls(**{**data, "measurement": Measurement.from_json(data["measurement"]), "compile_windows": windows})
