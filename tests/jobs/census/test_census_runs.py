"""Cells of a census share a generation where they are one program; what nights taught a census is read back."""

from __future__ import annotations

import pytest

from collector.bundle import CENSUS
from collector.configs import parse_config
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import EQUAL, Agreement, CensusCell, CensusMemory, read_truth, share
from tests.dashboard import stores
from tests.factories import cell, header, passing, write_bundle


def test_answers_and_differing_cells_are_read_back(tmp_path):
    place = CensusPlace("H100", cache=tmp_path / "cache")
    memory = CensusMemory.read(place, "2.13.0")
    asked = {"kind": "pad_mm", "key": "a", "answer": False}
    equal = [taken(name, "c0de", questions=[asked | {"source": by}]) for name, by in (("bert", "night-1"), ("t5", ""))]
    memory.learn("night-1", equal, [cell("gpt2").cell_id])
    again = CensusMemory.read(place, "2.13.0")
    assert again.answers == {cell("bert").cell_id: {"a": (False, "night-1")}}
    assert again.differing == {cell("gpt2").cell_id: "night-1"}
    assert not CensusMemory.read(place, "2.12.0").answers
    again.learn("night-2", [taken("gpt2", "beef")], [])
    assert not CensusMemory.read(place, "2.13.0").differing
    (path,) = (tmp_path / "cache").glob("H100-torch-2.13.0.json")
    path.write_text("[]")
    assert not CensusMemory.read(place, "2.13.0").answers, "a damaged file says nothing"


SOFTWARE = {"torch": "2.13.0+cu130", "torch_git": "a" * 40, "triton": "3.7.0", "gpu": "NVIDIA H200"}
TESTBED = {"device": "cuda", "gpu": "NVIDIA H200"}


@pytest.fixture
def bundle(tmp_path):
    measured = [passing(cell("bert"), code_id="c0de"), passing(cell("gpt2"), code_id="beef"), passing(cell("t5"))]
    measured[0].details["padding"], measured[1].details["padding"] = {"a": True, "b": "no answer"}, ["a"]
    return write_bundle(tmp_path / "runs", header("n-1", testbed=TESTBED), measured, environment=SOFTWARE)


def taken(model, code_id, known=True, environment=SOFTWARE, questions=()):
    facts = {"known": known, "questions": questions}
    return CensusCell(passing(cell(model), code_id=code_id, details={CENSUS: facts}), environment)


def test_equal_programs_are_generated_once():
    names = ("triton", "default", "cudagraphs", "reduce-overhead", "triton+dynamic", "default+backend=eager")
    cells = [cell(config=parse_config(name)) for name in names]
    groups = [[one.config.name for one in group] for group in share([*cells, cells[0]])]
    assert groups == [list(names[:2]), list(names[2:4]), ["triton+dynamic"], ["default+backend=eager"]]


def test_cells_are_counted_by_how_they_agree(bundle):
    agreement = Agreement(read_truth(str(bundle), "no.db"))
    known = [taken("bert", "c0de"), taken("gpt2", "0ther"), taken("t5", "c0de")]
    words = [agreement.took(one) for one in (*known, taken("gpt2", "beef", False))]
    assert words == [EQUAL, "DIFFERS", "not in the night", ""]
    assert (agreement.cells, agreement.known, agreement.equal, agreement.not_measured) == (4, 3, 1, 1)
    assert list(agreement.differing) == [cell("gpt2").cell_id]


def test_code_of_the_same_software_alone_is_compared(bundle, tmp_path):
    truth = read_truth(str(bundle), "no.db")
    assert truth.answers == {cell("bert").cell_id: {"a": (True, truth.name)}}
    other = taken("bert", "c0de", environment={**SOFTWARE, "triton": "3.8.0"})
    assert Agreement(truth).took(other) == "not in the night"
    # A commit that changes no file is the installed torch.
    assert truth.codes({**SOFTWARE, "source": "0 files of 0123456789 over 70d99e998b"})
    assert not truth.codes({**SOFTWARE, "source": "1 files of 0123456789 over 70d99e998b"})
    store = stores.store(tmp_path / "store.db", [bundle])
    assert read_truth("n-1", str(store)).codes(SOFTWARE) == truth.codes(SOFTWARE)
