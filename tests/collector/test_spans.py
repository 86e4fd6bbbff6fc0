"""The length of a union of intervals: overlaps count once, and an interval that ends before it starts is empty."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collector.process.outcome import union_length

NUMBERS = st.integers(-50, 50)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_it_is_the_number_of_unit_steps_covered_by_any_span(spans):
    covered = {step for start, end in spans for step in range(start, end)}
    assert union_length(spans) == len(covered)
