"""An export: sides to runs or rows, and these into a file, which is written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from collector.bundle_file import both_paths, path_of
from collector.output_file import write_output
from db.connecting import Source
from db.errors import ExportingError, one_line
from db.exporting.formats import as_csv, as_parquet, side_table, v3_lines
from db.exporting.stored_runs import stored_run
from db.importing.importer import pack_run
from db.queries.sides import Side, resolve_side

_TAKEN = "{} is there already: choose another place, or say --force"


def write_file(path: Path, force: bool, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Writes a file by `write_output`. Raises `ExportingError` where the disk or the folder does not take it."""
    try:
        write_output(path, content, force=force)
    except FileExistsError as error:
        raise ExportingError(_TAKEN.format(one_line(str(path), 200))) from error
    except OSError as error:
        raise ExportingError(f"{one_line(str(path), 200)} cannot be written: {error.strerror or error}") from error


Format = Literal["v3", "csv", "bundle", "parquet"]


@dataclass(frozen=True, slots=True)
class Exported:
    """One file that was written; `rows` are lines of records, rows of a table, or measurements of a bundle."""

    file: str
    format: Format
    rows: int
    run_ids: tuple[str, ...]


def export_sides(source: Source, sides: Sequence[str], form: Format, target: Path, force: bool) -> list[Exported]:
    """Writes some sides to a file; as bundles a file a run, into the folder that `target` is.

    Raises `SideError` for a text that names no side, `ExportingError` where the target is there or cannot be written.
    """
    if form == "bundle":
        return list(_bundles(source, _runs(source, sides), target, force))
    counts: list[int] = []
    write_file(target, force, lambda stream: counts.append(write_stream(source, sides, form, stream)))
    return [Exported(str(target), form, counts[0], _runs(source, sides))]


def write_stream(source: Source, sides: Sequence[str], form: Format, stream: BinaryIO) -> int:
    """Writes some sides to an open stream in a format of one file, and returns the number of rows."""
    if form == "v3":
        count = 0
        for run in _runs(source, sides):
            for line in v3_lines(stored_run(source, run)):
                stream.write(line.encode() + b"\n")
                count += 1
        return count
    table = side_table(source, _resolved(source, sides))
    stream.write(as_csv(table) if form == "csv" else as_parquet(table))
    return len(table)


def _resolved(source: Source, sides: Sequence[str]) -> list[Side]:
    return [resolve_side(source, text) for text in sides]


def _runs(source: Source, sides: Sequence[str]) -> tuple[str, ...]:
    """The runs of some sides, each once, in the order of the sides."""
    return tuple(dict.fromkeys(run for side in _resolved(source, sides) for run in side.run_ids))


def _bundles(source: Source, runs: Sequence[str], folder: Path, force: bool) -> Iterable[Exported]:
    files = {run: both_paths(path_of(folder, run)) for run in runs}
    for path in (path for both in files.values() for path in both):
        if path.exists() and not force:
            raise ExportingError(_TAKEN.format(one_line(str(path), 200)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportingError(f"{one_line(str(folder), 200)} cannot be made: {error.strerror or error}") from error
    with tempfile.TemporaryDirectory(prefix="inductor-watch-") as workshop:
        for run, both in files.items():
            contents = stored_run(source, run)
            made = pack_run(contents, Path(workshop))
            write_file(folder / made.name, force, made.read_bytes())
            for other in both:
                if other.name != made.name:
                    other.unlink(missing_ok=True)  # forced: of two files of a run the plain one would count
            yield Exported(str(folder / made.name), "bundle", len(contents.measurements), (run,))
