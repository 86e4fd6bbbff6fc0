"""Our own measurements as benchmark-v3 records, and back: what the published fields cannot say goes along as a text.

Every record has, under `metric.extra_info`, a text under `KEY`: JSON of what kind of record it is and what it adds. A
run is one record with its header, plan, environments and programs; a measurement one with all but its numbers; then
each metric has a record of its own. `db.exporting.v3_lines` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collector.bundle import BundleContents, RunHeader
from collector.vocabulary import Cell, Measurement
from db.errors import one_line
from db.importing.values import plain

KEY = "inductor_watch"
#: Under `benchmark.extra_info`: the config as it was asked for, as JSON, for records that came without those of their run.
REQUEST = "inductor_watch_config"
FORMAT = 1
#: A run's name becomes a file's name.
_SAFE_NAME = re.compile(r"[\w][\w.+@=~-]{0,199}")
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


@dataclass(slots=True)
class _Pieces:
    """What was found of one run."""

    run: dict[str, Any] | None = None
    measurements: dict[int, dict[str, Any]] = field(default_factory=dict)
    values: dict[int, dict[str, tuple[dict[str, Any], list[Any]]]] = field(default_factory=dict)
    records: list[tuple[int, Any]] = field(default_factory=list)


class OwnRecords:
    """Takes records of one file; those that are ours are kept, and made into runs at the end."""

    def __init__(self, name: str, damage: list[str]) -> None:
        self._name = name
        self._damage = damage
        self._found: dict[str, _Pieces] = {}

    def take(self, line: int, record: Any) -> bool:
        """Whether this record is one of ours."""
        try:
            payload = plain(json.loads(record["metric"]["extra_info"][KEY]))
            pieces = self._found.setdefault(str(payload["run_id"]), _Pieces())
            match payload["kind"]:
                case "run" if int(payload["format"]) <= FORMAT:
                    pieces.run = payload
                case "measurement":
                    pieces.measurements[int(payload["order"])] = payload
                case "value":
                    values = list(record["metric"].get("benchmark_values") or [])
                    named = pieces.values.setdefault(int(payload["order"]), {})
                    named[str(payload["metric"])] = (payload, values)
                case _:
                    return False
        except _UNREADABLE:
            return False
        pieces.records.append((line, record))
        return True

    def runs(self) -> tuple[list[BundleContents], list[tuple[int, Any]]]:
        """The runs that are whole enough to be told as such, and the records of those that are not."""
        whole: list[BundleContents] = []
        others: list[tuple[int, Any]] = []
        for run_id, pieces in self._found.items():
            shown = one_line(run_id)
            if pieces.run is None:
                self._damage.append(f"{self._name}: run {shown} came without its own record: read as anybody's records")
                others += pieces.records
                continue
            try:
                whole.append(self._contents(run_id, pieces))
            except _UNREADABLE as error:
                said = one_line(f"{type(error).__name__}: {error}", 120)
                self._damage.append(f"{self._name}: run {shown} cannot be read ({said}): left out")
        return whole, others

    def _contents(self, run_id: str, pieces: _Pieces) -> BundleContents:
        run = pieces.run or {}
        header = RunHeader.from_json(run["header"])
        if header.run_id != run_id or not _SAFE_NAME.fullmatch(run_id):
            raise ValueError("its name is not fit for a file")
        contents = BundleContents(
            header,
            [Cell.from_json(cell) for cell in run["planned"]],
            {str(name): dict(data) for name, data in run["environments"].items()},
            {str(name): dict(data) for name, data in run["programs"].items()},
            finished_at=run.get("finished_at"),
            attempt=header.attempt,
        )
        for order, payload in sorted(pieces.measurements.items()):
            contents.measurements.append(self._measurement(order, payload, pieces.values.get(order, {})))
        if lost := int(run["measurements"]) - len(contents.measurements):
            self._damage.append(
                f"{self._name}: {lost} measurements of run {one_line(run_id)} are missing from the file"
            )
        return contents

    def _measurement(
        self, order: int, payload: Mapping[str, Any], values: Mapping[str, tuple[dict[str, Any], list[Any]]]
    ) -> Measurement:
        data = dict(payload["measurement"])
        data["metrics"] = {name: told["value"] for name, (told, _) in values.items() if "value" in told}
        data["samples"] = {
            name: told.get("samples", found)
            for name, (told, found) in values.items()
            if told.get("is_sampled") or "samples" in told
        }
        if lost := int(payload["values"]) - len(values):
            self._damage.append(f"{self._name}: {lost} metrics of measurement {order} are missing from the file")
        return Measurement.from_json(data)
