"""Equal programs are measured once and shown under each name; the A/A pair is measured twice on purpose."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from collector.configs import parse_config
from collector.vocabulary import Config, Phase, Status
from jobs.plan.spared_cells import SAME_PROGRAM, copy_for, find_duplicates, plan_work, program_key
from tests.factories import cell, failing, passing

BERT = [cell("bert", Config(mode=name)) for name in ("a1", "b1", "a2", "a3")]


@pytest.fixture
def by_first_letter(monkeypatch):
    """Modes that begin with one letter are one program."""
    monkeypatch.setattr("jobs.plan.spared_cells.program_key", lambda config, device: f"{config.mode[0]}{device}")


lettered = pytest.mark.usefixtures("by_first_letter")


def names(found):
    return {key: [other.config.name for other in duplicates] for key, duplicates in found.items()}


def work(planned, *, done=(), again=()):
    return plan_work(planned, {item.cell.cell_id: item for item in done}, again)


@pytest.mark.parametrize(
    ("one", "other", "device"),
    [
        ("cudagraphs", "reduce-overhead", "cuda"),
        ("max_autotune", "max-autotune-no-cudagraphs", "cpu"),
        ("freezing", "default+freezing=true", "cpu"),
        ("cudagraphs+dynamic=true", "reduce-overhead+dynamic=true", "cuda"),
    ],
)
def test_names_of_one_program_are_duplicates(one, other, device):
    assert program_key(parse_config(one), device) == program_key(parse_config(other), device)


@pytest.mark.parametrize(
    ("one", "other", "device", "why"),
    [
        ("triton", "default", "cpu", "the A/A pair"),
        ("triton+dynamic=true", "default+dynamic=true", "cuda", "the A/A pair of dynamic shapes"),
        ("triton", "cudagraphs", "cuda", "another program"),
        ("default", "cudagraphs", "cpu", "one program, but only the first is available on a CPU"),
        ("default", "default+dynamic=false", "cuda", "dynamic"),
        ("default", "default+fullgraph", "cuda", "fullgraph"),
        ("default", "default+compile_threads=1", "cuda", "one program, compiled in another time"),
        ("default", "default+backend=eager", "cpu", "another back-end"),
    ],
)
def test_what_only_looks_alike_is_measured_each(one, other, device, why):
    assert program_key(parse_config(one), device) != program_key(parse_config(other), device), why


@lettered
def test_cells_that_differ_in_more_than_the_config_are_no_duplicates():
    others = [{"model": "gpt2"}, {"phase": Phase.TRAINING}, {"dtype": "amp"}, {"device": "cpu"}, {"batch_size": 9}]
    assert find_duplicates([BERT[0], *(replace(BERT[2], **change) for change in others)]) == {}


def test_a_duplicate_gets_the_whole_outcome_and_says_whose_it_is():
    found = failing(BERT[0], Status.CRASHED)
    copy = copy_for(BERT[2], found)
    assert copy.details == {**found.details, SAME_PROGRAM: "a1"}
    assert replace(copy, cell=BERT[0], details=found.details) == found
    assert SAME_PROGRAM not in found.details


@lettered
def test_a_cell_that_is_measured_again_takes_its_duplicates_along():
    crashed = failing(BERT[0], Status.CRASHED)
    done = [crashed, passing(BERT[1]), *(copy_for(other, crashed) for other in BERT[2:])]
    found = work(BERT, done=done, again=[item.cell.cell_id for item in done if item.status is Status.CRASHED])
    assert found.cells == [BERT[0]]
    assert names(found.duplicates) == {BERT[0].cell_id: ["a2", "a3"]}
    assert found.copies == []


@lettered
def test_whatever_is_recorded_the_work_ends_with_every_cell_named_once():
    rng = random.Random(3)
    planned = [cell(model, Config(mode=f"{letter}{n}")) for n in range(3) for letter in "abc" for model in ("m", "n")]
    for _ in range(50):
        whole = work(planned)
        lines = []
        for first in whole.cells:
            found = passing(first)
            lines += [found, *(copy_for(other, found) for other in whole.duplicates.get(first.cell_id, []))]
        done = lines[: rng.randint(0, len(lines))]
        left = work(planned, done=done)
        after = [item.cell.cell_id for item in [*done, *left.copies]]
        after += [item.cell_id for first in left.cells for item in [first, *left.duplicates.get(first.cell_id, [])]]
        assert sorted(after) == sorted(item.cell_id for item in planned)
        assert left.total == len(planned) - len(done)
