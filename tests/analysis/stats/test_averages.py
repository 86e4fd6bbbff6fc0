import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.stats.averages import geomean, robust_sigma

POSITIVE = st.floats(min_value=1e-6, max_value=1e6)
SOME = st.lists(POSITIVE, min_size=1, max_size=30)


def test_the_unmeasured_is_left_out_and_what_has_no_logarithm_refused():
    assert geomean([2.0, None, 8.0, math.nan]) == pytest.approx(4)
    for bad in (0.0, math.inf):
        with pytest.raises(ValueError, match="positive"):
            geomean([1.0, bad])


@given(SOME)
def test_geomean_agrees_with_the_standard_library(values):
    found = geomean(values)
    assert found == pytest.approx(statistics.geometric_mean(values))
    assert min(values) * (1 - 1e-9) <= found <= max(values) * (1 + 1e-9)


def test_the_robust_sigma_of_known_values():
    assert robust_sigma([1, 1, 2, 2, 4, 6, 9]) == pytest.approx(1.4826)
