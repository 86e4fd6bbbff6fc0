"""What is measured besides, or more carefully, than a night does of itself; a plan in a file can ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Care:
    """The 95 % interval of the medians as a fraction of them, a second compilation, and a folder for torch's traces."""

    precision: float | None = None
    warm_compile: bool = False
    trace: Path | None = None

    def or_else(self, planned: Care) -> Care:
        """This, and what a plan says where this says nothing."""
        return Care(
            self.precision or planned.precision, self.warm_compile or planned.warm_compile, self.trace or planned.trace
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object with what was said; `from_json` reads it back."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) if isinstance(value, Path) else value for name, value in said.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Care:
        """The inverse of `to_json`. Raises `TypeError` or `ValueError` for what no `Care` has."""
        found = cls(**data)
        number = 0.0 if found.precision is None else float(found.precision)
        if not 0 <= number <= 1 or not isinstance(found.warm_compile, bool):
            raise ValueError(f"precision {found.precision!r}, warm_compile {found.warm_compile!r}")
        return replace(found, precision=number or None, trace=Path(found.trace) if found.trace else None)
