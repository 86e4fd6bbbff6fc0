"""The GPUs of a host, the cores that belong to each, and a lock for each, so that one run measures on it at a time.

Two runs at once spoil each other's times. A second run says which process measures, waits, and goes on when the first run
ends, however it ends. The locks are files that every user of the host can open, in the folder for temporary files or in the
folder that `INDUCTOR_WATCH_LOCKS` names; the kernel releases a lock when its process ends.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from collector.device import GPU
from collector.machine.environment import GPU_VARIABLE, GPUS_VARIABLE, START_VARIABLE, WORKERS_VARIABLE
from collector.machine.host import share_out
from collector.usage_errors import ConfigError
from jobs.output.terminal import NothingBegunError, one_line, tell
from jobs.pool.gpu_scheduler import DeviceSlot

#: The part of a GPU's free memory that cells may plan for; the rest allows for errors of the estimates.
_MEMORY_PART = 0.95
#: A GPU with at least so many cores keeps one core, with its hyper-threads, free for the cell that measures.
_ENOUGH_CORES = 6
#: Bytes that a worker takes of the host's memory, when forked from a process that has imported everything, and of a GPU's memory
#: between its calls: a context, weights, and a part of what one call needs. With 1.5 GB of device memory for each, 15 workers
#: beside a ballast that left 23 GB waited for memory most of the time.
_HOST_BYTES, _DEVICE_BYTES = 2e9, 3e9
#: One more cell shares the cores of so many workers, which wait or stand still for a quarter of their time. A recorded night,
#: played on 15 workers with 3, 5 and 7 more cells (`benchmarks/played_night.py`), took 3, 7 and 9 % less time than without.
_WORKERS_AN_EXTRA = 3
_NODES = Path("/sys/devices/system/node")
_DEVICES = Path("/sys/bus/pci/devices")
_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the driver numbers and names it; its free memory and its NUMA node are None where they are unknown."""

    index: int
    uuid: str
    free_bytes: int | None
    node: int | None
    name: str = ""


def list_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Return the GPUs that `CUDA_VISIBLE_DEVICES` leaves, in its order; empty if there is no driver."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,pci.bus_id,memory.free,name", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return visible(parse_gpus(done.stdout), environ.get("CUDA_VISIBLE_DEVICES"))


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs in nvidia-smi's lines of index, uuid, PCI bus, free memory in MiB or `[N/A]`, name; skip other lines."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and parts[0].isdigit():
            index, uuid, bus, mebibytes, name = parts
            free_bytes = int(mebibytes) << 20 if mebibytes.isdigit() else None
            gpus.append(Gpu(int(index), uuid, free_bytes, _node_of(bus), name))
    return gpus


def visible(gpus: Sequence[Gpu], wanted: str | None) -> list[Gpu]:
    """Return the GPUs that a value of `CUDA_VISIBLE_DEVICES` (numbers or beginnings of UUIDs) names; all if it is None.

    As in CUDA, the first name that names no GPU, such as -1, ends the list.
    """
    if wanted is None:
        return list(gpus)
    chosen: dict[Gpu, None] = {}
    for name in (name.strip() for name in wanted.split(",")):
        named = [gpu for gpu in gpus if str(gpu.index) == name or (name and gpu.uuid.startswith(name))]
        if len(named) != 1:
            break
        chosen[named[0]] = None
    return list(chosen)


def choose_gpus(gpus: Sequence[Gpu], requested: str | None) -> list[Gpu]:
    """Return the first GPU if nothing is requested, all GPUs for `all`, else the GPUs of these numbers, separated by commas.

    Raises:
        ConfigError: a number that no visible GPU has, or GPUs are requested and none is there.
    """
    if requested is None or not gpus:
        if requested is not None:
            raise ConfigError(f"--gpus {requested}: there is no GPU here: leave it out, or see `inductor-watch doctor`")
        return list(gpus[:1])
    if requested == "all":
        return list(gpus)
    by_index = {str(gpu.index): gpu for gpu in gpus}
    names = [name.strip() for name in requested.split(",")]
    if unknown := [name for name in names if name not in by_index]:
        raise ConfigError(
            f"--gpus {requested}: no GPU {', '.join(unknown)} here, there are {', '.join(by_index)} (or `all`)"
        )
    return [by_index[name] for name in dict.fromkeys(names)]


