"""The gate's exit codes, and what it says."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from analysis.compare.cell_comparison import VERDICTS
from analysis.compare.cell_verdicts import decide
from jobs.cli import app
from tests.analysis.compare.test_cell_verdicts import MODELS
from tests.dashboard import stores
from tests.factories import cell, header, passing, write_bundle

DEFAULT = frozenset({"regressed", "broke", "missing"})


@pytest.mark.parametrize(
    ("counts", "code", "said"),
    [
        ({"unchanged": 5, "inconclusive": 3}, 0, "nothing found"),
        ({"unchanged": 5, "broke": 1, "missing": 1}, 1, "1 broke, 1 missing"),
        ({"inconclusive": 5, "environment_changed": 1}, 3, "nothing could be concluded"),
        ({"still_failing": 1}, 0, "nothing found"),
        ({"inconclusive": 5, "broke": 1}, 1, "1 broke"),
        ({"improved": 2}, 0, "nothing found"),
    ],
)
def test_what_was_found_decides(counts, code, said):
    found = decide(counts, DEFAULT)
    assert found[0] == code
    assert said in found[1]
    # Too many missing cells are too little even if something broke.
    assert decide({"broke": 1, "missing": 5}, DEFAULT, max_missing=4)[0] == 3
    assert decide({"broke": 1, "missing": 4}, DEFAULT, max_missing=4)[0] == 1
    assert decide({"unchanged": 9, "missing": 4}, frozenset({"regressed"}), max_missing=4)[0] == 0


@pytest.fixture(scope="module")
def nights(nights_with_losses, tmp_path_factory):
    """Twelve quiet nights, one in which a model got slower and another broke, one that measured nothing, a run of one model."""
    folder, cells = tmp_path_factory.mktemp("nights"), [cell(model) for model in MODELS]
    nothing = write_bundle(folder, header("r13", minutes=780), [], planned=cells)
    head = header("tried", minutes=790, trigger="adhoc")
    tried = write_bundle(folder, head, [passing(cells[0], minutes=791)])
    return str(stores.store(shutil.copy(nights_with_losses, folder / "store.db"), [nothing, tried]))


def gate(nights, *words):
    return CliRunner().invoke(app, ["gate", *words, "--db", nights])


def test_a_regression_is_exit_code_1_and_named(nights):
    done = gate(nights, "r11", "r12")
    assert done.exit_code == 1
    assert f"regressed: huggingface/{MODELS[4]} inference bfloat16 cuda bs8 default" in done.output
    assert done.output.splitlines()[-1] == "gate: 1 broke, 1 regressed"
    assert gate(nights, "r11", "r12", "--model", MODELS[0]).exit_code == 0
    assert gate(nights, "r11", "r12", "--model", MODELS[4], "--fail-on", "broke").exit_code == 0
    shown = " ".join(CliRunner().invoke(app, ["gate", "--help"]).output.split())
    assert [word for word in VERDICTS if word not in shown] == []
    for text, said in (("", "at least one"), ("regresed", "regressed")):
        refused = gate(nights, "r10", "r11", "--fail-on", text)
        assert (refused.exit_code, said in refused.output) == (2, True)


def test_nights_with_too_little_in_common_are_neither_good_nor_bad(nights):
    done = gate(nights, "tried", "r12")
    assert (done.exit_code, "23 of 24 cells of new have no base" in done.output) == (3, True)
    done = gate(nights, "r12", "r13", "--json")
    found = json.loads(done.output)
    assert (done.exit_code, found["exit_code"], found["counts"]) == (3, 3, {"missing": 24})
    assert len(found["failed"]) == 24
