"""What a measuring process hands back to its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.vocabulary import Measurement


@dataclass(slots=True)
class Outcome:
    """A measurement, what its ids stand for, and signals for the parent, which are not stored.

    Attributes:
        environment: the fingerprint behind `environment_id`.
        program: the effective options behind `program_id`.
        compile_windows: begin and end of each compilation in seconds of the monotonic clock, by the metric that it gives.
            The parent subtracts the time for which the process stood still in between.
        lacked_room: whether there was no memory for the float64 reference. Beside other cells that proves nothing, so the
            cell is measured again alone.
    """

    measurement: Measurement
    environment: dict[str, Any] = field(default_factory=dict)
    program: dict[str, Any] = field(default_factory=dict)
    compile_windows: dict[str, tuple[float, float]] = field(default_factory=dict)
    lacked_room: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return {
            "measurement": self.measurement.to_json(),
            "environment": self.environment,
            "program": self.program,
            "compile_windows": self.compile_windows,
            "lacked_room": self.lacked_room,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The inverse of `to_json`."""
        windows = {name: (float(begin), float(end)) for name, (begin, end) in data["compile_windows"].items()}
        return cls(
            Measurement.from_json(data["measurement"]),
            dict(data["environment"]),
            dict(data["program"]),
            windows,
            bool(data["lacked_room"]),
        )
