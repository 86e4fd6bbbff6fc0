"""How often `nightly` measures a night: as often as it is told, and twice while the store does not know the noise."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from rich.console import Console

from db.ingest import ingest_bundle
from jobs.cli import app
from jobs.plan.carrying import SAME_CODE_AS
from jobs.plan.planning import planned_night
from jobs.pool import session, testbeds
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.progress import RunProgress
from jobs.pool.requested_options import Selection
from jobs.pool.testbeds import Testbed
from tests.factories import new_store, night, passing

SMALL = ("--device", "cpu", "--model", "T5Small", "--config", "triton", "--branch", "main")
ENVIRONMENT = {"device": "cpu", "torch": "2.13.0", "torch_git": "a" * 40}


@pytest.fixture
def nightly(tmp_path, monkeypatch):
    """A way to call `nightly`, and the names of the nights that it would have measured."""
    measured, progress = [], RunProgress(Console(quiet=True), 1)
    monkeypatch.setattr(session, "print_night", lambda *given: None)
    monkeypatch.setattr(
        session, "measure_and_store", lambda plan, beds, names, *rest: (measured.append(names.night) or ["r"], progress)
    )
    monkeypatch.setattr(
        testbeds, "find_testbeds", lambda device, execution, serve: [Testbed(DeviceSlot([[0]]), ENVIRONMENT, execution)]
    )

    def call(*words):
        measured.clear()
        words = ("nightly", *SMALL, "--out", str(tmp_path / "runs"), "--db", str(tmp_path / "store.db"), *words)
        return CliRunner(env={"INDUCTOR_WATCH_NIGHT": None}).invoke(app, words), list(measured)

    call.progress = progress
    return call


def stored(folder, nights):
    store = new_store(folder / "store.db")
    for number in range(nights):
        ingest_bundle(store, night(folder, f"r{number}", minutes=1440 * number))
    store.dispose()


@pytest.mark.parametrize(("nights", "expected"), [(0, 2), (6, 2), (7, 1)])
def test_a_branch_of_few_nights_is_measured_twice_a_night(nightly, tmp_path, nights, expected):
    stored(tmp_path, nights)
    done, measured = nightly()
    assert done.exit_code == 0, done.output
    assert len(measured) == expected
    assert len(set(measured)) == 1  # one night, whatever it is called
    assert all(measured) == (expected > 1)


@pytest.mark.parametrize(
    ("words", "expected"), [(["--replicates", "3"], 3), (["--no-store"], 1), (["--max-hours", "2"], 1)]
)
def test_what_is_asked_for_counts_and_a_night_with_a_limit_is_one_run(nightly, tmp_path, words, expected):
    stored(tmp_path, 1)
    done, measured = nightly(*words)
    assert done.exit_code == 0, done.output
    assert len(measured) == expected


def test_cells_that_were_carried_over_are_not_measured_twice(nightly, tmp_path):
    stored(tmp_path, 1)
    (planned,) = planned_night("cpu", Selection(models=("T5Small",)), ("triton",)).cells
    nightly.progress.took(passing(planned, details={"only": "code", SAME_CODE_AS: "r0"}))
    done, measured = nightly("--unchanged-code", "skip")
    assert done.exit_code == 0, done.output
    assert len(measured) == 1


def test_nothing_is_carried_over_on_a_cluster(nightly):
    done, measured = nightly("--unchanged-code", "skip", "--executor", "ray")
    assert (done.exit_code, measured) == (2, [])
    assert "--unchanged-code skip measures on this host" in done.output


def test_replicates_and_a_limit_of_hours_are_refused_together(nightly, tmp_path):
    done, measured = nightly("--replicates", "2", "--max-hours", "2")
    assert (done.exit_code, measured) == (2, [])
    assert "--max-hours" in done.output
