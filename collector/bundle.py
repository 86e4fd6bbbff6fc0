"""Bundles: one run as append-only JSON lines, flushed line by line, gzipped when the run is closed.

A bundle is the source of truth; a database is built from it and can be rebuilt at any time. Its records, one per line,
each a JSON object with a `record` field:

    run          first line: format, run_id, branch, commit, testbed, trigger, attempt, started_at
    planned      one per cell that this run means to measure
    environment  environment_id and the whole fingerprint, once
    program      program_id and the effective options, once
    measurement  one per cell measured
    end          last line of a closed run: finished_at

A file cut at any byte gives the whole lines before the cut; `BundleContents.damage` says what was lost.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from collector.vocabulary import Cell, Measurement

FORMAT = 1

#: What reading a line that is no record can raise: no JSON, missing or odd fields, nesting without end, 1e999 as a count.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


class BundleError(Exception):
    """A bundle that cannot be used at all; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What is known of a run before its first cell. Times are ISO 8601 in UTC."""

    run_id: str
    branch: str
    commit: str
    testbed: dict[str, Any]
    started_at: str
    repo: str = "pytorch/pytorch"
    trigger: str = "adhoc"
    label: str = ""
    attempt: int = 1
    commit_date: str | None = None
    commit_title: str | None = None
    tool_version: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {key: value for key, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunHeader:
        """The inverse of `to_json`; fields it does not know are ignored, so that newer writers can add some."""
        return cls(**{key: value for key, value in data.items() if key in cls.__dataclass_fields__})


class BundleWriter:
    """Appends records to `FOLDER/<run_id>.jsonl`; `close` gzips the file and returns the final path."""

    def __init__(self, folder: Path, header: RunHeader) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{header.run_id}.jsonl"
        self._seen: set[str] = set()
        self._stream: IO[bytes] = self.path.open("xb")
        self._write({"record": "run", "format": FORMAT, **header.to_json()})

    def plan(self, cells: list[Cell]) -> None:
        """Says which cells this run means to measure; those without a measurement later count as missing."""
        for cell in cells:
            self._write({"record": "planned", "cell": cell.to_json()})

    def environment(self, environment_id: str, data: Mapping[str, Any]) -> None:
        """Records a fingerprint, the first time it is met."""
        self._once(environment_id, {"record": "environment", "environment_id": environment_id, "data": dict(data)})

    def program(self, program_id: str, options: Mapping[str, Any]) -> None:
        """Records a program's effective options, the first time it is met."""
        self._once(program_id, {"record": "program", "program_id": program_id, "options": dict(options)})

    def measurement(self, measurement: Measurement) -> None:
        """Appends one measurement; it is on disk when this returns."""
        self._write({"record": "measurement", **measurement.to_json()})

    def close(self, finished_at: str) -> Path:
        """Ends the run: writes the last record, compresses, removes the plain file, returns the `.jsonl.gz` path."""
        self._write({"record": "end", "finished_at": finished_at})
        self._stream.close()
        final = self.path.with_suffix(".jsonl.gz")
        partial = final.with_suffix(".gz.partial")
        with self.path.open("rb") as source, partial.open("wb") as raw:
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                while chunk := source.read(1 << 20):
                    packed.write(chunk)
            raw.flush()
            os.fsync(raw.fileno())
        partial.replace(final)
        self.path.unlink()
        return final

    def abandon(self) -> None:
        """Closes the file without an end record: an interrupted run, which stays a plain `.jsonl`."""
        self._stream.close()

    def _once(self, key: str, record: dict[str, Any]) -> None:
        if key not in self._seen:
            self._seen.add(key)
            self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        self._stream.write(json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())


@dataclass(slots=True)
class BundleContents:
    """A bundle as read. `finished_at` is None for a run that did not end; `damage` lists what could not be read."""

    header: RunHeader
    planned: list[Cell] = field(default_factory=list)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    finished_at: str | None = None
    damage: list[str] = field(default_factory=list)


def read_bundle(path: Path) -> BundleContents:
    """Reads a bundle, plain or gzipped, closed or cut.

    Raises:
        BundleError: no such file, no readable first line, or a format newer than this program.
    """
    damage: list[str] = []
    lines = _lines(path, damage)
    contents = BundleContents(_header(path, next(lines, None)), damage=damage)
    for number, line in enumerate(lines, start=2):
        try:
            _take(contents, json.loads(line))
        except _UNREADABLE as error:
            damage.append(f"line {number} is not a record ({type(error).__name__}: {error})")
    return contents


def check_bundle(path: Path) -> RunHeader:
    """Reads no more than the first line. Raises `BundleError` like `read_bundle`."""
    return _header(path, next(_lines(path, []), None))


def _header(path: Path, line: bytes | None) -> RunHeader:
    try:
        record = json.loads(line or b"")
        if record["record"] != "run":
            raise ValueError("no run record")
        version, header = int(record["format"]), RunHeader.from_json(record)
    except _UNREADABLE as error:
        raise BundleError(
            f"{path} is not a bundle: its first line is no run record; see docs/architecture.md"
        ) from error
    if version > FORMAT:
        raise BundleError(
            f"{path} has bundle format {version}, this program reads up to {FORMAT}: update inductor-watch"
        )
    return header


def _take(contents: BundleContents, record: Mapping[str, Any]) -> None:
    match record["record"]:
        case "planned":
            contents.planned.append(Cell.from_json(record["cell"]))
        case "environment":
            contents.environments[record["environment_id"]] = dict(record["data"])
        case "program":
            contents.programs[record["program_id"]] = dict(record["options"])
        case "measurement":
            contents.measurements.append(Measurement.from_json(record))
        case "end":
            contents.finished_at = str(record["finished_at"])
        case other:
            raise ValueError(f"unknown record {other!r}")


def _lines(path: Path, damage: list[str]) -> Iterator[bytes]:
    """Whole lines only: what follows the last newline of a cut file is reported, not returned."""
    pending = b""
    try:
        for chunk in _chunks(path, damage):
            *whole, pending = (pending + chunk).split(b"\n")
            yield from whole
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from error
    if pending:
        damage.append(f"the last {len(pending)} bytes are a line cut in the middle")


def _chunks(path: Path, damage: list[str]) -> Iterator[bytes]:
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        inflate = zlib.decompressobj(wbits=31) if packed else None
        while chunk := raw.read(4096):  # little at a time: a broken byte costs no more than what came with it
            try:
                yield inflate.decompress(chunk) if inflate else chunk
            except zlib.error as error:
                damage.append(f"the compressed stream is broken ({error})")
                return
        if inflate and not inflate.eof:
            damage.append("the compressed stream ends early")
