"""A full disk, a locked or damaged database, a crowd of writers, a clock that goes backwards."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from collector.bundle import BundleWriter, read_bundle
from db.engine import open_store
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.queries.cells import measurement
from db.runs import list_runs
from tests.chaos.test_kills import check_bundle, write
from tests.chaos.world import CELLS, Child, Done, Reference, cli, fresh, is_sound, stores, three_runs, tries
from tests.factories import at, header, new_store, passing, write_bundle

READING = (("runs", "--json"), ("compare", "latest~1", "latest", "--json"), ("compare", "r0", "r1"), ("db", "info"))
ROOM_KIB, PAGE_KIB = 64 * 1024, 4


def mount(*words):
    try:
        done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"no small disk (tmpfs) can be mounted: {done.stderr.strip()}")


@contextmanager
def small_disk(folder, kib):
    """A disk in memory with so much room."""
    if os.geteuid() != 0:
        pytest.skip("a small disk (tmpfs) can only be mounted by root")
    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True])
def test_a_database_on_a_full_disk_is_one_line_and_goes_on_once_there_is_room(begun, tmp_path, rng):
    reference = Reference(tmp_path, three_runs(tmp_path, rounds=400))
    engine = new_store(tmp_path / "begun.db")
    ingest_bundle(engine, reference.bundles[0])
    engine.dispose()
    data = (tmp_path / "begun.db").read_bytes()
    low = len(data) // 1024 if begun else 0
    high = low + 160 if begun else reference.path.stat().st_size // 1024
    for _ in tries(20, 3):
        with small_disk(tmp_path / "disk", low + rng.randrange(PAGE_KIB, high - low, PAGE_KIB)) as disk:
            store = disk / "x.db"
            if begun:
                store.write_bytes(data)
            done = cli(tmp_path, "ingest", *reference.bundles, "--db", store)
            done.check_one_line(4)
            mount("-o", f"remount,size={ROOM_KIB}k", disk)
            assert store.exists() or not (begun or ": run " in done.out)
            reference.check_partial(str(store), done)
            assert cli(tmp_path, "ingest", *reference.bundles, "--db", store).code == 0
            reference.check(str(store))


def test_a_bundle_on_a_full_disk_is_one_line_and_goes_on_once_there_is_room(tmp_path, rng):
    for number in tries(20, 3):
        run_id = f"f{number}"
        with small_disk(tmp_path / "disk", rng.randrange(PAGE_KIB, 40, PAGE_KIB)) as disk:
            done = Child(tmp_path, work=lambda disk=disk, run_id=run_id: write(disk, run_id)).wait()
            done.check_one_line(4)
            check_bundle(disk, run_id, set(done.out.split()) - {"closed"})
            mount("-o", f"remount,size={ROOM_KIB}k", disk)
            write(disk, run_id)
            check_bundle(disk, run_id, {cell.cell_id for cell in CELLS}, closed=True)


def hold(path, seconds):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    os.write(sys.stdout.fileno(), b"holding")
    time.sleep(seconds)
    connection.execute("COMMIT")


@pytest.mark.parametrize("is_long", [True, False])
def test_a_lock_is_waited_for_and_one_that_stays_is_one_line(is_long, tmp_path, monkeypatch):
    reference, path = Reference(tmp_path, three_runs(tmp_path)), fresh(tmp_path)
    new_store(path).dispose()
    holder = Child(tmp_path, work=lambda: hold(path, 30 if is_long else 0.2))
    holder.wait_for("holding")
    if is_long:
        monkeypatch.setattr("db.engine._PATIENCE_S", 0.5)
        done = cli(tmp_path, "ingest", *reference.bundles, "--db", path)
        assert (done.code, len(done.err.splitlines())) == (4, 1), done
        assert "another program is writing" in done.err
        assert cli(tmp_path, "runs", "--json", "--db", path).out.strip() == "[]"
        holder.kill_after(0)
    assert cli(tmp_path, "ingest", *reference.bundles, "--db", path).code == 0
    reference.check(str(path))


def read_again_and_again(store, stop, states):
    """Exits with an error if a run is ever in another state than those that somebody ingests."""
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
        ends = [writer.wait() for writer in writers]
        stop.touch()
        assert [end.err for end in (*ends, reader.wait()) if end.code] == []
        reference.check(store)


def page_of(data, size, rng, content):
    page = rng.randrange(len(data) // size) * size
    data[page : page + len(content)] = content


def cut(data, size, rng):
    del data[rng.randrange(len(data)) :]


DAMAGES = {
    "a page of noise": lambda data, size, rng: page_of(data, size, rng, rng.randbytes(size)),
    "a page of zeros": lambda data, size, rng: page_of(data, size, rng, bytes(size)),
    "the head of a page": lambda data, size, rng: page_of(data, size, rng, rng.randbytes(12)),
    "16 bytes": lambda data, size, rng: page_of(data, 1, rng, rng.randbytes(16)),
    "cut": cut,
}


@pytest.mark.parametrize(
    "damage", [pytest.param(name, marks=[] if name == "cut" else pytest.mark.slow) for name in DAMAGES]
)
def test_a_damaged_file_is_an_answer_or_one_line_and_is_built_anew(damage, tmp_path, rng):
    reference = Reference(tmp_path, three_runs(tmp_path))
    sound = reference.path.read_bytes()
    for _ in tries(10, 1):
        data = bytearray(sound)
        DAMAGES[damage](data, int.from_bytes(sound[16:18], "big"), rng)
        for words in (*READING, ("ingest", *reference.bundles)):
            cli(tmp_path, *words, "--db", fresh(tmp_path, bytes(data))).check_one_line(2, 3, 4)
    path = fresh(tmp_path)
    assert cli(tmp_path, "ingest", *reference.bundles, "--db", path).code == 0
    reference.check(str(path))


def backwards(folder, rng, number):
    """A run in which each cell is measured twice or three times, the later line dated earlier; the last one took 77 s."""
    now = 1000.0 - 100 * number
    head = header(f"b{number}", minutes=now, commit=f"{number:040x}", commit_date=at(500 - now))
    writer = BundleWriter(folder, head, CELLS)
    for wall_s in rng.choice([(1.0, 77.0), (1.0, 2.0, 77.0)]):
        if wall_s == 77.0 and rng.random() < 0.5:
            writer.abandon()
            writer, _ = BundleWriter.reopen(writer.path, at(now))
        for cell in CELLS:
            now -= rng.uniform(0.1, 5)
            writer.measurement(passing(cell, minutes=now, wall_s=wall_s))
    return writer.close(at(now - 500))  # before it began


@pytest.mark.slow
def test_the_order_of_lines_counts_and_not_the_clock(tmp_path, rng):
    for number in tries(15, 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        bundles = [backwards(folder, rng, run) for run in range(3)]
        reference = Reference(folder, bundles)
        engine = new_store(folder / "other.db")
        for bundle in rng.sample(bundles, 3):
            ingest_bundle(engine, bundle)
        for run_id, cell in itertools.product(reference.measured, CELLS):
            assert measurement(engine, run_id, cell.cell_id).wall_s == 77.0
        engine.dispose()
        reference.check(str(folder / "other.db"))
        for words in (("runs", "--json"), ("compare", "b0", "b1"), ("compare", "latest~1", "latest")):
            assert cli(folder, *words, "--db", folder / "other.db").code == 0


def test_the_checks_notice_what_is_missing(tmp_path):
    reference = Reference(tmp_path, three_runs(tmp_path))
    engine = new_store(tmp_path / "less.db")
    for bundle in reference.bundles[1:]:
        ingest_bundle(engine, bundle)
    engine.dispose()
    with pytest.raises(AssertionError):
        reference.check(str(tmp_path / "less.db"))
    with pytest.raises(AssertionError):
        reference.check_partial(str(tmp_path / "less.db"), Done(0, "x: run r0: 4 new\n", ""))
    write(tmp_path, "w")
    with pytest.raises(AssertionError):
        check_bundle(tmp_path, "w", {"another cell"})
    assert not is_sound(fresh(tmp_path, b"no database"))
    assert json.loads(cli(tmp_path, "runs", "--json", "--db", reference.path).out)
