"""Rows of a source file, which every reader returns, with values as they are spelled there. Also finds and reads the files."""

from __future__ import annotations

import codecs
import gzip
import math
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from collector.usage_errors import ExpectedError
from db.store_errors import one_line


class ImportingError(ExpectedError):
    """A file that cannot be read, or a run without a commit, branch or date; the text is one line."""


#: A field of a table: a number if it is one, else the text.
Value = int | float | str | bool | None

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
#: Whole numbers up to this many digits are exact in every reader of JSON.
_EXACT_DIGITS = 15


def spelled(text: str) -> Value:
    """Return the finite number that a text spells, else the text; `nan`, `1_000` and a 400-digit number stay texts."""
    trimmed = text.strip()
    if len(trimmed) > 60 or not _NUMBER.fullmatch(trimmed):
        return text
    if trimmed.lstrip("+-").isdigit():
        return int(trimmed) if len(trimmed) <= _EXACT_DIGITS else text
    number = float(trimmed)
    return number if math.isfinite(number) else text


def number(value: Any) -> float | None:
    """Return the value as a finite number, else None."""
    if isinstance(value, str):
        value = spelled(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def whole_number(value: Any) -> int | None:
    """Return the value as a whole number from 0 to the limit of a database's column, else None."""
    numeric = number(value)
    return int(numeric) if numeric is not None and numeric.is_integer() and 0 <= numeric < 2**31 else None


_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None, "": None}


def meant(value: Any) -> Any:
    """Return a flag's value: `True` and `None` that the dashboard's tables store as texts become values again."""
    return _WORDS.get(value.lower(), value) if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """Return a JSON value without numbers that strict JSON does not have: these become texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**300:
        return str(value) if abs(value) < 10**4000 else "a number of thousands of digits"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


class Target(StrEnum):
    """The kind of result in a row."""

    PERFORMANCE = "performance"
    ACCURACY = "accuracy"
    PHASES = "compile_phases"
    BREAKS = "graph_breaks"
    GRAPHNET = "graphnet"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Source:
    """An input file. `folder` distinguishes files of one name and is not stored."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        """The file's name without its folder, since bundles contain no folders of a host."""
        return self.path.name

    @property
    def stem(self) -> str:
        """The name without its ending, which a table and the JSON beside it share."""
        name = self.name.removesuffix(".gz")
        return name.rpartition(".")[0] or name

    @property
    def folder(self) -> str:
        """The file's folder."""
        return str(self.path.parent)


@dataclass(frozen=True, slots=True)
class Uploader:
    """The run that a record's uploader describes; a field is None where the uploader says nothing."""

    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    timestamp: float | None = None
    workflow_id: str | None = None
    run_attempt: int | None = None


@dataclass(slots=True)
class Row:
    """One row. `values` has the file's column names in their order; several values of a column are samples.

    `device` to `backend` are what the row itself says of its cell. `benchmark` is the name of the benchmark in a JSON
    record, None for a row of a table. `arguments` are those of the program that measured; `extra` has all other fields of the
    record. `padded` says that the file filled the row up with zeros; `surplus` holds values of a table that the JSON beside it
    does not have.
    """

    source: Source
    line: int
    target: Target
    model: str
    values: dict[str, list[Value]]
    device: str | None = None
    batch_size: int | None = None
    suite: str | None = None
    mode: str | None = None
    dtype: str | None = None
    backend: str | None = None
    benchmark: str | None = None
    uploader: Uploader = Uploader()
    arguments: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    surplus: dict[str, Value] = field(default_factory=dict)
    padded: bool = False
    notes: list[str] = field(default_factory=list)

    def flag(self, name: str) -> Any:
        """Return an argument's value; None if it is missing."""
        return meant(self.arguments.get(name))

    @property
    def place(self) -> str:
        """The row's place in its file, as `FILE:LINE`."""
        return f"{self.source.name}:{self.line}"

    def first(self, name: str) -> Value:
        """Return the first value of a column, or None where there is none."""
        values = self.values.get(name)
        return values[0] if values else None

    def numbers(self, name: str) -> list[float]:
        """Return the values of a column, if there are any and all are numbers."""
        numbers = [value for value in map(number, self.values.get(name, ())) if value is not None]
        return numbers if len(numbers) == len(self.values.get(name, ())) else []


#: Bytes of one file, unpacked. A night of PyTorch's is below ten megabytes.
LARGEST = 512 << 20
_ENDINGS = (".csv", ".json", ".jsonl", ".log", ".txt", ".csv.gz", ".json.gz", ".jsonl.gz", ".log.gz")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def find_files(places: Iterable[Path]) -> list[Path]:
    """Return the given files, and all files with a known ending below the given folders.

    Sorted by name, so that the order and the way of naming the files do not matter.
    """
    files: dict[Path, None] = {}
    for place in places:
        below = place.rglob("*") if place.is_dir() else ()
        files |= dict.fromkeys(path for path in below if path.name.endswith(_ENDINGS) and path.is_file())
        files |= {} if place.is_dir() else {place: None}
    return sorted(files, key=lambda path: (path.name, str(path)))


def read_source(path: Path) -> Source:
    """Return a file's text, unpacked if it is gzipped; undecodable bytes become U+FFFD.

    Raises `ImportingError` for a file that is not there, not regular, unreadable, or larger than `LARGEST`.
    """
    shown = one_line(str(path), 200)
    if path.exists() and not path.is_file():
        raise ImportingError(f"cannot read {shown}: it is no regular file; save it to one first")
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path, "rb") as packed:
                data = packed.read(LARGEST + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImportingError(f"{shown}: its compression is broken: fetch the file again") from error
    except OSError as error:
        raise ImportingError(f"cannot read {shown}: {error.strerror or error}") from error
    except ValueError as error:
        raise ImportingError(f"cannot read {shown}: no file has such a name") from error
    if len(data) > LARGEST:
        raise ImportingError(f"{shown} is larger than {LARGEST >> 20} MiB: split it")
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    return Source(path, data.decode(encoding, "replace"))


def lines_of(text: str) -> list[str]:
    """Return the lines of a text. They end in LF or CR LF, or in CR if the text has no LF."""
    return text.replace("\r\n", "\n").split("\n") if "\n" in text else text.split("\r")
