"""Estimates fall from the cell itself to what is further away, one rung at a time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from collector.vocabulary import Config, Phase
from jobs.plan.fallback_estimates import FallbackEstimates, Source
from tests.factories import CUDAGRAPHS, DEFAULT, MAX_AUTOTUNE, cell

TRAINING = Phase.TRAINING


def test_a_measured_cell_is_its_own_median():
    found = FallbackEstimates([(cell(), value) for value in (10.0, 90.0, 12.0)])
    assert found.estimate(cell()) == (12.0, Source.MEASURED)


def test_the_same_config_in_another_size_comes_before_another_config():
    found = FallbackEstimates([(replace(cell(), batch_size=64), 10.0), (cell(config=CUDAGRAPHS), 99.0)])
    assert found.estimate(cell()) == (10.0, Source.MODEL)


def test_another_config_is_scaled_by_the_models_that_have_both():
    values = [
        (cell("a", DEFAULT), 10.0),
        (cell("a", MAX_AUTOTUNE), 40.0),
        (cell("b", DEFAULT), 20.0),
        (cell("b", MAX_AUTOTUNE), 80.0),
        (cell("only tuned", MAX_AUTOTUNE), 1000.0),  # no part of the ratio: it lacks the other config
        (cell("new", DEFAULT), 7.0),
    ]
    assert FallbackEstimates(values).estimate(cell("new", MAX_AUTOTUNE)) == (28.0, Source.MODEL)


def test_a_ratio_that_its_phase_does_not_tell_comes_from_the_other():
    values = [
        (cell("a", DEFAULT), 10.0),
        (cell("a", MAX_AUTOTUNE), 30.0),
        (cell("a", DEFAULT, phase=TRAINING), 20.0),
    ]
    assert FallbackEstimates(values).estimate(cell("a", MAX_AUTOTUNE, phase=TRAINING)) == (60.0, Source.MODEL)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (cell("new", DEFAULT), (11.0, Source.CONFIG)),
        (cell("new", Config(template="tma")), (12.0, Source.PHASE)),
        (cell("a", Config(template="tma")), (12.0, Source.PHASE)),
        (cell("new", DEFAULT, phase=TRAINING), (12.0, Source.OVERALL)),
        (cell("new", DEFAULT, device="cpu"), None),
    ],
)
def test_without_the_model_it_is_the_config_then_the_phase_then_the_device(asked, answer):
    values = [(cell("a", DEFAULT), 10.0), (cell("b", DEFAULT), 12.0), (cell("c", CUDAGRAPHS), 50.0)]
    assert FallbackEstimates(values).estimate(asked) == answer


def test_nothing_measured_is_no_estimate_and_zeros_give_no_ratio():
    assert FallbackEstimates([]).estimate(cell()) is None
    values = [(cell("a", DEFAULT), 0.0), (cell("a", CUDAGRAPHS), 5.0), (cell("b", DEFAULT), 0.0)]
    assert FallbackEstimates(values).estimate(cell("b", CUDAGRAPHS)) == (5.0, Source.CONFIG)


def test_the_order_of_the_measurements_does_not_matter():
    rng = random.Random(0)
    configs = (DEFAULT, CUDAGRAPHS, MAX_AUTOTUNE)
    values = [
        (cell(f"m{n}", config), rng.uniform(5, 200)) for n in range(9) for config in configs if rng.random() < 0.7
    ]
    asked = [cell(f"m{n}", config) for n in range(12) for config in configs]
    answers = [FallbackEstimates(values).estimate(item) for item in asked]
    for _ in range(5):
        rng.shuffle(values)
        assert [FallbackEstimates(values).estimate(item) for item in asked] == answers
