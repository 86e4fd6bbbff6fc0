import math

import pytest

from analysis.stats.averages import geomean, robust_sigma


def test_the_unmeasured_is_left_out_and_what_has_no_logarithm_refused():
    assert geomean([2.0, None, 8.0, math.nan]) == pytest.approx(4)
    for bad in (0.0, math.inf):
        with pytest.raises(ValueError, match="positive"):
            geomean([1.0, bad])


def test_the_robust_sigma_of_known_values():
    assert robust_sigma([1, 1, 2, 2, 4, 6, 9]) == pytest.approx(1.4826)
