"""How often `nightly` measures a night: as often as it is told, and twice while the store does not know the noise."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from db.ingest import ingest_bundle
from jobs.cli import app
from jobs.plan.planning import planned_night
from jobs.plan.spared_cells import SAME_CODE_AS
from jobs.requested_options import Selection
from tests.factories import new_store, night, passing

SMALL = ("--device", "cpu", "--model", "T5Small", "--config", "triton", "--branch", "main")


@pytest.fixture
def nightly(tmp_path, measured):
    """Calls `nightly`; returns how that ended and the names of the nights that it would have measured."""

    def call(*words):
        words = ("nightly", *SMALL, "--out", str(tmp_path / "runs"), "--db", str(tmp_path / "store.db"), *words)
        done = CliRunner(env={"INDUCTOR_WATCH_NIGHT": None}).invoke(app, words)
        return done, [names.night for _, names, _ in measured]

    return call


def stored(folder, nights):
    store = new_store(folder / "store.db")
    for number in range(nights):
        ingest_bundle(store, night(folder, f"r{number}", minutes=1440 * number))
    store.dispose()


@pytest.mark.parametrize(("nights", "expected"), [(6, 2), (7, 1)])
def test_a_branch_of_few_nights_is_measured_twice_a_night(nightly, tmp_path, nights, expected):
    stored(tmp_path, nights)
    done, names = nightly()
    assert done.exit_code == 0, done.output
    assert len(names) == expected
    assert len(set(names)) == 1  # one night, whatever it is called
    assert all(names) == (expected > 1)


@pytest.mark.parametrize(
    ("words", "expected"), [(["--replicates", "3"], 3), (["--no-store"], 1), (["--max-hours", "2"], 1)]
)
def test_what_is_asked_for_counts_and_a_night_with_a_limit_is_one_run(nightly, tmp_path, words, expected):
    stored(tmp_path, 1)
    done, names = nightly(*words)
    assert (done.exit_code, len(names)) == (0, expected), done.output


def test_cells_that_were_carried_over_are_not_measured_twice(nightly, measured, tmp_path):
    stored(tmp_path, 1)
    (planned,) = planned_night("cpu", Selection(models=("T5Small",)), ("triton",)).cells
    measured.progress.took(passing(planned, details={"only": "code", SAME_CODE_AS: "r0"}))
    done, names = nightly("--unchanged-code", "skip")
    assert (done.exit_code, len(names)) == (0, 1), done.output
