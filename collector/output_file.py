"""Where every command's output file is written: whole or not at all, through links, and never in a device's place."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_output(
    path: Path, content: str | bytes | Callable[[BinaryIO], object], *, force: bool = True, sync: bool = True
) -> None:
    """Writes a file that a person named; a reader, or a kill, sees the old file or the new one.

    A link is followed, and stays. A device, a FIFO or a socket is written to and stays as well. `content` may be a
    function that writes to the stream it gets. Without `force` whatever exists raises `FileExistsError`. Without `sync`
    a machine that loses its power may lose the file: for one of many that can be made again.
    """
    if path.exists() and not path.is_file():
        if not force:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        # Not by its resolved name: /dev/stdout leads to a pipe, which has none.
        with path.open("wb") as stream:
            _fill(stream, content)
        return
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder does not exist", str(path))
    partial = target.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        with partial.open("xb") as stream:
            if target.exists():
                os.fchmod(stream.fileno(), target.stat().st_mode & 0o777)
            _fill(stream, content)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        _move(partial, target, force)
    finally:
        partial.unlink(missing_ok=True)


def _fill(stream: BinaryIO, content: str | bytes | Callable[[BinaryIO], object]) -> None:
    if callable(content):
        content(stream)
    else:
        stream.write(content.encode(errors="replace") if isinstance(content, str) else content)


def _move(partial: Path, target: Path, force: bool) -> None:
    if not force:
        try:
            # A link, unlike a renaming, takes no name that somebody took since.
            os.link(partial, target)
            return
        except FileExistsError:
            raise
        except OSError as error:
            if target.exists():  # a file system without links: a look just before has to do
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
    partial.replace(target)
