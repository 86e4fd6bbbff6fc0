"""What one task is to measure and how: one JSON object from the driver to the node, and nothing that runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from collector.bundle import BundleContents
from collector.settings import Settings
from collector.vocabulary import Cell, Measurement, Status
from jobs.plan.cost import CostModel
from jobs.plan.schedule import Group, group_of
from jobs.pool.runner import Pace, RunNames

#: Host and number of the GPU (None on a CPU) that a group of cells was measured on.
Spot = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Request:
    """The cells of a task, in their order, and all that a node must know to measure them as the driver asks.

    `torch_git` and `tool` are what the node must have; after `until` (seconds since the epoch, None for no limit) no cell is
    started; `known` are costs in the form of measurements; `last` says where groups were measured last; `variables` are
    added to the environment.
    """

    cells: Sequence[Cell]
    names: RunNames
    settings: Settings
    pace: Pace
    torch_git: str
    tool: str
    until: float | None = None
    known: Sequence[Measurement] = ()
    last: Mapping[Group, Spot] | None = None
    variables: Mapping[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return {
            "cells": [cell.to_json() for cell in self.cells],
            "names": asdict(self.names),
            "settings": self.settings.to_json(),
            "pace": {name: value for name, value in asdict(self.pace).items() if name != "budget_s"},
            "torch_git": self.torch_git,
            "tool": self.tool,
            "until": self.until,
            "known": [item.to_json() for item in self.known],
            "last": [[list(group), list(spot)] for group, spot in (self.last or {}).items()],
            "variables": dict(self.variables or {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Request:
        """The inverse of `to_json`."""
        return cls(
            [Cell.from_json(cell) for cell in data["cells"]],
            RunNames(**data["names"]),
            Settings.from_json(data["settings"]),
            Pace(**data["pace"]),
            str(data["torch_git"]),
            str(data["tool"]),
            data["until"],
            [Measurement.from_json(item) for item in data["known"]],
            {(group[0], group[1], group[2]): (spot[0], spot[1]) for group, spot in data["last"]},
            data["variables"],
        )

    @property
    def left_s(self) -> float:
        """Seconds in which cells may still be started, by this machine's clock."""
        return float("inf") if self.until is None else self.until - time.time()

    def only(self, cells: Sequence[Cell]) -> Request:
        """The same for these cells: costs and places of others are left out."""
        ids, groups = {cell.cell_id for cell in cells}, {group_of(cell) for cell in cells}
        return replace(
            self,
            cells=cells,
            known=[item for item in self.known if item.cell.cell_id in ids],
            last={group: spot for group, spot in (self.last or {}).items() if group in groups},
        )


def known_costs(cells: Iterable[Cell], model: CostModel) -> list[Measurement]:
    """What a model knows of cells, as measurements that another model learns the same from."""
    found = []
    for cell in cells:
        cost = model.estimate(cell)
        details = {} if cost.memory_bytes is None else {"device_bytes": cost.memory_bytes}
        found.append(Measurement(cell, Status.PASS, "", cost.worker_s, details=details))
    return found


def last_spots(history: Iterable[BundleContents]) -> dict[Group, Spot]:
    """Where each group of cells was measured last; `history` begins with the newest run."""
    found: dict[Group, Spot] = {}
    for run in history:
        testbed = run.header.testbed
        for item in run.measurements:
            found.setdefault(group_of(item.cell), (str(testbed.get("node", "")), testbed.get("gpu_index")))
    return found
