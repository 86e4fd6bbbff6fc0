"""The length of a union of intervals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.spans import union_length

NUMBERS = st.integers(-50, 50)


@pytest.mark.parametrize(
    ("spans", "length"),
    [
        ([], 0),
        ([(0, 2)], 2),
        ([(0, 2), (5, 6)], 3),
        ([(0, 2), (1, 4)], 4),
        ([(0, 10), (2, 3), (4, 5)], 10),
        ([(0, 2), (2, 4)], 4),
        ([(3, 1)], 0),
        ([(3, 1), (0, 5)], 5),
        ([(5, 6), (0, 1)], 2),
        ([(1, 1)], 0),
    ],
)
def test_what_overlaps_counts_once(spans, length):
    assert union_length(spans) == length


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_it_is_the_number_of_unit_steps_covered_by_any_span(spans):
    covered = {step for start, end in spans for step in range(start, end)}
    assert union_length(spans) == len(covered)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8), st.randoms())
def test_the_order_of_the_spans_does_not_matter(spans, rng):
    shuffled = list(spans)
    rng.shuffle(shuffled)
    assert union_length(shuffled) == union_length(spans)
