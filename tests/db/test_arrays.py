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


def test_values_that_fit_four_bytes_take_four():
    assert pack([0.5, 1.25, 3.0])[0] == "<f4"


def test_values_that_need_eight_bytes_keep_them():
    number_format, data = pack([0.1])
    assert number_format == "<f8"
    assert unpack(number_format, data)[0] == 0.1


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


def test_latencies_to_the_nanosecond_take_less_than_half_of_eight_bytes():
    values = [19.592943 + 0.000137 * (n * n % 31) for n in range(30)]
    rounded = [round(value, 6) for value in values]
    number_format, data = pack(rounded)
    assert number_format == "<u4e-6"
    assert len(data) < 30 * 8 / 2


@pytest.mark.parametrize("values", [[-0.1, 0.1], [-0.0, 0.1], [0.1, 1e9], [0.1, 0.1234567], [0.1, float("nan")]])
def test_what_is_no_millionth_keeps_its_eight_bytes(values):
    number_format, data = pack(values)
    assert number_format == "<f8"
    assert np.array_equal(unpack(number_format, data), values, equal_nan=True)
