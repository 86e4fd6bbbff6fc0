import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stats.averages import robust_sigma
from db.arrays import pack, relative_spread, unpack

NUMBERS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40)


@given(NUMBERS)
def test_samples_come_back_bit_for_bit(values):
    assert np.array_equal(unpack(*pack(values)), np.array(values, dtype=float), equal_nan=True)


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=2, max_size=30))
def test_the_stored_spread_is_robust_and_relative(values):
    assert relative_spread(values) == pytest.approx(robust_sigma(values) / np.median(values))


def test_one_sample_and_samples_without_a_positive_median_have_no_spread():
    assert relative_spread([1.0]) is None
    assert relative_spread([0.0, 0.0, 1.0]) is None


@given(st.lists(st.integers(min_value=0, max_value=2**32 - 1), min_size=2, max_size=40))
def test_whole_millionths_come_back_bit_for_bit(counted):
    values = [count / 1e6 for count in counted]
    assert unpack(*pack(values)).tolist() == values


@pytest.mark.parametrize(
    ("values", "number_format"),
    [
        ([0.5, 1.25, 3.0], "<f4"),
        ([round(19.592943 + 0.000137 * (n * n % 31), 6) for n in range(30)], "<u4e-6"),
        *(([0.1, other], "<f8") for other in (-0.1, -0.0, 1e9, 0.1234567, float("nan"))),
        ([0.1], "<f8"),
    ],
)
def test_the_shortest_format_that_loses_nothing_is_taken(values, number_format):
    assert pack(values)[0] == number_format
