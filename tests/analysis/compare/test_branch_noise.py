"""A branch with a run or two of its own is judged by the noise that the nights of main have shown on the same testbed."""

from __future__ import annotations

import pytest

from tests.analysis.compare import judging
from tests.analysis.compare.test_verdicts import MODELS, make_run
from tests.factories import new_store

BASE, HEAD = f"{11:040x}", "e" * 40
TESTBED = {"accelerator": "the synthetic GPU of a branch"}


@pytest.fixture
def store(tmp_path):
    found = new_store(tmp_path / "store.db")
    yield found
    found.dispose()


def judged(store):
    return judging.judged(store, f"main@{BASE}", f"mine@{HEAD}")[1:]


def branch_run(store, folder, **changes):
    slower = {MODELS[3]: {"compiled_ms": 1.05, "compiled_kernel_ms": 1.05}}
    make_run(store, folder, 12, slower=slower, commit=HEAD, branch="mine", branch_start=BASE, **changes)


def test_one_run_of_a_branch_is_decided_by_the_nights_of_main(store, tmp_path):
    for number in range(12):
        make_run(store, tmp_path, number)
    branch_run(store, tmp_path)
    found, cells = judged(store)
    assert found.counts() == {"regressed": 1, "unchanged": 23}
    assert cells.loc[MODELS[3], "verdict"] == "regressed"
    assert found.noise["compiled_ms"] == pytest.approx(0.002, rel=0.3)
    assert found.repeats["compiled_ms"] > 100  # of which the branch itself has none


def test_without_the_nights_one_run_of_each_decides_nothing(store, tmp_path):
    make_run(store, tmp_path, 11)
    branch_run(store, tmp_path)
    found, _ = judged(store)
    assert found.counts() == {"inconclusive": 24}
    assert found.repeats["compiled_ms"] == 0


def test_nights_on_another_testbed_say_nothing_of_the_branch(store, tmp_path):
    for number in range(11):
        make_run(store, tmp_path, number)
    make_run(store, tmp_path, 11, testbed=TESTBED)
    branch_run(store, tmp_path, testbed=TESTBED)
    found, _ = judged(store)
    assert found.repeats["compiled_ms"] == 0
    assert set(found.counts()) == {"inconclusive"}


def test_the_branchs_start_is_stored_with_it(store, tmp_path):
    from db.commits.storing import branch_starts

    make_run(store, tmp_path, 11)
    branch_run(store, tmp_path)
    (found,) = branch_starts(store, "mine")
    assert found.start is not None
    assert found.start.sha == BASE
