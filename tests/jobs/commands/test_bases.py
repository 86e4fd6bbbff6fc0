"""The base of a night on the command line: an ad hoc run in between hides nothing."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from db.engine import open_store
from db.store_errors import NoBaseError
from jobs.cli import app
from tests.analysis.compare.judging import put_run
from tests.analysis.compare.test_cell_verdicts import MODELS, make_run
from tests.factories import cell, new_store, passing

TWICE = {model: {"compiled_ms": 2.0, "compiled_kernel_ms": 2.0} for model in MODELS[1:]}


@pytest.fixture(scope="module")
def two_nights(tmp_path_factory):
    """A night, an ad hoc run of one model, and a night in which all but one model take twice as long."""
    folder = tmp_path_factory.mktemp("bases")
    store = new_store(folder / "store.db")
    make_run(store, folder, 0, trigger="nightly")
    one = [passing(cell(MODELS[0]), minutes=61)]
    put_run(store, folder, "tried", one, minutes=60, commit=f"{1:040x}", trigger="adhoc")
    make_run(store, folder, 2, slower=TWICE, trigger="nightly")
    store.dispose()
    return folder / "store.db"


def call(path, *words):
    return CliRunner().invoke(app, [*words, "--db", str(path)])


def test_a_gate_against_a_base_of_one_model_says_that_most_cells_have_none(two_nights):
    done = call(two_nights, "gate", "tried", "latest")
    assert done.exit_code == 3
    assert "23 of 24 cells of new have no base" in done.output


def test_a_night_without_a_base_ends_with_three(two_nights, tmp_path):
    path = shutil.copy(two_nights, tmp_path / "store.db")
    store = open_store(path, write=True)
    make_run(store, tmp_path, 9, trigger="nightly", testbed={"accelerator": "another"})
    store.dispose()
    done = call(path, "gate", "latest~1", "latest")
    assert isinstance(done.exception, NoBaseError)
    assert done.exception.exit_code == 3
