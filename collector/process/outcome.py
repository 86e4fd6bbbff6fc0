"""What a measuring process hands back to its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.spans import Span
from collector.vocabulary import Measurement


@dataclass(slots=True)
class Outcome:
    """A measurement, the environment, program and code behind its ids, and signals for the parent, which are not stored.

    `code` is a `collector.code.Code` as JSON, `texts` are its texts by id.

    `compile_windows`: by metric the spans on the monotonic clock in which it was spent; the parent subtracts the time for
    which the process stood still in them. `lacked_room`: for want of memory no reference decided, or near ties could
    not be told, which proves nothing beside other cells, so the cell is measured again alone.
    """

    measurement: Measurement
    environment: dict[str, Any] = field(default_factory=dict)
    program: dict[str, Any] = field(default_factory=dict)
    code: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    compile_windows: dict[str, list[Span]] = field(default_factory=dict)
    lacked_room: bool = False

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
