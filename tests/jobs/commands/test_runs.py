"""`inductor-watch runs`: nights, and the runs in them."""

import json

import pytest
from click.testing import CliRunner

from db.ingest import ingest_bundle
from jobs.commands.runs import runs_command
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


def test_json_has_a_row_a_run_with_night_and_attempt(listed):
    rows = json.loads(listed("--json"))
    runs = [(row["night"], row["run_id"], row["attempt"]) for row in rows]
    assert runs == [("n", "g1", 2), ("n", "g0", 1), ("alone", "alone", 3)]
    assert {row["testbed"]["gpu"] for row in rows} == {"A GPU"}


def test_the_limit_counts_nights_and_a_branch_without_runs_is_told(listed):
    assert len(listed("--limit", "1").splitlines()) == 3
    assert "no runs of branch 'nosuch'" in listed("--branch", "nosuch")
