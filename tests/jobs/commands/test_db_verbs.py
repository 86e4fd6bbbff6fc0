"""`inductor-watch db` and `runs`: what they print, and how they end."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from collector.bundle import BundleWriter, read_bundle
from db.engine import open_store
from db.nights import list_runs
from db.queries.details import samples
from db.regression_records import Finding, list_regressions, open_regression
from jobs.commands.db import db_command, runs_command
from tests.dashboard import stores
from tests.factories import COMMIT_A, cell, header, night, passing


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder as a person has it: bundles under `runs`, the database of them beside; one night of two runs, one alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INDUCTOR_WATCH_DB", raising=False)
    nights = [{"minutes": number, "night": name} for number, name in enumerate(("n", "n", ""))]
    runs = [night(tmp_path / "runs", f"r{number}", cells=[cell()], **how) for number, how in enumerate(nights)]
    stores.store(tmp_path / "inductor-watch.db", runs)
    return tmp_path


def say(*words):
    done = CliRunner().invoke(db_command, [str(word) for word in words])
    assert "Traceback" not in done.output
    return done


def test_check_reads_the_folder_of_runs_and_has_a_line_for_each_difference(folder):
    assert "2 nights, 3 runs, 3 measurements" in say("info").output
    found = json.loads(say("info", "--json").output)
    assert (found["nights"], found["runs"], found["measurements"], found["database"]) == (2, 3, 3, "inductor-watch.db")
    done = say("check")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.output.splitlines() == [
        "against itself: nothing found",
        "against 3 bundles: 3 runs, 3 measurements: nothing found",
    ]
    night(folder / "runs", "r9", minutes=9, cells=[cell()])
    done = say("check")
    assert (done.exit_code, "missing: run r9 is not in the database" in done.output) == (1, True)
    found = json.loads(say("check", folder / "runs" / "r9.jsonl.gz", "--json").output)
    assert [(item["kind"], item["subject"]) for item in found["findings"]] == [("missing", "r9")]
    assert found["untold"] == ["r0", "r1", "r2"]


def test_a_bad_file_costs_a_line_and_a_damaged_database_ends_with_4(folder):
    (folder / "runs" / "r0.jsonl").touch()
    done = say("check")
    assert (done.exit_code, "broken: runs/r0.jsonl" in done.stdout, "3 runs" in done.stdout) == (1, True, True)
    done = say("rebuild", "new.db", "runs")
    assert (done.exit_code, "runs/r0.jsonl is not a bundle" in done.stderr, "3 runs" in done.stdout) == (1, True, True)
    with (folder / "inductor-watch.db").open("r+b") as stream:
        stream.seek(20_000)
        stream.write(b"\xa5" * 60_000)
    done = say("check")
    assert done.exception.exit_code == 4
    assert "\n" not in str(done.exception)


def test_prune_says_what_went_and_a_dry_run_what_would(folder):
    engine = open_store("inductor-watch.db", write=False)
    dry = say("prune", "--older-than", "0d", "--dry-run")
    assert dry.output.startswith("would go: raw samples of 6 metrics")
    assert samples(engine, "r0", cell().cell_id)
    found = json.loads(say("prune", "--older-than", "4w", "--keep-samples", "0h", "--vacuum", "--json").output)
    assert (found["dry_run"], found["samples"], found["evidence"]) == (False, 6, 3)
    assert samples(engine, "r0", cell().cell_id) == {}
    assert "0 runs" not in say("prune", "--older-than", "0d").output
    assert "3 runs with 3 measurements" in say("prune", "--older-than", "0d", "--drop-runs-older-than", "0d").output
    assert list_runs(engine) == []


def test_rebuild_carries_records_and_needs_all_bundles_and_a_free_place(folder):
    engine = open_store("inductor-watch.db", write=True)
    runs = {"base_run": "r0", "onset_run": "r1"}
    open_regression(engine, Finding(cell().cell_id, **runs, kind="broke"), at=datetime.now(UTC), author="ann")
    done = say("rebuild", "new.db", "runs")
    assert done.exit_code == 0
    assert "new.db: 3 runs, 3 measurements, 1 commits; carried over: 1 regressions" in done.output
    assert [path.name for path in folder.glob("new*")] == ["new.db"]  # nothing half-built beside it
    assert list_regressions(open_store("new.db", write=False)) == list_regressions(engine)
    done = say("rebuild", "less.db", "runs/r0.jsonl.gz", "--json")
    assert (done.exit_code, json.loads(done.output)["lost"]) == (1, ["r1", "r2"])
    assert "nothing is replaced" in str(say("rebuild", "inductor-watch.db", "runs").exception)
    assert len(list_runs(open_store("inductor-watch.db", write=False))) == 3
    (folder / "inductor-watch.db").unlink()
    assert say("rebuild", "other.db", "runs").exception is not None
    done = say("rebuild", "other.db", "runs", "--no-carry")  # from bundles alone
    assert (done.exit_code, "3 runs" in done.output) == (0, True)


def test_remove_says_what_goes_asks_and_leaves_the_bundle(folder):
    done = CliRunner().invoke(db_command, ["remove", "r2"], input="n\n")
    assert done.exit_code == 1
    assert "1 measurements and 0 missing cells; the bundle r2.jsonl.gz stays" in done.stdout
    assert len(list_runs(open_store("inductor-watch.db", write=False))) == 3
    done = CliRunner().invoke(db_command, ["remove", "r2"])  # nobody answers
    assert (done.exit_code, "nothing was removed" in done.stderr) == (1, True)
    assert CliRunner().invoke(db_command, ["remove", "r2"], input="y\n").exit_code == 0
    assert json.loads(say("remove", "r1", "--yes", "--json").output)["night"] == "n"
    assert [run.run_id for run in list_runs(open_store("inductor-watch.db", write=False))] == ["r0"]
    assert len(list((folder / "runs").iterdir())) == 3
    assert "nearest: r" in str(say("remove", "r22", "--yes").exception)


USAGE = {"seconds": 549.0, "workers": 15, "cores": 16, "cores_busy": 0.81, "gpu_busy": 0.4, "gpu_memory_bytes": 31.4e9}
USAGE |= {"gpu_memory_most_bytes": 72e9, "working": 0.7, "waiting": 0.2, "standing": 0.1}


@pytest.fixture
def listed(tmp_path):
    """Lists runs of one cell on a GPU, whose last lines have their use; every second one lacks another cell."""

    def call(*runs):
        bundles = []
        for number, (run_id, changes) in enumerate(runs):
            testbed = {"gpu": "A GPU", "node": "here", **changes.pop("testbed", {})}
            usage = changes.pop("usage", None)
            head = header(run_id, minutes=60 * number, testbed=testbed, **changes)
            writer = BundleWriter(tmp_path, head, [cell("a"), cell("b")][: 1 + number % 2])
            writer.measurement(passing(cell("a")))
            bundles.append(writer.close("2026-08-02T03:00:00+00:00", usage))
        words = ["--db", str(stores.store(tmp_path / "store.db", bundles))]
        lines, found = (CliRunner().invoke(runs_command, [*words, *more]).output for more in ([], ["--json"]))
        return lines.splitlines(), json.loads(found)

    return call


def test_a_night_is_a_line_and_its_runs_are_below_it(listed):
    on_two = [(f"g{gpu}", {"night": "n", "testbed": {"gpu_index": gpu}, "attempt": 1 + gpu}) for gpu in (0, 1)]
    lines, found = listed(("alone", {"label": "", "attempt": 3}), *on_two)
    assert lines == [
        f"n  main@{COMMIT_A[:10]}  2 x A GPU [synthetic test data]: 2 pass, 1 missing",
        "    g1  A GPU 1, attempt 2: 1 pass",
        "    g0  A GPU 0: 1 pass, 1 missing",
        f"alone  main@{COMMIT_A[:10]}  A GPU, attempt 3: 1 pass",
    ]
    runs = [(row["night"], row["run_id"], row["attempt"]) for row in found]
    assert runs == [("n", "g1", 2), ("n", "g0", 1), ("alone", "alone", 3)]


def test_how_a_run_used_its_machine_is_in_bundle_database_list_and_json(listed, tmp_path):
    foreign = {"workers": "many"}, {"seconds": 1.0}, {**USAGE, "cores_busy": "much"}  # of another version
    lines, found = listed(*((f"r{number}", {"usage": usage}) for number, usage in enumerate((USAGE, *foreign))))
    assert [line[:2] for line in lines if not line.startswith(" ")] == ["r3", "r2", "r1", "r0"]
    said = "    used in 549 s: 16 cores 81 % busy, GPU 40 % busy, GPU memory 31 GB in the mean, 72 GB"
    assert lines[-1].startswith(said)
    assert found[-1]["usage"] == read_bundle(tmp_path / "r0.jsonl.gz").usage == USAGE
