"""The bundles of a cluster's night, written where the night was started: a run a testbed, and each planned cell once.

A run learns what it measures as it goes: a cell becomes part of its plan with its outcome. The whole plan is in a file of its
own, so that what no node has measured is known as missing, whenever the night ends and however (`ingest --plan`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collector.bundle import BundleContents, BundleError, BundleWriter, RunHeader, check_bundle, read_bundle
from collector.bundle_file import both_paths
from collector.output_file import write_output
from collector.vocabulary import Cell, Measurement, canonical_json
from jobs.github.ci import job_url
from jobs.plan.planning import Plan
from jobs.pool.runner import new_run_id, now


@dataclass(frozen=True, slots=True)
class Came:
    """What a record meant: a measurement that counts, or a run that was opened."""

    measured: Measurement | None = None
    opened: RunHeader | None = None


class Gathering:
    """Takes records of bundles from all nodes; `left` are the planned cells without an outcome, by `cell_id`."""

    def __init__(self, folder: Path, night: str, planned: Sequence[Cell]) -> None:
        self._folder, self._night = folder, night
        self.left: dict[str, Cell] = {cell.cell_id: cell for cell in planned}
        self.run_ids: list[str] = []
        self._closed: list[Path] = []
        self._writers: dict[str, BundleWriter] = {}
        #: What the nodes call their runs.
        self._by_name: dict[str, BundleWriter] = {}
        self._take_up()

    def take(self, name: str, record: Mapping[str, Any]) -> Came:
        """One record of the run that a node calls `name`.

        Raises:
            KeyError, TypeError, ValueError: no record of a bundle, or one of a run that has not begun.
            OSError: the bundle cannot be written.
        """
        kind = record["record"]
        if kind == "run":
            return self._begin(name, RunHeader.from_json(record))
        writer = self._by_name[name]
        if kind == "environment":
            writer.environment(str(record["environment_id"]), dict(record["data"]))
        elif kind == "program":
            writer.program(str(record["program_id"]), dict(record["options"]))
        elif kind == "measurement":
            measured = Measurement.from_json(record)
            # Nobody asked for it, or it came from two nodes of which one was given up too early: the first counts.
            if self.left.pop(measured.cell.cell_id, None) is not None:
                writer.plan(measured.cell)
                writer.measurement(measured)
                return Came(measured)
        return Came()

    def close(self) -> list[Path]:
        """Closes all runs; returns every bundle of the night, those of earlier attempts among them."""
        self._closed += [writer.close(now()) for writer in self._writers.values()]
        self._writers.clear()
        return self._closed

    def _begin(self, name: str, header: RunHeader) -> Came:
        key = _key(header)
        if key in self._writers:
            self._by_name[name] = self._writers[key]
            return Came()
        ours = replace(header, run_id=new_run_id(), night=self._night, ci_url=job_url())
        self._writers[key] = self._by_name[name] = BundleWriter(self._folder, ours)
        self.run_ids.append(ours.run_id)
        return Came(opened=ours)

    def _take_up(self) -> None:
        """Goes on with a night that was begun before: what it has measured is not measured again."""
        for path in _bundles_of(self._folder, self._night):
            if path.suffix == ".gz":
                contents = read_bundle(path)
                self._closed.append(path)
            else:
                writer, contents = BundleWriter.reopen(path, now())
                self._writers[_key(contents.header)] = writer
            self.run_ids.append(contents.header.run_id)
            self._drop(contents)

    def _drop(self, contents: BundleContents) -> None:
        for cell_id in contents.latest():
            self.left.pop(cell_id, None)


def write_plan(folder: Path, night: str, plan: Plan) -> Path:
    """The whole plan in `FOLDER/NIGHT.plan.json`, which `nightly --plan` and `ingest --plan` read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{night}.plan.json"
    write_output(path, json.dumps({"night": night, **plan.to_json()}, indent=1) + "\n")
    return path


def _bundles_of(folder: Path, night: str) -> list[Path]:
    found = []
    for path in sorted({both_paths(path)[0] for end in ("*.jsonl", "*.jsonl.gz") for path in folder.glob(end)}):
        there = path if path.exists() else both_paths(path)[1]
        try:
            header = check_bundle(there)
        except BundleError:
            continue  # no bundle, or cut in its first line: nothing was measured then
        if header.night == night and not header.run_id.endswith("-absent"):
            found.append(there)
    return found


def _key(header: RunHeader) -> str:
    """What a run stands for: one testbed and one commit."""
    return canonical_json([header.testbed, header.repo, header.branch, header.commit])
