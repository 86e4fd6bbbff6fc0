"""Finding the files and reading them: what is there, what it is, and one line for whatever is wrong with it."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterable
from pathlib import Path

from db.errors import one_line
from db.importing.errors import ImportingError
from db.importing.rows import Source

#: Bytes of one file, unpacked. A night of PyTorch's is below ten megabytes.
LARGEST = 512 << 20
_ENDINGS = (".csv", ".json", ".jsonl", ".log", ".txt", ".csv.gz", ".json.gz", ".jsonl.gz", ".log.gz")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def find_files(places: Iterable[Path]) -> list[Path]:
    """The files among the places, and below the folders among them every one that has an ending of ours.

    Sorted by name, so that files are the same import in whatever order and by whatever way they were named.
    """
    found: dict[Path, None] = {}
    for place in places:
        below = place.rglob("*") if place.is_dir() else ()
        found |= dict.fromkeys(path for path in below if path.name.endswith(_ENDINGS) and path.is_file())
        found |= {} if place.is_dir() else {place: None}
    return sorted(found, key=lambda path: (path.name, str(path)))


def read_source(path: Path) -> Source:
    """A file's text, unpacked if it is gzipped; bytes that are no text of its encoding become U+FFFD.

    Raises:
        ImportingError: it is not there, no regular file, cannot be read, or is larger than `LARGEST`.
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
    """Lines that end in LF, CR LF or, where there is no LF at all, CR; no other character ends one."""
    return text.replace("\r\n", "\n").split("\n") if "\n" in text else text.split("\r")
