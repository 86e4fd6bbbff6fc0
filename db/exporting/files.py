"""Putting an export where the caller wants it: whole or not at all, and over nothing that is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from db.errors import one_line
from db.exporting.errors import ExportingError


def check_target(path: Path, force: bool) -> None:
    """Raises `ExportingError` if there is something, or no folder to write into."""
    shown = one_line(str(path), 200)
    if path.is_dir():
        raise ExportingError(f"{shown} is a folder: name a file in it")
    if path.exists() and not force:
        raise ExportingError(f"{shown} is there already: choose another name, or say --force")
    if not path.parent.is_dir():
        raise ExportingError(f"{shown}: its folder does not exist: create it first")


def write_file(path: Path, force: bool, write: Callable[[BinaryIO], None]) -> None:
    """Writes a file beside its place and moves it there once it is whole and on disk.

    Raises:
        ExportingError: as `check_target`, or the disk or the folder does not take it.
    """
    check_target(path, force)
    partial = path.with_name(f"{path.name[:200]}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        _move(partial, path, force)
    except FileExistsError as error:
        raise ExportingError(
            f"{one_line(str(path), 200)} is there already: choose another name, or say --force"
        ) from error
    except OSError as error:
        raise ExportingError(f"{one_line(str(path), 200)} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _move(partial: Path, path: Path, force: bool) -> None:
    if not force:
        try:
            # A link, unlike a renaming, takes no name that somebody took since.
            os.link(partial, path)
            return
        except FileExistsError:
            raise
        except OSError:
            check_target(path, force)  # a file system without links: a look just before has to do
    partial.replace(path)
