"""Calls before the first sample, and samples in turn, on a clock that is made up."""

from __future__ import annotations

import pytest

from collector.measure import clock
from collector.measure.clock import interleaved_ms, settle


@pytest.fixture
def took(monkeypatch):
    """Each call takes what it returns, in seconds, on a clock that nothing else moves."""
    now = [0.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])

    def of(seconds):
        left = list(seconds)

        def call():
            now[0] += left.pop(0) if len(left) > 1 else left[0]

        return call

    return of


@pytest.mark.parametrize(
    ("compiled", "rounds"),
    [
        ([0.001], 3),
        ([0.004, 0.002, 0.001, 0.001, 0.001], 5),
        ([0.001, 0.00104, 0.00102], 3),
        ([0.001, 0.0011, 0.001, 0.0011, 0.001, 0.001, 0.001], 7),
        ([0.2], 1),
    ],
)
def test_calls_go_on_until_three_agree_or_the_time_is_spent(took, compiled, rounds):
    assert settle(took([0.0001]), took(compiled), "cpu") == rounds


def test_what_never_settles_costs_no_more_than_its_limit(took):
    assert settle(took([0.0]), took([0.001, 0.002] * 100), "cpu", limit_s=0.05) <= 34


def test_samples_come_in_pairs_in_changing_order(monkeypatch):
    order = []
    interleaved_ms(lambda: order.append("e"), lambda: order.append("c"), "cpu", 4, 60)
    assert "".join(order) == "ecceecce"


def test_without_a_precision_there_are_as_many_rounds_as_asked(took):
    assert len(interleaved_ms(took([0.001, 0.5, 0.1]), took([0.001]), "cpu", 8, 60)[0]) == 8


def test_with_one_rounds_go_on_in_tens_while_either_median_is_not_known_to_it(took):
    steady, rough = [0.001], [0.001, 0.002] * 200
    assert len(interleaved_ms(took(steady), took(steady), "cpu", 30, 60, 0.01)[0]) == 30
    assert len(interleaved_ms(took(steady), took(rough), "cpu", 30, 60, 0.01)[0]) == 300
    settles = [0.001, 0.002] * 15 + [0.002] * 300
    assert len(interleaved_ms(took(settles), took(steady), "cpu", 30, 60, 0.01)[0]) == 50


def test_the_limit_ends_it_after_five_pairs(took):
    assert len(interleaved_ms(took([1.0]), took([1.0]), "cpu", 30, 3.0, 0.01)[0]) == 5
