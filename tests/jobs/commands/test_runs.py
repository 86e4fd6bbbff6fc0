"""`inductor-watch runs`: nights, and the runs in them."""

import json

import pytest
from click.testing import CliRunner

from collector.bundle import BundleWriter, read_bundle
from db.ingest import ingest_bundle
from jobs.commands.db import runs_command
from tests.factories import COMMIT_A, COMMIT_B, cell, header, new_store, night, passing, write_bundle

GPU = {"gpu": "A GPU", "node": "here"}


@pytest.fixture
def listed(tmp_path):
    """Calls the verb on a database of one night on two GPUs, of which one was resumed, and an older one of one run."""
    engine = new_store(tmp_path / "store.db")
    ingest_bundle(engine, night(tmp_path, "alone", cells=[cell()], testbed=GPU, label="", attempt=3))
    for index in range(2):
        head = header(
            f"g{index}",
            minutes=60 + index,
            night="n",
            testbed={**GPU, "gpu_index": index},
            attempt=1 + index,
            commit=COMMIT_B,
        )
        planned = [cell("a"), cell("b")] if index else None
        ingest_bundle(engine, write_bundle(tmp_path, head, [passing(cell("a"))], planned=planned))
    engine.dispose()
    return lambda *words: CliRunner().invoke(runs_command, [*words, "--db", str(tmp_path / "store.db")]).output


def test_a_night_is_a_line_and_its_runs_are_below_it(listed):
    assert listed().splitlines() == [
        f"n  main@{COMMIT_B[:10]}  2 x A GPU [synthetic test data]: 2 pass, 1 missing",
        "    g1  A GPU 1, attempt 2: 1 pass, 1 missing",
        "    g0  A GPU 0: 1 pass",
        f"alone  main@{COMMIT_A[:10]}  A GPU, attempt 3: 1 pass",
    ]
    runs = [(row["night"], row["run_id"], row["attempt"]) for row in json.loads(listed("--json"))]
    assert runs == [("n", "g1", 2), ("n", "g0", 1), ("alone", "alone", 3)]


def test_the_limit_counts_nights_and_a_branch_without_runs_is_told(listed):
    assert len(listed("--limit", "1").splitlines()) == 3
    assert "no runs of branch 'nosuch'" in listed("--branch", "nosuch")


USAGE = {
    **{"seconds": 549.0, "workers": 15, "cores": 16, "cores_busy": 0.81, "gpu_busy": 0.4},
    **{"gpu_memory_bytes": 31.4e9, "gpu_memory_most_bytes": 72e9, "working": 0.7, "waiting": 0.2, "standing": 0.1},
}
WORDS = (
    "549 s: 16 cores 81 % busy, GPU 40 % busy, GPU memory 31 GB in the mean, 72 GB at most; "
    "15 workers 70 % at work, 20 % waiting for the device, 10 % standing still"
)


def closed(folder, run_id, usage, **changes):
    """A bundle whose last line says how its run used the machine."""
    writer = BundleWriter(folder, header(run_id, testbed=GPU, **changes), [cell()])
    writer.measurement(passing(cell()))
    return writer.close("2026-08-01T03:00:00+00:00", usage)


def printed(folder, *words):
    return CliRunner().invoke(runs_command, [*words, "--db", str(folder / "store.db")]).output


def test_how_a_run_used_its_machine_is_in_bundle_database_list_and_json(tmp_path):
    engine = new_store(tmp_path / "store.db")
    path = closed(tmp_path, "r1", USAGE)
    assert read_bundle(path).usage == USAGE
    ingest_bundle(engine, path)
    engine.dispose()
    assert printed(tmp_path).splitlines()[1:] == [f"    used in {WORDS}"]
    (row,) = json.loads(printed(tmp_path, "--json"))
    assert row["usage"] == USAGE


@pytest.mark.parametrize("foreign", [{"workers": "many"}, {"seconds": 1.0}, {**USAGE, "cores_busy": "much"}])
def test_a_use_of_another_version_does_not_end_the_list(foreign, tmp_path):
    engine = new_store(tmp_path / "store.db")
    ingest_bundle(engine, closed(tmp_path, "r1", foreign))
    engine.dispose()
    assert printed(tmp_path).startswith("r1  main@")
