"""Kills, full disks, locks, crowds and damage: what was acknowledged is there, once, and the same command goes on."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from collector.bundle import BundleWriter, read_bundle
from collector.output_file import both_paths
from db.engine import open_store
from db.ingest import ingest_bundle
from db.nights import list_runs
from db.store_errors import StoreError
from tests.chaos.test_inputs import IMPORTS, ORIGIN
from tests.chaos.world import CELLS, Child, Reference, cli, fresh, rng, stores, three_runs, tries
from tests.factories import at, header, new_store, passing, write_bundle

__all__ = ["rng"]
POSTGRES = pytest.param("postgres", marks=pytest.mark.slow)


def write(folder, run_id):
    """Begins a run or resumes it; prints each cell once its measurement is written, and `closed` at the end."""
    path, done = folder / f"{run_id}.jsonl", {}
    if any(place.exists() for place in both_paths(path)):
        writer, contents = BundleWriter.reopen(path, at(300))
        done = contents.latest()
    else:
        writer = BundleWriter(folder, header(run_id), CELLS)
    for cell in CELLS:
        if cell.cell_id not in done:
            writer.measurement(passing(cell))
            os.write(sys.stdout.fileno(), f"{cell.cell_id}\n".encode())
    writer.close(at(600))
    os.write(sys.stdout.fileno(), b"closed\n")


def check_bundle(folder, run_id, promised):
    """Every promised measurement is in the bundle once; the plan is whole, or there is no file and no promise."""
    plain, packed = both_paths(folder / f"{run_id}.jsonl")
    if not plain.exists() and not packed.exists():
        assert not promised
        return
    contents = read_bundle(plain if plain.exists() else packed)
    counts = Counter(item.cell.cell_id for item in contents.measurements)
    assert promised - {"closed"} <= set(counts)
    assert set(counts.values()) <= {1}
    assert contents.planned == CELLS
    assert "closed" not in promised or (contents.damage, contents.finished_at is None) == ([], False)


ALL = {"closed", *(cell.cell_id for cell in CELLS)}


def test_a_killed_writer_keeps_what_it_has_written_and_is_resumed(tmp_path, rng):
    usual = Child(tmp_path, work=lambda: write(tmp_path, "spare")).end().seconds
    for number in tries(60, 4):
        run_id, promised = f"w{number}", set()
        for _ in range(rng.randint(1, 3)):
            child = Child(tmp_path, work=lambda run_id=run_id: write(tmp_path, run_id))
            promised |= set(child.end(rng.uniform(0, usual * 1.05)).out.split())
            check_bundle(tmp_path, run_id, promised)
            if "closed" in promised:
                break
        else:
            write(tmp_path, run_id)
        check_bundle(tmp_path, run_id, ALL)


@pytest.mark.parametrize("kind", ["sqlite", POSTGRES])
@pytest.mark.parametrize("verb", ["ingest", "upgrade", pytest.param("import", marks=pytest.mark.slow)])
def test_a_killed_command_leaves_whole_runs_and_is_repeated(verb, kind, tmp_path, rng, request):
    bundles, places, runs = three_runs(tmp_path), stores(tmp_path, kind, request), tmp_path / "runs"
    words = {"ingest": ("ingest", *bundles), "upgrade": ("db", "upgrade")}.get(verb)
    if verb == "import":
        for name, data in IMPORTS.items():
            (tmp_path / name).write_bytes(data)
        options = [word for name, value in ORIGIN.items() for word in (f"--{name}", value)]
        words = ("import", *(tmp_path / name for name in IMPORTS if name != "array.json"), *options, "--out", runs)
    undisturbed = cli(tmp_path, *words, "--db", next(places))
    assert undisturbed.code == 0, undisturbed
    reference = Reference(tmp_path, sorted(runs.glob("*.jsonl.gz")) if verb == "import" else bundles)
    for _ in tries(40, 2):
        shutil.rmtree(runs, ignore_errors=True)
        store = next(places)
        killed = Child(tmp_path, *words, "--db", store).end(rng.uniform(0, undisturbed.seconds * 1.05))
        reference.check_partial(store, killed)
        assert all(read_bundle(path).damage == [] for path in runs.glob("*.jsonl.gz"))
        assert cli(tmp_path, *words, "--db", store).code == 0
        assert cli(tmp_path, "ingest", *reference.bundles, "--db", store).code == 0
        reference.check(store)


def mount(*words):
    is_root = shutil.which("mount") is not None and os.geteuid() == 0
    if not is_root or subprocess.run(["mount", *map(str, words)], capture_output=True).returncode:
        pytest.skip("a small disk (tmpfs) can only be mounted by root")


@contextmanager
def small_disk(folder, kib):
    """A disk in memory with so much room, and what gives it more."""
    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder)
    try:
        yield folder, lambda: mount("-o", "remount,size=64m", folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
def test_a_database_on_a_full_disk_is_one_line_and_continues_later(begun, tmp_path, rng):
    reference = Reference(tmp_path, three_runs(tmp_path, rounds=400))
    engine = new_store(tmp_path / "begun.db")
    ingest_bundle(engine, reference.bundles[0])
    engine.dispose()
    data = (tmp_path / "begun.db").read_bytes()
    low = len(data) // 1024 if begun else 0
    high = low + 160 if begun else reference.path.stat().st_size // 1024
    for _ in tries(20, 3):
        with small_disk(tmp_path / "disk", low + rng.randrange(4, high - low, 4)) as (disk, make_room):
            store = disk / "x.db"
            if begun:
                store.write_bytes(data)
            done = cli(tmp_path, "ingest", *reference.bundles, "--db", store)
            done.check_one_line(4)
            make_room()
            assert store.exists() or not (begun or ": run " in done.out)
            reference.check_partial(str(store), done)
            assert cli(tmp_path, "ingest", *reference.bundles, "--db", store).code == 0
            reference.check(str(store))


def test_a_bundle_on_a_full_disk_is_one_line_and_continues_later(tmp_path, rng):
    for _ in tries(20, 3):
        with small_disk(tmp_path / "disk", rng.randrange(4, 40, 4)) as (disk, make_room):
            done = Child(tmp_path, work=lambda disk=disk: write(disk, "f")).end()
            done.check_one_line(4)
            check_bundle(disk, "f", set(done.out.split()))
            make_room()
            write(disk, "f")
            check_bundle(disk, "f", ALL)


def hold(path, seconds):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    os.write(sys.stdout.fileno(), b"holding")
    time.sleep(seconds)
    connection.execute("COMMIT")


@pytest.mark.parametrize("is_long", [True, False])
def test_a_lock_is_waited_for_and_one_that_stays_is_one_line(is_long, tmp_path, monkeypatch):
    reference, path = Reference(tmp_path, three_runs(tmp_path)), tmp_path / "store.db"
    new_store(path).dispose()
    holder = Child(tmp_path, work=lambda: hold(path, 30 if is_long else 0.2))
    while holder.files[0].read_text() != "holding":
        time.sleep(0.01)
    if is_long:
        monkeypatch.setattr("db.engine._PATIENCE_S", 0.5)
        done = cli(tmp_path, "ingest", *reference.bundles, "--db", path)
        assert (done.code, len(done.err.splitlines())) == (4, 1), done
        assert "another program is writing" in done.err
        assert cli(tmp_path, "runs", "--json", "--db", path).out.strip() == "[]"
        holder.end(0)
    assert cli(tmp_path, "ingest", *reference.bundles, "--db", path).code == 0
    reference.check(str(path))


def read_again_and_again(store, stop, states):
    """Ends with an error if a run is ever in another state than those that somebody ingests."""
    while not stop.exists():
        try:
            engine = open_store(store, write=False)
            runs = list_runs(engine)
            engine.dispose()
        except StoreError as error:
            assert any(words in str(error) for words in ("no database here yet", "is empty")), error
        else:
            assert all(run.measured in states for run in runs), runs


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_eight_writers_and_a_reader_do_not_disturb_each_other(kind, tmp_path, rng, request):
    runs = [header(f"c{number}", minutes=60 * number) for number in range(6)]
    whole = [write_bundle(tmp_path, head, [passing(cell, seed=at) for cell in CELLS]) for at, head in enumerate(runs)]
    (tmp_path / "early").mkdir()
    half = [
        write_bundle(tmp_path / "early", head, read_bundle(path).measurements[:2], planned=CELLS, closed=False)
        for head, path in zip(runs, whole, strict=True)
    ]
    reference, stop = Reference(tmp_path, whole), tmp_path / "stop"
    for store in itertools.islice(stores(tmp_path, kind, request), len(tries(6, 2))):
        stop.unlink(missing_ok=True)
        reader = Child(tmp_path, work=lambda store=store: read_again_and_again(store, stop, {2, len(CELLS)}))
        writers = [Child(tmp_path, "ingest", *rng.sample([*whole, *half], 8), "--db", store) for _ in range(6)]
        writers += [Child(tmp_path, "ingest", *whole, *half, "--db", store) for _ in range(2)]
        ends = [writer.end() for writer in writers]
        stop.touch()
        assert [end.err for end in (*ends, reader.end()) if end.code] == []
        reference.check(store)


#: How many bytes of noise, and at a multiple of what; None cuts the file.
DAMAGES = {"a page of noise": (4096, 4096), "the head of a page": (12, 4096), "16 bytes": (16, 1), "cut": None}
READING = (("runs", "--json"), ("compare", "latest~1", "latest", "--json"), ("compare", "r0", "r1"), ("db", "info"))


@pytest.mark.parametrize("damage", [pytest.param(name, marks=[pytest.mark.slow] * (name != "cut")) for name in DAMAGES])
def test_a_damaged_file_is_an_answer_or_one_line(damage, tmp_path, rng):
    reference = Reference(tmp_path, three_runs(tmp_path))
    sound = reference.path.read_bytes()
    for _ in tries(10, 1):
        data, where = bytearray(sound), DAMAGES[damage]
        if where is None:
            del data[rng.randrange(len(data)) :]
        else:
            start = rng.randrange(len(data) // where[1]) * where[1]
            data[start : start + where[0]] = rng.randbytes(where[0])
        for words in (*READING, ("ingest", *reference.bundles)):
            cli(tmp_path, *words, "--db", fresh(tmp_path, bytes(data))).check_one_line(2, 3, 4)
