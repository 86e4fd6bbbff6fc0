"""Cells of a census share a generation where they are one program, and their questions have other answers."""

from collector.census.questions import ASSUMED, PAD_MM
from collector.configs import parse_config
from jobs.census.census_runs import CensusCell, other_answers, share
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


def test_other_models_share_nothing():
    assert len(share([cell("bert"), cell("gpt2"), cell("bert", dtype="float32")])) == 3


def test_other_answers_change_the_fewest_first():
    tries = list(other_answers([question("a", True), question("b", False)], "night-1"))
    assert [{key: answer for key, (answer, _) in one.items()} for one in tries] == [
        {"a": False, "b": False},
        {"a": True, "b": True},
        {"a": False, "b": True},
    ]
    assert tries[0]["a"] == (False, "night-1")


def test_other_answers_are_few():
    assert len(list(other_answers([question(str(n), True) for n in range(9)], "night-1"))) == 15
    assert not list(other_answers([], "night-1"))


def test_a_cell_tells_what_is_known_of_it():
    known = CensusCell(
        passing(cell(), code_id="c0de", details={"census": {"known": True, "questions": [question("a", True)]}})
    )
    assert known.describe() == "c0de  1 question"
    assert known.to_json() | {"model": "bert", "known": True, "code_id": "c0de", "config": "default"} == known.to_json()
    assert CensusCell(failing(cell())).describe() == "fail_to_compile: no kernel fits"
