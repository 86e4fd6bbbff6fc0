"""What nights taught a census is read back, for the same device and torch."""

from collector.bundle import CENSUS
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusCell, CensusMemory
from tests.factories import cell, passing


def known(model):
    facts = {"known": True, "questions": [{"kind": "pad_mm", "key": "a", "answer": False, "source": "assumed"}]}
    return CensusCell(passing(cell(model), code_id="c0de", details={CENSUS: facts}))


def test_answers_and_differing_cells_are_read_back(tmp_path):
    place = CensusPlace("H100", cache=tmp_path / "cache")
    memory = CensusMemory.read(place, "2.13.0")
    memory.learn("night-1", [known("bert")], ["equal"], [cell("gpt2").cell_id])
    again = CensusMemory.read(place, "2.13.0")
    assert again.answers == {cell("bert").cell_id: {"a": (False, "night-1")}}
    assert again.differing == {cell("gpt2").cell_id: "night-1"}
    assert not CensusMemory.read(place, "2.12.0").answers
    again.learn("night-2", [], [cell("gpt2").cell_id], [])
    assert not CensusMemory.read(place, "2.13.0").differing


def test_a_damaged_file_says_nothing(tmp_path):
    place = CensusPlace("H100", cache=tmp_path)
    (tmp_path / "H100-torch-2.13.0.json").write_text("[]")
    assert not CensusMemory.read(place, "2.13.0").answers
