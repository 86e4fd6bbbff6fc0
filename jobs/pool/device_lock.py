"""One run measures on a device at a time: a lock for each GPU of a host, and one for its processor.

Two runs at once spoil each other's times. A second one says who measures, waits, and goes on when the first one ends, however
that ends. The locks are files that every user of the host can open, in the folder for temporary files or the one that
`INDUCTOR_WATCH_LOCKS` names; the kernel drops a lock with its process.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from jobs.errors import NothingBegunError
from jobs.output.terminal import one_line, tell
from jobs.pool.device_slots import choose_gpus, list_gpus
from jobs.pool.gpu_scheduler import DeviceSlot

#: Names the folder of the locks; all users of a host must see the same one.
FOLDER_VARIABLE = "INDUCTOR_WATCH_LOCKS"
#: Tells a child which devices its parent holds for it: `DEVICE=PID`, separated by blanks.
HELD_VARIABLE = "INDUCTOR_WATCH_HOLDS"
_FOLDER = "/tmp"  # noqa: S108 - the one folder that every user can write to; what is opened there is checked
#: Seconds between two tries.
_LOOK_S = 0.1
_PROCESSOR = "cpu"

#: The devices that this process holds, and how often it has asked for each.
_held: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a device: the process, since when (seconds since 1970), and the command."""

    pid: int
    since: float
    what: str

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.since).astimezone()
        return f"process {self.pid} ({one_line(self.what, 80)}) since {moment:%Y-%m-%d %H:%M:%S}"


@contextmanager
def holding_for(device: str | None, gpus: str | None) -> Iterator[None]:
    """Hold what a run with these options measures on, from before its preparations on: these need processors, too.

    Raises:
        ConfigError: a GPU that is not there.
    """
    chosen = choose_gpus([] if device == "cpu" else list_gpus(), None if device == "cpu" else gpus)
    with _holding([gpu.uuid for gpu in chosen] or [_PROCESSOR]):
        yield


@contextmanager
def holding_slots(slots: Iterable[DeviceSlot]) -> Iterator[None]:
    """Hold the devices of some slots; what this process or its parent holds already needs no wait."""
    with _holding(slot.variables.get("CUDA_VISIBLE_DEVICES", _PROCESSOR) for slot in slots):
        yield


@contextmanager
def _holding(devices: Iterable[str]) -> Iterator[None]:
    before = os.environ.get(HELD_VARIABLE)
    with ExitStack() as stack:
        # In one order, so that no two runs wait for each other.
        for device in sorted(set(devices)):
            stack.enter_context(_one(device))
        mine = [f"{device}={os.getpid()}" for device in _held]
        os.environ[HELD_VARIABLE] = " ".join([*([before] if before else []), *mine])
        try:
            yield
        finally:
            os.environ.pop(HELD_VARIABLE)
            if before:
                os.environ[HELD_VARIABLE] = before


@contextmanager
def _one(device: str) -> Iterator[None]:
    lock = None if device in _held or _is_held_by_parent(device) else _acquire(device)
    _held[device] = _held.get(device, 0) + 1
    try:
        yield
    finally:
        _held[device] -= 1
        if not _held[device]:
            del _held[device]
        if lock is not None:
            os.close(lock)  # the lock goes with it


def _is_held_by_parent(device: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the process that started this one holds a device for it, and still does."""
    holder = holder_of(device)
    return holder is not None and f"{device}={holder.pid}" in environ.get(HELD_VARIABLE, "").split()


def holder_of(device: str) -> Holder | None:
    """Return who holds a device now; None where nobody does or the lock does not say."""
    descriptor = _open(device)
    if descriptor is None:
        return None
    try:
        return None if _try(descriptor) else _read(descriptor)
    finally:
        os.close(descriptor)


def _acquire(device: str) -> int | None:
    """Wait for a device and return its open lock; None where the host has no place for locks."""
    told: Holder | None = None
    is_told = False
    while True:
        descriptor = _open(device)
        if descriptor is None:
            tell("no lock for the device can be made here: another run at once would spoil the times")
            return None
        try:
            if _try(descriptor) and _is_still_there(descriptor, device):
                _write(descriptor)
                return descriptor
            holder = _read(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not is_told or (holder and holder != told):
            name = "this host's processor" if device == _PROCESSOR else f"GPU {one_line(device, 60)}"
            tell(f"{name} is measured on by {holder or 'another run'}: waiting until that has ended")
            told, is_told = holder, True
        try:
            time.sleep(_LOOK_S)
        except KeyboardInterrupt as error:
            raise NothingBegunError from error


def _path(device: str, folder: Path) -> Path:
    return folder / f"inductor-watch-{re.sub(r'[^A-Za-z0-9-]', '_', device)[:80]}.lock"


def _folders() -> Iterator[Path]:
    """Yield where a lock may be: for all users, else for this one alone."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER)
    yield folder
    own = folder / f"inductor-watch-{os.geteuid()}"
    with suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
        about = own.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():
            yield own


def _open(device: str) -> int | None:
    """Open the lock of a device, made if need be; None where nothing there can be trusted or made."""
    for folder in _folders():
        path = _path(device, folder)
        # A link, or a file with a second name, may lead to a file that is not to be written to. Without O_EXCL a kernel may
        # refuse to open another user's file in such a folder, so one flag at a time.
        for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR):
            with suppress(OSError):
                descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
                about = os.fstat(descriptor)
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                    with suppress(OSError):  # another user made it
                        os.fchmod(descriptor, 0o666)
                    return descriptor
                os.close(descriptor)
                break
    return None


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: to measure is worth more than to refuse
    return True


def _is_still_there(descriptor: int, device: str) -> bool:
    """Return whether the lock is the one that others would open: a cleaner of temporary files may have removed it."""
    with suppress(OSError):
        about = os.fstat(descriptor)
        return any(
            path.exists() and os.path.samestat(about, path.lstat()) for path in (_path(device, at) for at in _folders())
        )
    return False


def _write(descriptor: int) -> None:
    context = click.get_current_context(silent=True)
    what = f"inductor-watch {context.info_name}" if context else "inductor-watch"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": time.time(), "what": what}).encode(), 0)


def _read(descriptor: int) -> Holder | None:
    with suppress(ValueError, KeyError, TypeError, OSError, OverflowError):
        said = json.loads(os.pread(descriptor, 4096, 0))
        return Holder(int(said["pid"]), float(said["since"]), str(said["what"]))
    return None
