"""What GPU nights taught the census of a device: their answers to its questions, and the cells that differ all the same.

It is a file beside the cache, one for each device and torch. Without it each question has the same assumed answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from collector.output_file import write_output
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusCell
from jobs.plan.planning import Plan


@dataclass(slots=True)
class CensusMemory:
    """By `cell_id` the answers of GPU nights, and the night from which the code of a cell differs."""

    path: Path
    answers: dict[str, dict[str, tuple[bool, str]]] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, place: CensusPlace, torch_version: str) -> CensusMemory:
        """Return what is known of a device under a version of torch; a file that cannot be read says nothing."""
        name = f"{place.device_name}-torch-{torch_version}.json"
        memory = cls(place.cache.expanduser() / name)
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            data = json.loads(memory.path.read_text())
            memory.answers = {
                cell_id: {key: (bool(answer), str(source)) for key, (answer, source) in known.items()}
                for cell_id, known in data["answers"].items()
            }
            memory.differing = {str(cell_id): str(night) for cell_id, night in data["differing"].items()}
        return memory

    def without_differing(self, plan: Plan) -> Plan:
        """Return the plan without the cells whose code is known to differ from that of a GPU."""
        nights = {cell: self.differing[cell.cell_id] for cell in plan.cells if cell.cell_id in self.differing}
        lines = [
            f"{cell}: its code differed from that of night {night}, until --against finds it equal"
            for cell, night in nights.items()
        ]
        kept = [cell for cell in plan.cells if cell not in nights]
        return replace(plan, cells=kept, left_out=[*plan.left_out, *lines])

    def learn(
        self, night: str, corrected: Iterable[CensusCell], equal: Iterable[str], differing: Iterable[str]
    ) -> None:
        """Keep what a comparison with a night showed: corrected cells with their answers, and cells by `cell_id`."""
        for one in corrected:
            answers = {question["key"]: (bool(question["answer"]), night) for question in one.questions}
            self.answers[one.cell.cell_id] = answers
        for cell_id in equal:
            self.differing.pop(cell_id, None)
        self.differing |= dict.fromkeys(differing, night)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_output(self.path, json.dumps({"answers": self.answers, "differing": self.differing}, indent=1) + "\n")