def make_slots(gpus: Sequence[Gpu], workers: int | None, start: str) -> list[DeviceSlot]:
    """Return a slot for each GPU, or one for a host without GPUs; each with cores for `workers` workers.

    Without a number a GPU gets as many workers as cores and memory allow, and a CPU gets one, since its cores are what is
    measured. If a GPU keeps cores free for the cell that measures, and memory allows, a third more cells share the cores of its
    workers. A single worker of a single slot keeps all cores and is not pinned, since no other process competes.

    Raises:
        ConfigError: more workers than cores.
    """
    devices: list[Gpu | None] = [*gpus] or [None]
    cores = sorted(os.sched_getaffinity(0), key=_core_order)
    shares = divide_cores(cores, [gpu.node if gpu else None for gpu in devices], cores_of_nodes())
    if workers is None:
        workers = (
            min(most_workers(gpu, share, len(gpus)) for gpu, share in zip(gpus, shares, strict=False)) if gpus else 1
        )
    facts = {WORKERS_VARIABLE: str(workers), START_VARIABLE: start}
    if len(gpus) > 1:
        facts[GPUS_VARIABLE] = str(len(gpus))
    if len(devices) == workers == 1:
        return [_slot(devices[0], [[]], (), facts)]
    try:
        return [
            _slot(gpu, *_share_out(share, workers, gpu), facts, len(gpus))
            for gpu, share in zip(devices, shares, strict=True)
        ]
    except ValueError as error:
        each = f" for each of {len(gpus)} GPUs: take fewer --gpus or" if len(gpus) > 1 else ": take"
        raise ConfigError(f"{error}{each} fewer --workers") from error


def most_workers(gpu: Gpu, share: Sequence[int], gpus: int = 1) -> int:
    """Return how many workers the cores of a GPU and the memory allow, at least one."""
    cores = len(share) - len(quiet_cores(share)) if len(share) >= _ENOUGH_CORES else len(share) // 2
    return max(1, min(cores, _most_cells(gpu, gpus)))


def _most_cells(gpu: Gpu, gpus: int) -> int:
    """Return how many cells at a time the free memory of a GPU and its part of the host's memory allow."""
    of_device = _MEMORY_PART * gpu.free_bytes / _DEVICE_BYTES if gpu.free_bytes else math.inf
    return int(min(of_device, _host_bytes() / _HOST_BYTES / gpus, sys.maxsize))


def quiet_cores(share: Sequence[int]) -> list[int]:
    """Return the last core of a share, in the order of `_core_order`, with its hyper-threads in the share."""
    last = _core_order(share[-1])[0]
    return [core for core in share if _core_order(core)[0] == last]


def _host_bytes() -> float:
    """Return the bytes of the host's memory; infinity if the kernel does not say."""
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith("MemTotal:"):
            return float(line.split()[1]) * 1024
    return float("inf")


def _share_out(share: Sequence[int], workers: int, gpu: Gpu | None) -> tuple[list[list[int]], Sequence[int]]:
    """Return the cores of each worker of a GPU, and the cores that are kept free. Raises `ValueError` for too many workers."""
    quiet = quiet_cores(share) if gpu is not None and len(share) >= _ENOUGH_CORES else []
    if not quiet or workers > len(share) - len(quiet):
        return share_out(share, workers), ()
    return share_out([core for core in share if core not in quiet], workers), quiet


def divide_cores(
    cores: Sequence[int], nodes: Sequence[int | None], of_node: Mapping[int, Sequence[int]]
) -> list[list[int]]:
    """Return equally many cores for each GPU, from its own NUMA node if every node has enough of them.

    If a node is unknown, or too small for its GPUs, all cores are divided evenly. A core that two nodes list is given once.
    """
    each = len(cores) // len(nodes)
    free, shares = list(cores), []
    for node in nodes:
        own = set(of_node.get(node, ())) if node is not None else set()
        share = [core for core in free if core in own][:each]
        if len(share) < each or node is None:
            return [list(cores[at * each : (at + 1) * each]) for at in range(len(nodes))]
        shares.append(share)
        free = [core for core in free if core not in share]
    return shares


def cores_of_nodes() -> dict[int, list[int]]:
    """Return the cores of each NUMA node of this host, by the number of the node."""
    return {int(entry.name[4:]): parse_cores(_read(entry / "cpulist")) for entry in _NODES.glob("node[0-9]*")}


def parse_cores(text: str) -> list[int]:
    """Return the numbers in a list of cores in the kernel's format, such as `0-3,8,10-11`."""
    cores: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores += range(int(first), int(last or first) + 1)
    return cores


