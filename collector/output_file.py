"""Files that are written whole or not at all: output files that a person names, and the file of a bundle.

The file of a bundle is plain and locked while a writer has it, and gzipped when the run is closed. `RUN.jsonl` is a run in
progress or an interrupted one, `RUN.jsonl.gz` a closed one. If both exist, a kill came between making one and removing the
other, and the plain one has everything that the other has. `*.partial` is an unfinished file without value. `RUN.jsonl.xz` is a
copy of a closed run to hand on (`scripts/small_bundles.py`): it can be read, but not continued.
"""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, Protocol

from collector.usage_errors import BundleError


def write_output(
    path: Path, content: str | bytes | Callable[[BinaryIO], object], *, force: bool = True, sync: bool = True
) -> None:
    """Write a file that a person named, atomically: a reader, or a kill, finds either the old file or the new one.

    A link is followed and stays a link; a device, a FIFO or a socket is written to. `content` may be a function that writes
    to the stream which it gets. Without `force` an existing path raises `FileExistsError`. Without `sync` the file may be
    lost when the machine loses its power, which is enough for one of many files that can be made again.
    """
    if path.exists() and not path.is_file():
        if not force:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        # The path is not resolved: /dev/stdout leads to a pipe, which has no name.
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
            # A link, unlike a rename, fails if somebody else has made the target since.
            os.link(partial, target)
            return
        except FileExistsError:
            raise
        except OSError as error:
            if target.exists():  # a file system without links: checking just before the rename has to do
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
    partial.replace(target)


_PLAIN, _PACKED, _SMALL, _PARTIAL = ".jsonl", ".jsonl.gz", ".jsonl.xz", ".partial"
#: The most bytes of a run id: file systems take 255 for a name, of which the suffixes need some.
_LONGEST_NAME = 200
#: The most bytes of one bundle, unpacked. A night of 1,800 cells has some 30 MB.
LARGEST = 256 << 20
#: Bytes of memory to read an .xz file with: the strongest setting of xz needs 65 MiB.
_XZ_MEMORY = 128 << 20


def path_of(folder: Path, run_id: str) -> Path:
    """Return `FOLDER/<run_id>.jsonl`. Raises `BundleError` for a run id that cannot name a file or would leave the folder."""
    # Both kinds of slashes are refused, since bundles are carried from host to host, and characters that cannot be printed,
    # since nobody can type them.
    fits = run_id.isprintable() and not {"/", "\\"} & set(run_id) and not run_id.startswith(".")
    if not run_id or not fits or len(run_id.encode()) > _LONGEST_NAME:
        shown = run_id[:80].encode("ascii", "backslashreplace").decode()
        raise BundleError(
            f"run id {shown!r} cannot name a file: choose at most {_LONGEST_NAME} bytes without slashes,"
            " control characters or a leading dot"
        )
    return folder / f"{run_id}{_PLAIN}"


def create(path: Path, lines: Iterable[bytes]) -> IO[bytes]:
    """Create a file, locked and open for appending; it appears with these lines in it or, after a kill, not at all.

    Raises:
        FileExistsError: the run exists already.
        BundleError: another process is making it.
    """
    stream = _open_locked(_partial(path), "a+b")
    # A process that makes a run holds the lock of its partial file, so nobody comes between this check and the rename.
    for taken in both_paths(path):
        if taken.exists():
            stream.close()
            raise FileExistsError(errno.EEXIST, "there is such a run already", str(taken))
    _publish(stream, path, lines)
    return stream


def take_up(path: Path) -> IO[bytes]:
    """Open the plain file of a run for appending, locked and cut to whole lines; unpack the file of a closed run first.

    Raises:
        BundleError: no such run, or another process writes it.
    """
    plain, packed = both_paths(path)
    if plain.exists():
        stream = _open_locked(plain, "r+b")
        # A kill may have left the last line half-written.
        end = stream.read().rfind(b"\n") + 1
        stream.truncate(end)
        stream.seek(end)
        return stream
    if not packed.exists():
        raise BundleError(f"cannot read {path}: no such bundle")
    stream = _open_locked(_partial(plain), "a+b")
    if plain.exists():
        stream.close()
        raise _busy(plain)
    _publish(stream, plain, (line + b"\n" for line in read_lines(packed, [])))
    return stream


def pack(plain: Path) -> Path:
    """Replace a plain file by its gzipped form and return the new path; equal contents give equal bytes."""
    final = both_paths(plain)[1]
    with plain.open("rb") as source, _partial(final).open("wb") as raw:
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
            shutil.copyfileobj(source, packed)
        raw.flush()
        os.fsync(raw.fileno())
    _rename(final)
    plain.unlink()
    return final


