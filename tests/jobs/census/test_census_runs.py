"""Cells of a census share a generation where they are one program; what nights taught a census is read back."""

from collector.bundle import CENSUS
from collector.census.gpu_models import ASSUMED, PAD_MM
from collector.configs import parse_config
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusCell, CensusMemory, other_answers, share
from tests.factories import cell, failing, passing


def question(key, answer):
    return {"kind": PAD_MM, "key": key, "answer": answer, "source": ASSUMED, "text": ""}


def test_equal_programs_are_generated_once():
    names = ("triton", "default", "cudagraphs", "reduce-overhead", "triton+dynamic", "default+backend=eager")
    cells = [cell(config=parse_config(name)) for name in names]
    groups = [[one.config.name for one in group] for group in share([*cells, cells[0]])]
    assert groups == [
        ["triton", "default"],
        ["cudagraphs", "reduce-overhead"],
        ["triton+dynamic"],
        ["default+backend=eager"],
    ]


def test_other_answers_change_the_fewest_first():
    tries = list(other_answers([question("a", True), question("b", False)], "night-1"))
    assert [{key: answer for key, (answer, _) in one.items()} for one in tries] == [
        {"a": False, "b": False},
        {"a": True, "b": True},
        {"a": False, "b": True},
    ]
    assert tries[0]["a"] == (False, "night-1")
    assert len(list(other_answers([question(str(n), True) for n in range(9)], "night-1"))) == 15


def test_a_cell_tells_what_is_known_of_it():
    known = CensusCell(
        passing(cell(), code_id="c0de", details={"census": {"known": True, "questions": [question("a", True)]}})
    )
    assert known.describe() == "c0de  1 question"
    assert known.to_json() | {"model": "bert", "known": True, "code_id": "c0de", "config": "default"} == known.to_json()
    assert CensusCell(failing(cell())).describe() == "fail_to_compile: no kernel fits"


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
    (path,) = (tmp_path / "cache").glob("H100-torch-2.13.0.json")
    path.write_text("[]")
    assert not CensusMemory.read(place, "2.13.0").answers, "a damaged file says nothing"
