"""What every reader hands on: one row of somebody's results, with whatever was told about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from db.importing.values import Value, meant


class Target(StrEnum):
    """Which question a row answers."""

    PERFORMANCE = "performance"
    ACCURACY = "accuracy"
    PHASES = "compile_phases"
    BREAKS = "graph_breaks"
    GRAPHNET = "graphnet"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Source:
    """A file that is read. `folder` only tells files of one name apart; it is stored nowhere."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """The file's name without its folder: a bundle holds no folders of a host."""
        return self.path.name

    @property
    def stem(self) -> str:
        """The name without its ending: what a table and the JSON beside it share."""
        name = self.name.removesuffix(".gz")
        return name.rpartition(".")[0] or name

    @property
    def folder(self) -> str:
        """Where it lies."""
        return str(self.path.parent)


@dataclass(frozen=True, slots=True)
class Told:
    """What a record's uploader says of the run that it belongs to; None where it says nothing."""

    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    timestamp: float | None = None
    workflow_id: str | None = None
    run_attempt: int | None = None

    @property
    def is_silent(self) -> bool:
        """Whether nothing is known of the run."""
        return self == Told()


@dataclass(frozen=True, slots=True)
class Kind:
    """What is measured, as far as the row itself tells."""

    suite: str | None = None
    mode: str | None = None
    dtype: str | None = None
    backend: str | None = None
    benchmark: str | None = None


@dataclass(slots=True)
class Row:
    """One row. `values` are by the file's own column names, in its order; several values of one are samples.

    `arguments` are those of the program that measured; `extra` is whatever else the record holds. `padded` says that
    the file filled the row up with zeros; `surplus` holds values of a table that differ from those of the JSON beside it.
    """

    source: Source
    line: int
    target: Target
    model: str
    values: dict[str, list[Value]]
    device: str | None = None
    batch_size: int | None = None
    kind: Kind = Kind()
    told: Told = Told()
    arguments: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    surplus: dict[str, Value] = field(default_factory=dict)
    padded: bool = False
    notes: list[str] = field(default_factory=list)

    def flag(self, name: str) -> Any:
        """An argument as it was meant; None where it is not told."""
        return meant(self.arguments.get(name))

    @property
    def place(self) -> str:
        """`FILE:LINE`."""
        return f"{self.source.name}:{self.line}"

    def first(self, name: str) -> Value:
        """The first value of a column, or None where there is none."""
        found = self.values.get(name)
        return found[0] if found else None
