"""SIGKILL of a writer of bundles and of commands that change a store: what was acknowledged is there, and once."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter

import pytest

from collector.bundle import BundleWriter, read_bundle
from collector.bundle_file import both_paths
from db.ingest import ingest_bundle
from tests.chaos.test_inputs import IMPORTS, ORIGIN
from tests.chaos.world import CELLS, Child, Reference, cli, stores, three_runs, tries, usual_s
from tests.factories import at, header, new_store, passing


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


def check_bundle(folder, run_id, promised, closed=False):
    """Every promised measurement is in the bundle once; the plan is whole, or there is no file and no promise."""
    plain, packed = both_paths(folder / f"{run_id}.jsonl")
    if not plain.exists() and not packed.exists():
        assert not promised
        return
    contents = read_bundle(plain if plain.exists() else packed)
    counts = Counter(item.cell.cell_id for item in contents.measurements)
    assert promised <= set(counts)
    assert set(counts.values()) <= {1}
    assert contents.planned == CELLS
    if closed:
        assert (contents.damage, contents.finished_at is None) == ([], False)


def test_a_killed_writer_keeps_what_it_has_written_and_is_resumed(tmp_path, rng):
    names = iter(range(10**6))
    usual = usual_s(lambda: Child(tmp_path, work=lambda: write(tmp_path, f"spare{next(names)}")))
    for number in tries(60, 4):
        run_id, promised = f"w{number}", set()
        for _ in range(rng.randint(1, 3)):
            child = Child(tmp_path, work=lambda run_id=run_id: write(tmp_path, run_id))
            promised |= set(child.kill_after(rng.uniform(0, usual * 1.05)).out.split())
            check_bundle(tmp_path, run_id, promised - {"closed"}, closed="closed" in promised)
            if "closed" in promised:
                break
        else:
            write(tmp_path, run_id)
        check_bundle(tmp_path, run_id, {cell.cell_id for cell in CELLS}, closed=True)
        engine = new_store(tmp_path / f"{run_id}.db")
        assert ingest_bundle(engine, tmp_path / f"{run_id}.jsonl.gz").new == len(CELLS)
        engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_a_killed_ingest_leaves_whole_runs_and_is_repeated(kind, tmp_path, rng, request):
    reference, places = Reference(tmp_path, three_runs(tmp_path)), stores(tmp_path, kind, request)
    usual = usual_s(lambda: Child(tmp_path, "ingest", *reference.bundles, "--db", next(places)))
    for _ in tries(50 if kind == "sqlite" else 30, 3):
        words = ("ingest", *reference.bundles, "--db", next(places))
        killed = Child(tmp_path, *words).kill_after(rng.uniform(0, usual * 1.05))
        reference.check_partial(words[-1], killed)
        assert cli(tmp_path, *words).code == 0
        reference.check(words[-1])


def test_a_killed_upgrade_is_repeated(tmp_path, rng, request):
    reference, places = Reference(tmp_path, three_runs(tmp_path)), stores(tmp_path, "sqlite", request)
    usual = usual_s(lambda: Child(tmp_path, "db", "upgrade", "--db", next(places)))
    for _ in tries(30, 2):
        words = ("db", "upgrade", "--db", next(places))
        Child(tmp_path, *words).kill_after(rng.uniform(0, usual * 1.05))
        assert cli(tmp_path, *words).code == 0
        assert cli(tmp_path, "ingest", *reference.bundles, "--db", words[-1]).code == 0
        reference.check(words[-1])


@pytest.mark.slow
def test_a_killed_import_leaves_whole_bundles_and_is_repeated(tmp_path, rng, request):
    for name, data in IMPORTS.items():
        (tmp_path / name).write_bytes(data)
    runs, places = tmp_path / "runs", stores(tmp_path, "sqlite", request)
    options = [word for name, value in ORIGIN.items() for word in (f"--{name}", value)]

    def start(store):
        shutil.rmtree(runs, ignore_errors=True)
        return Child(tmp_path, *words, "--db", store)

    words = ("import", *(tmp_path / name for name in IMPORTS if name != "array.json"), *options, "--out", runs)
    usual = usual_s(lambda: start(next(places)))
    bundles = sorted(runs.glob("*.jsonl.gz"))
    reference = Reference(tmp_path, bundles)
    for _ in tries(30, 2):
        store = next(places)
        killed = start(store).kill_after(rng.uniform(0, usual * 1.05))
        reference.check_partial(store, killed)
        assert all(read_bundle(path).damage == [] for path in runs.glob("*.jsonl.gz"))
        assert cli(tmp_path, *words, "--db", store).code == 0
        assert sorted(runs.glob("*.jsonl.gz")) == bundles
        reference.check(store)
