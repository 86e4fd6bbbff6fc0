"""Putting an export where the caller wants it: whole or not at all, and over nothing that is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from collector.output_file import write_output
from db.errors import one_line
from db.exporting.errors import ExportingError


def check_target(path: Path, force: bool) -> None:
    """Raises `ExportingError` if there is something, or no folder to write into."""
    shown = one_line(str(path), 200)
    if path.is_dir():
        raise ExportingError(f"{shown} is a folder: name a file in it")
    if path.exists() and not force:
        raise ExportingError(f"{shown} is there already: choose another name, or say --force")
    if not Path(os.path.realpath(path)).parent.is_dir():
        raise ExportingError(f"{shown}: its folder does not exist: create it first")


def write_file(path: Path, force: bool, write: Callable[[BinaryIO], None]) -> None:
    """Writes a file by `write_output`, with an export's own words for what is wrong.

    Raises:
        ExportingError: as `check_target`, or the disk or the folder does not take it.
    """
    check_target(path, force)
    try:
        write_output(path, write, force=force)
    except FileExistsError as error:
        raise ExportingError(
            f"{one_line(str(path), 200)} is there already: choose another name, or say --force"
        ) from error
    except OSError as error:
        raise ExportingError(f"{one_line(str(path), 200)} cannot be written: {error.strerror or error}") from error
