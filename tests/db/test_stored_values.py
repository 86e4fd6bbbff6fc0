"""How samples are packed and texts cleaned for the store."""

import math
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stats.averages import robust_sigma
from db.stored_values import clean_compact, clean_json, compact, pack, relative_spread, unpack

NUMBERS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40)


@given(NUMBERS)
def test_samples_come_back_bit_for_bit(values):
    assert np.array_equal(unpack(*pack(values)), np.array(values, dtype=float), equal_nan=True)


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=2, max_size=30))
def test_the_stored_spread_is_robust_and_relative(values):
    assert relative_spread(values) == pytest.approx(robust_sigma(values) / np.median(values))
    assert relative_spread([1.0]) is None
    assert relative_spread([0.0, 0.0, 1.0]) is None


@pytest.mark.parametrize(
    ("number_format", "data", "values"),
    [
        ("<f4", np.array([0.5, 3.0], "<f4").tobytes(), [0.5, 3.0]),
        ("<f8", np.array([0.1]).tobytes(), [0.1]),
        ("<u4e-6", np.array([1_500_000, 0, 250], "<u4").view(np.uint8).reshape(-1, 4).T.tobytes(), [1.5, 1.50025]),
    ],
)
def test_the_formats_of_older_rows_are_read(number_format, data, values):
    assert unpack(number_format, zlib.compress(data)).tolist() == values


@pytest.mark.parametrize(
    "value",
    [{"a": [1, 2.5, None, True, "x"]}, {"a\x00": "nul \x00"}, {"a": "\ud800"}, {"a": ["ü", math.nan, math.inf]}],
)
def test_json_is_cleaned_only_where_there_is_something_to_clean(value):
    assert clean_compact(value) == compact(clean_json(value))
