"""What one process hands back: a measurement, and what its ids stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collector.vocabulary import Measurement


@dataclass(slots=True)
class Outcome:
    """A measurement with the fingerprint and the effective options that its ids stand for."""

    measurement: Measurement
    environment: dict[str, Any] = field(default_factory=dict)
    program: dict[str, Any] = field(default_factory=dict)