def _core_order(core: int) -> tuple[int, int]:
    # Hyper-threads of one core are next to each other in this order, so that they go to one worker and not to two.
    siblings = parse_cores(_read(_CPUS / f"cpu{core}" / "topology" / "thread_siblings_list"))
    return (min(siblings, default=core), core)


def _node_of(bus: str) -> int | None:
    text = _read(_DEVICES / bus.lower()[-12:] / "numa_node").strip()
    return int(text) if text.isdigit() else None


def _slot(
    gpu: Gpu | None, cores: list[list[int]], quiet_cores: Sequence[int], facts: dict[str, str], gpus: int = 1
) -> DeviceSlot:
    if gpu is None:
        return DeviceSlot(cores, facts)
    extra = min(len(cores) // _WORKERS_AN_EXTRA, _most_cells(gpu, gpus) - len(cores)) if quiet_cores else 0
    variables = {**facts, "CUDA_VISIBLE_DEVICES": gpu.uuid, GPU_VARIABLE: str(gpu.index)}
    memory = float("inf") if gpu.free_bytes is None else gpu.free_bytes * _MEMORY_PART
    return DeviceSlot(cores, variables, memory, quiet_cores, max(0, extra))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


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
    """The holder of a device: its process, the time since when it holds it (seconds since 1970), and its command."""

    pid: int
    since: float
    what: str

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.since).astimezone()
        return f"process {self.pid} ({one_line(self.what, 80)}) since {moment:%Y-%m-%d %H:%M:%S}"


@contextmanager
def holding_for(device: str | None, gpus: str | None) -> Iterator[None]:
    """Hold the devices of a run with these options, also during its preparations, since these need processors, too.

    Raises:
        ConfigError: a GPU that is not there.
    """
    has_slots = device in (None, GPU)
    chosen = choose_gpus(list_gpus() if has_slots else [], gpus if has_slots else None)
    with _holding([gpu.uuid for gpu in chosen] or [_PROCESSOR]):
        yield


@contextmanager
def holding_slots(slots: Iterable[DeviceSlot]) -> Iterator[None]:
    """Hold the devices of some slots. Do not wait for devices that this process or its parent holds already."""
    with _holding(slot.variables.get("CUDA_VISIBLE_DEVICES", _PROCESSOR) for slot in slots):
        yield


@contextmanager
def off_quiet_cores(slots: Iterable[DeviceSlot]) -> Iterator[None]:
    """Keep this thread, and threads that it starts meanwhile, off the cores that are kept free for the cell that measures.

    All other cores are busy, so the kernel would move this thread there, and it has most to do while a cell measures.
    """
    own = os.sched_getaffinity(0)
    left = own - {core for slot in slots for core in slot.quiet_cores}
    os.sched_setaffinity(0, left or own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextmanager
def _holding(devices: Iterable[str]) -> Iterator[None]:
    before = os.environ.get(HELD_VARIABLE)
    with ExitStack() as stack:
        # All runs take locks in this order, so that no two runs wait for each other.
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
            os.close(lock)  # this releases the lock


def _is_held_by_parent(device: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the process that started this one holds a device for this one, still."""
    holder = holder_of(device)
    return holder is not None and f"{device}={holder.pid}" in environ.get(HELD_VARIABLE, "").split()


def holder_of(device: str) -> Holder | None:
    """Return the current holder of a device; None if it has none or the lock does not say."""
    descriptor = _open(device)
    if descriptor is None:
        return None
    try:
        return None if _try(descriptor) else _read_holder(descriptor)
    finally:
        os.close(descriptor)


def _acquire(device: str) -> int | None:
    """Wait for a device and return the descriptor of its lock; None if the host has no place for locks."""
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
            holder = _read_holder(descriptor)
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
    """Yield the folders that may hold a lock: the folder of all users, then a folder of this user alone."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER)
    yield folder
    own = folder / f"inductor-watch-{os.geteuid()}"
    with suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
        about = own.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():
            yield own


def _open(device: str) -> int | None:
    """Open the lock file of a device, and create it if needed; return None if no file can be trusted or created."""
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
        pass  # a file system without locks: measuring is better than refusing
    return True


def _is_still_there(descriptor: int, device: str) -> bool:
    """Return whether other processes would open the same lock file: a cleaner of temporary files may have removed it."""
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


def _read_holder(descriptor: int) -> Holder | None:
    with suppress(ValueError, KeyError, TypeError, OSError, OverflowError):
        said = json.loads(os.pread(descriptor, 4096, 0))
        return Holder(int(said["pid"]), float(said["since"]), str(said["what"]))
    return None
