"""Why memory grew, from hand-made details: tensors saved for the backward pass, and lines alive at the peak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import causes
from analysis.compare.memory_changes import memory_words, peak_parts, saved_parts
from analysis.reports.facts import evidence_of
from tests.analysis.compare.judging import put_run
from tests.factories import cell, passing

SHAPE = [128, 96, 56, 56]
EACH = 128 * 96 * 56 * 56 * 4


def saved(count, *others, operators="mul"):
    return {"saved_tensors": [[operators, SHAPE, "float32", count, count * EACH], *others]}


def peak(*rows):
    return {"peak_lines": [list(row) for row in rows]}


@pytest.mark.parametrize(
    ("base", "new", "words"),
    [
        (saved(4), saved(6), ["+308 MB: 2 more tensors of [128, 96, 56, 56] float32 saved for backward (mul)"]),
        (saved(6), saved(5), ["-154 MB: 1 fewer tensor of [128, 96, 56, 56] float32 saved for backward (mul)"]),
        (saved(4), saved(4), []),
        ({}, saved(4), []),
        (
            saved(4) | peak(["buf = f()", 2, 10], ["(before the call)", 0, 500]),
            saved(4) | peak(["(before the call)", 0, 500], ["buf = f()", 5, 5_000_010]),
            ["+5 MB alive at the peak (2 -> 5 times): buf = f()"],
        ),
    ],
    ids=["more", "fewer", "alike", "unknown", "peak"],
)
def test_the_tensors_that_came_or_went_are_named(base, new, words):
    assert memory_words(base, new, 1e6) == words


def test_what_a_side_may_have_and_does_not_list_is_no_change():
    short = ["add", [64], "float32", 1, 256]
    rest = ["(other)", None, "", 7, 900]
    parts = saved_parts(saved(2, short), saved(3, ["relu", [512], "float32", 1, 2048], rest))
    assert [(part.name, part.change) for part in parts] == [
        ("[128, 96, 56, 56] float32", EACH),
        ("[512] float32", 2048),
    ]
    assert peak_parts(peak(["a", 1]), {"peak_lines": "none"}) == []


@pytest.mark.parametrize(("count", "cause"), [(18, "14 more tensors of [128, 96, 56, 56]"), (2, "peak memory")])
def test_a_larger_peak_is_put_down_to_what_grew_as_well(store, tmp_path, count, cause):
    for number, (peak_bytes, tensors) in enumerate([(1e9, 4), (3e9, count)]):
        found = passing(cell("bert"), details=saved(tensors), minutes=100 * number)
        made = replace(found, metrics=found.metrics | {"compiled_peak_bytes": peak_bytes})
        put_run(store, tmp_path, f"r{number}", [made], minutes=100 * number, commit=f"{number:040x}")
    compared = compare_named(store, "latest~1", "latest")
    with store.connect() as conn:
        (found,) = causes(conn, compared)
        evidence = evidence_of(conn, compared.cells[0])
    assert cause in found.title
    assert [line for line in evidence if "saved for backward" in line]
