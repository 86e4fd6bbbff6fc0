"""Variances by empirical Bayes: what is put into simulated cells is found again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import polygamma

from analysis.stats.run_noise import Prior, _inverse_trigamma, fit_prior, moderate


def cells(count, df, prior_df, typical, seed=1):
    """Variances of `count` cells as the model draws them, each estimated with `df` degrees of freedom."""
    rng = np.random.default_rng(seed)
    true = typical * prior_df / rng.chisquare(prior_df, count) if np.isfinite(prior_df) else np.full(count, typical)
    return true * rng.chisquare(df, count) / df, np.full(count, float(df))


@pytest.mark.parametrize(("prior_df", "typical"), [(4, 1e-4), (30, 2.5e-3)])
def test_the_prior_of_simulated_cells_is_found_again(prior_df, typical):
    found = fit_prior(*cells(20_000, 7, prior_df, typical))
    assert found.df == pytest.approx(prior_df, rel=0.12)
    assert found.variance == pytest.approx(typical, rel=0.03)


def test_equal_variances_leave_nothing_beyond_chance():
    found = fit_prior([1e-4] * 20, [6] * 20)
    assert found.df == np.inf
    own, df = moderate([9.0, np.nan], [3, 0], found)
    assert own.tolist() == [found.variance] * 2
    assert np.isinf(df).all()


@pytest.mark.parametrize(
    ("variances", "dfs"), [([1e-4] * 4, [3] * 4), ([np.nan] * 9, [3] * 9), ([0.0] * 9, [3] * 9), ([1e-4] * 9, [0] * 9)]
)
def test_too_few_cells_that_know_anything_have_no_prior(variances, dfs):
    assert fit_prior(variances, dfs) is None


def test_a_cell_is_pulled_towards_its_siblings_by_what_it_does_not_know():
    prior = Prior(4.0, 6.0)
    own, df = moderate([1.0, 1.0, np.nan, 1.0], [2, 600, 0, 0], prior)
    assert own[0] == pytest.approx((6 * 4 + 2 * 1) / 8)
    assert own[1] == pytest.approx(1.0, abs=0.04)
    assert own[2:].tolist() == [4.0, 4.0]
    assert df.tolist() == [8, 606, 6, 6]


def test_without_a_prior_a_cell_has_what_it_measured_or_nothing():
    own, df = moderate([2.0, np.nan], [3, 0], None)
    assert own[0] == 2.0
    assert np.isnan(own[1])
    assert df.tolist() == [3, 0]


@given(st.floats(-5, 5))
@settings(max_examples=50)
def test_the_inverse_of_trigamma_is_one(exponent):
    value = 10.0**exponent
    assert float(polygamma(1, _inverse_trigamma(value))) == pytest.approx(value, rel=1e-6)
