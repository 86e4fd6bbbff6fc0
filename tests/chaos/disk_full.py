"""A disk without room, for the database, its write-ahead log, the run folder: one line, then all of it once there is room."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.bundle import read_bundle
from collector.bundle_file import both_paths
from collector.vocabulary import Cell
from db.ingest import ingest_bundle
from tests.chaos import kills_of_writers, material
from tests.chaos.material import Reference
from tests.chaos.processes import Child, Done, cli
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import header, new_store

_ROOMY_KIB = 64 * 1024
_PAGE_KIB = 4
_BIG_ROUNDS = 400


class NoMountError(Exception):
    """Why no small disk can be had here."""


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A disk in memory with so much room. Raises `NoMountError` where none can be mounted."""
    if os.geteuid() != 0:
        raise NoMountError("a small disk (tmpfs) can only be mounted by root")
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def make_room(folder: Path) -> None:
    """Gives a small disk more room than anything here needs."""
    _mount("-o", f"remount,size={_ROOMY_KIB}k", str(folder))


def _mount(*words: str) -> None:
    try:
        done = subprocess.run(["mount", *words], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NoMountError("there is no mount command") from error
    if done.returncode:
        raise NoMountError(f"no small disk (tmpfs) can be mounted: {' '.join(done.stderr.split())}")


def database(setting: Setting) -> Tally:
    """A new database on a disk that it does not fit on."""
    return _guarded(setting, "disk full: new database", _new_databases)


def log(setting: Setting) -> Tally:
    """A database that is there already; the room ends while its write-ahead log or its file grows."""
    return _guarded(setting, "disk full: write-ahead log", _logs)


def run_folder(setting: Setting) -> Tally:
    """A bundle writer whose folder is full."""
    return _guarded(setting, "disk full: run folder", _writers)


def _guarded(setting: Setting, name: str, work: Callable[[Setting, Tally], None]) -> Tally:
    tally = Tally(name)
    try:
        work(setting, tally)
    except NoMountError as error:
        if tally.tries:
            raise
        tally.skipped = str(error)
    return tally


def _large_runs(folder: Path) -> list[Path]:
    return material.three_runs(folder, rounds=_BIG_ROUNDS)


def _new_databases(setting: Setting, tally: Tally) -> None:
    reference = material.make_reference(setting.folder, _large_runs)
    with small_disk(setting.folder / "measured", _ROOMY_KIB) as disk:
        cli(setting.folder, "ingest", *reference.words, "--db", str(disk / "x.db"))
        needed = _used_kib(disk)
    tally.notes.append(f"the store needs {needed} KiB")
    for _ in range(setting.amount(20, 2)):
        kib = setting.rng.randrange(_PAGE_KIB, needed, _PAGE_KIB)
        with small_disk(setting.folder / "disk", kib) as disk:
            _ingest_and_again(setting, tally, disk, reference)


def _logs(setting: Setting, tally: Tally) -> None:
    reference = material.make_reference(setting.folder, _large_runs)
    begun = setting.folder / "begun.db"
    engine = new_store(begun)
    ingest_bundle(engine, reference.bundles[0])
    engine.dispose()
    had = begun.stat().st_size // 1024
    for _ in range(setting.amount(20, 2)):
        with small_disk(setting.folder / "disk", had + setting.rng.randrange(_PAGE_KIB, 160, _PAGE_KIB)) as disk:
            material.copy_store(begun, disk / "x.db")
            _ingest_and_again(setting, tally, disk, reference)


def _ingest_and_again(setting: Setting, tally: Tally, disk: Path, reference: Reference) -> None:
    path = disk / "x.db"
    was_there = path.exists()
    words = ("ingest", *reference.words, "--db", str(path))
    done = cli(setting.folder, *words)
    tally.tries += 1
    _judge(tally, done)
    make_room(disk)
    stored = {run for run in reference.by_run for line in done.out.splitlines() if f": run {run}: " in line}
    if path.exists():
        material.check_after_kill(tally, str(path), reference, stored)
    elif was_there or stored:
        tally.lose(1, "the database file")
    again = cli(setting.folder, *words)
    if again.code != 0:
        tally.err(f"ingest once there was room: {again.err}")
        return
    setting.meddle_store(str(path))
    material.check_answers(tally, str(path), reference, "once there was room")


def _judge(tally: Tally, done: Done) -> None:
    if done.is_unforeseen:
        tally.trace(f"exit code {done.code}: {done.err}")
    elif done.code == 0:
        tally.hits["there was room enough"] += 1
    elif done.code != 4 or not done.is_one_line:
        tally.err(f"exit code {done.code}, {done.err!r}")
    else:
        text = done.err.partition("inductor-watch: ")[2]
        tally.hits["one line, exit code 4" if "full" in text or "No space" in text else f"said: {text.strip()}"] += 1


def _used_kib(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize // 1024


def _writers(setting: Setting, tally: Tally) -> None:
    cells = material.cells_of(tuple(f"model{number}" for number in range(8)))
    with small_disk(setting.folder / "measured", _ROOMY_KIB) as disk:
        start_writer(setting.folder, disk, "x", cells).wait()
        needed = both_paths(disk / "x.jsonl")[1].stat().st_size // 1024 + 28  # plain and packed stand side by side
    for number in range(setting.amount(20, 2)):
        run = f"f{number}"
        with small_disk(setting.folder / "disk", setting.rng.randrange(_PAGE_KIB, needed, _PAGE_KIB)) as disk:
            child = start_writer(setting.folder, disk, run, cells)
            done = child.wait()
            said = Counter(child.marks())
            child.forget()
            tally.tries += 1
            _judge(tally, done)
            _check_bundle(setting, tally, disk, run, said)
            make_room(disk)
            child = start_writer(setting.folder, disk, run, cells)
            if (again := child.wait()).code != 0 and "closed" not in said:
                tally.err(f"the writer once there was room: {again.err}")
            said.update(child.marks())
            child.forget()
            _check_bundle(setting, tally, disk, run, said, expected={cell.cell_id for cell in cells})


def start_writer(folder: Path, disk: Path, run: str, cells: list[Cell]) -> Child:
    """A writer of that run on the disk; an error of it is told as the command line tells it."""
    return Child(folder, lambda child: _write(child, disk, run, cells))


def _write(child: Child, disk: Path, run: str, cells: list[Cell]) -> int:
    from jobs.cli import report_error

    try:
        return kills_of_writers.write(child, disk, header(run), cells)
    except Exception as error:
        return report_error(error)


def _check_bundle(
    setting: Setting,
    tally: Tally,
    disk: Path,
    run: str,
    said: Counter[str],
    expected: set[str] | None = None,
) -> None:
    """What the writer had acknowledged is there once; with `expected` all of that, in a sound and closed bundle."""
    plain, packed = both_paths(disk / f"{run}.jsonl")
    there = next((path for path in (plain, packed) if path.exists()), None)
    promised = (expected or set()) | {mark for mark in said if len(mark) == 16}
    if there is None:
        tally.lose(len(promised), f"{run}: no file")
        return
    if expected:
        setting.meddle_bundle(there)
    contents = read_bundle(there)
    found = Counter(item.cell.cell_id for item in contents.measurements)
    tally.lose(len(promised - set(found)), f"measurements of {run}")
    tally.double(sum(count - 1 for count in found.values()), f"measurements of {run}")
    if expected and (contents.damage or contents.finished_at is None):
        tally.err(f"{there.name} is damaged once there was room: {contents.damage}")
