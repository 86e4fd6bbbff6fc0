"""What the eager run explains of the compiled one, on numbers made so that the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.run_noise import USUAL, WORTH, fit_slopes

RNG = np.random.default_rng(3)


def sums(x, y):
    x, y = x - x.mean(), y - y.mean()
    return np.array([x @ x]), np.array([x @ y]), np.array([y @ y])


def fit(x, y):
    return fit_slopes(*sums(np.asarray(x), np.asarray(y)))


def test_the_slope_is_that_of_the_data_where_there_is_much():
    x = RNG.normal(0, 0.2, 200)
    y = 0.9 * x + RNG.normal(0, 0.01, 200)
    found = fit(x, y)
    assert found.slope[0] == pytest.approx(0.9, abs=0.02)
    assert found.left[0] / 198 == pytest.approx(0.01**2, rel=0.25)
    assert found.taken[0] == pytest.approx(1, abs=0.001)
    assert found.spread[0] == pytest.approx(x.var() * 200, rel=0.01)


@pytest.mark.parametrize(("true", "limit"), [(1.6, 1), (-0.4, 0)])
def test_a_slope_stays_within_zero_and_one(true, limit):
    x = RNG.normal(0, 0.2, 50)
    found = fit(x, true * x)
    assert found.slope[0] == limit
    assert found.left[0] == pytest.approx((true - limit) ** 2 * float(((x - x.mean()) ** 2).sum()))


def test_without_a_move_it_is_what_is_usual_and_little_is_known_of_it():
    y = RNG.normal(0, 0.01, 6)
    found = fit(np.zeros(6), y)
    assert found.slope[0] == USUAL
    assert found.spread[0] == WORTH
    assert found.taken[0] == 0
    assert found.left[0] == pytest.approx(((y - y.mean()) ** 2).sum())
