"""What is to be measured in the environment of another build: one JSON object, from the one process to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from collector.settings import Settings
from collector.vocabulary import short_hash
from jobs.option_groups import Selection
from jobs.pool.runner import Pace, RunNames


@dataclass(frozen=True, slots=True)
class Request:
    """A run: its cells, its names, how it measures, and the folder for its bundle.

    `selection` and `configs` stand as they were typed: what they mean is for the torch that measures.
    """

    selection: Selection
    configs: tuple[str, ...]
    names: RunNames
    settings: Settings
    pace: Pace
    folder: str = ""

    @property
    def key(self) -> str:
        """Six hexadecimal digits that name what is measured and how, whatever the build, the names and the folder."""
        told = self.to_json()
        return short_hash([told[name] for name in ("selection", "configs", "settings", "pace")])[:6]

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back. There is no budget in it."""
        return {
            "selection": asdict(self.selection),
            "configs": list(self.configs),
            "names": asdict(self.names),
            "settings": self.settings.to_json(),
            "pace": {name: value for name, value in asdict(self.pace).items() if name != "budget_s"},
            "folder": self.folder,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Request:
        """The inverse of `to_json`."""
        chosen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data["selection"].items()
        }
        return cls(
            Selection(**chosen),
            tuple(data["configs"]),
            RunNames(**data["names"]),
            Settings.from_json(data["settings"]),
            Pace(**data["pace"]),
            str(data["folder"]),
        )

    def called(self, **names: Any) -> Request:
        """The same under other names: fields of `RunNames`."""
        return replace(self, names=replace(self.names, **names))