def both_paths(path: Path) -> tuple[Path, Path]:
    """Return a run's plain and its gzipped path, given either of them. Raises `BundleError` for a name of another form."""
    for suffix in (_PACKED, _PLAIN):
        if path.name.endswith(suffix):
            stem = path.name.removesuffix(suffix)
            return path.with_name(stem + _PLAIN), path.with_name(stem + _PACKED)
    raise BundleError(f"{path} is not a bundle: its name does not end in {_PLAIN} or {_PACKED}")


def find(folder: Path, run_id: str) -> Path | None:
    """Return the file of a run: the plain one, else `.gz`, else `.xz`, else None. Raises `BundleError` as `path_of` does."""
    plain, packed = both_paths(path_of(folder, run_id))
    return next((path for path in (plain, packed, plain.with_suffix(_SMALL)) if path.exists()), None)


def read_lines(path: Path, damage: list[str]) -> Iterator[bytes]:
    """Yield the whole lines of a file, without their newlines; report bytes after the last newline in `damage`.

    Raises:
        BundleError: the file cannot be read, is no regular file, or is larger than any bundle.
    """
    if path.exists() and not path.is_file():
        raise BundleError(f"cannot read {path}: it is no regular file")
    pending, size = bytearray(), 0
    try:
        for chunk in _chunks(path, damage):
            size += len(chunk)
            if size > LARGEST:
                raise BundleError(
                    f"{path} is larger than any bundle ({LARGEST >> 20} MiB unpacked at most): it is damaged or no bundle of"
                    " ours; leave it out"
                )
            first, *rest = chunk.split(b"\n")
            pending += first
            for line in rest:
                yield bytes(pending)
                pending = bytearray(line)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}") from error
    if pending:
        damage.append(f"the last {len(pending)} bytes are a line cut in the middle")


class _Unpacker(Protocol):
    """The common part of zlib's and lzma's decompressors."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _Plain:
    """A decompressor of uncompressed data, which it returns unchanged."""

    eof = True

    def decompress(self, data: bytes, /) -> bytes:
        return data


def _unpacker(start: bytes) -> _Unpacker:
    """Return the decompressor of a file with these first bytes."""
    if start.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(wbits=31)
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY) if start.startswith(b"\xfd7zXZ\x00") else _Plain()


def _chunks(path: Path, damage: list[str]) -> Iterator[bytes]:
    with path.open("rb") as raw:
        start = raw.read(6)
        unpacker, done = _unpacker(start), 0
        raw.seek(0)
        try:
            while chunk := raw.read(4096):
                yield unpacker.decompress(chunk)
                done += len(chunk)
        except (zlib.error, lzma.LZMAError, EOFError) as error:
            damage.append(f"the compressed stream is broken ({error})")
            yield from _before_break(path, done, start)
            return
        if not unpacker.eof:
            damage.append("the compressed stream ends early")


def _before_break(path: Path, done: int, start: bytes) -> Iterator[bytes]:
    """Yield the unpacked data of the chunk at `done`, byte by byte up to the break in the compressed stream."""
    unpacker = _unpacker(start)
    with path.open("rb") as raw, suppress(zlib.error, lzma.LZMAError, EOFError):
        for _ in range(0, done, 4096):
            unpacker.decompress(raw.read(4096))
        for byte in raw.read(4096):
            yield unpacker.decompress(bytes((byte,)))


def _open_locked(path: Path, mode: str) -> IO[bytes]:
    import fcntl  # not at the top: on a system without fcntl bundles can still be read

    try:
        stream: IO[bytes] = path.open(mode)
    except FileNotFoundError as error:
        raise _busy(path) from error  # its writer has closed it since the caller's check
    try:
        # The lock ends with the process, so that there is nothing to clean up after a kill.
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except BlockingIOError:
        mine = False
    except OSError:
        return stream  # a file system without locks: measuring without a lock is better than refusing
    if not mine:
        stream.close()
        raise _busy(path)
    return stream


def _busy(path: Path) -> BundleError:
    return BundleError(f"{path} is being written by another process: wait until that has ended")


def _publish(stream: IO[bytes], path: Path, lines: Iterable[bytes]) -> None:
    """Write the lines to the open partial file of `path` and rename it."""
    stream.truncate(0)  # removes the lines of an earlier try
    stream.writelines(lines)
    stream.flush()
    os.fsync(stream.fileno())
    _rename(path)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + _PARTIAL)


def _rename(path: Path) -> None:
    _partial(path).replace(path)
    # A file is found again after the host's death only if its folder's entry is on disk too.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
