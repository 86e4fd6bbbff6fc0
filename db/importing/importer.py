"""An import: files to rows, rows to runs, runs to bundles, bundles into the database."""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from collector.bundle import BundleContents, BundleError, BundleWriter
from collector.bundle_file import both_paths
from collector.output_file import write_output
from collector.vocabulary import Measurement
from db.errors import one_line
from db.importing import graphnet
from db.importing.cells import Given
from db.importing.merging import join_pairs
from db.importing.records import read_records
from db.importing.rows import ImportingError, Row, Source, find_files, read_source
from db.importing.runs import Provenance, runs_of
from db.importing.tables import read_table
from db.ingest import IngestReport, ingest_bundle


def pack_run(contents: BundleContents, folder: Path) -> Path:
    """Writes a run as a bundle into a folder: closed if the run has ended, else open.

    Records have the order of a measured run: the plan, then each measurement after its environment and program.
    """
    writer = BundleWriter(folder, contents.header, contents.planned)
    for environment, data in contents.environments.items():
        writer.environment(environment, data)
    for program, options in contents.programs.items():
        writer.program(program, options)
    for measurement in contents.measurements:
        writer.measurement(_fit_for_json(measurement))
    if contents.finished_at is not None:
        return writer.close(contents.finished_at)
    writer.abandon()
    return writer.path


def _fit_for_json(measurement: Measurement) -> Measurement:
    """Samples that are not finite are written as texts, which a bundle's reader accepts."""
    samples: dict[str, Any] = {
        name: [value if math.isfinite(value) else str(value) for value in values]
        for name, values in measurement.samples.items()
    }
    return replace(measurement, samples=samples)


@dataclass(slots=True)
class FileReport:
    """One file: the number of its rows and values, or why nothing could be read."""

    file: str
    rows: int = 0
    values: int = 0
    problem: str = ""


@dataclass(slots=True)
class ImportedRun:
    """One run: its bundle, whether that is new in its folder, and what the database stored (None without a database)."""

    run_id: str
    bundle: str
    is_new: bool
    branch: str
    commit: str
    measurements: int
    statuses: dict[str, int]
    stored: IngestReport | None = None


@dataclass(slots=True)
class ImportReport:
    """The result of an import. `problems` has a text for each damaged row or line; the others are imported."""

    files: list[FileReport] = field(default_factory=list)
    runs: list[ImportedRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all could be read."""
        return not self.runs


def import_files(places: Iterable[Path], asked: Provenance, given: Given, folder: Path) -> ImportReport:
    """Reads files, and writes a bundle for every run in them into a folder. `store` puts the bundles into a database.

    Raises `ImportingError` where the caller's date or repository cannot be used.
    """
    report = ImportReport()
    _ = asked.epoch  # a date that is none is refused before anything is read
    rows: list[Row] = []
    seen: set[tuple[str, int]] = set()
    for path in find_files(places):
        file = FileReport(one_line(str(path), 200))
        report.files.append(file)
        try:
            source = read_source(path)
            mark = (source.stem, hash(source.text))
            if mark in seen:
                raise ImportingError(f"{one_line(str(path), 200)}: read already, under the same name: left out")
            seen.add(mark)
            of_file = _read(source, report.problems)
        except ImportingError as error:
            file.problem = str(error)
            continue
        rows += of_file
        file.rows = len(of_file)
        file.values = sum(len(values) for row in of_file for values in row.values.values())
        if not of_file:
            file.problem = f"{source.name} holds no row that could be read"
    report.runs += [_put(run, folder) for run in runs_of(join_pairs(rows), asked, given, report.problems)]
    return report


def store(engine: Engine, report: ImportReport, not_after: float = math.inf) -> None:
    """Puts the bundles of an import into a database; each is stored whole or not at all.

    A run that cannot be stored, or starts after `not_after` (as in `ingest_bundle`), is a problem of the report. Raises
    `StoreError` where the database cannot be written.
    """
    for run in report.runs:
        try:
            run.stored = ingest_bundle(engine, run.bundle, not_after=not_after)
        except BundleError as error:
            report.problems.append(str(error))
            continue
        report.problems += [f"{Path(run.bundle).name}: {line}" for line in run.stored.damage]


def _read(source: Source, problems: list[str]) -> list[Row]:
    start = source.text.lstrip("\ufeff \t\r\n")[:1]
    is_log = graphnet.is_log(source.text)
    is_list = start == "[" and not (is_log and not source.name.endswith(".json"))
    # A file of records that lost its beginning still has whole lines.
    if start == "{" or is_list or (not is_log and re.search(r'^\{"', source.text, re.MULTILINE)):
        return read_records(source, problems)
    return graphnet.read_log(source, problems) if is_log else read_table(source, problems)


def _put(contents: BundleContents, folder: Path) -> ImportedRun:
    """Puts the run's bundle into the folder, whole or not at all.

    An existing bundle of the run is kept: a name stands for one run, and a measured bundle holds more than a copy.
    """
    header = contents.header
    path = next((path for path in both_paths(folder / f"{header.run_id}.jsonl") if path.exists()), None)
    is_new = path is None
    if path is None:
        with tempfile.TemporaryDirectory(prefix="inductor-watch-") as workshop:
            made = pack_run(contents, Path(workshop))
            path = folder / made.name
            folder.mkdir(parents=True, exist_ok=True)
            write_output(path, made.read_bytes())
    counts = Counter(item.status.value for item in contents.latest().values())
    where = (one_line(header.branch), one_line(header.commit))
    return ImportedRun(header.run_id, str(path), is_new, *where, len(contents.measurements), dict(counts))
