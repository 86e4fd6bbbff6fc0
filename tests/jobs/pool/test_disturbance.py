"""Measurements that shared the device are found by the run's own figures, and repeated once."""

from __future__ import annotations

import pytest

from collector.vocabulary import Cell, Config, Measurement, Phase, Status
from jobs.pool.disturbance import DisturbanceCheck


def measured(config, eager_ms=None, before_ms=3.0, after_ms=3.0, model="m"):
    cell = Cell("suite", model, Phase.INFERENCE, "bfloat16", "cuda", 4, Config(template=config))
    metrics = {} if eager_ms is None else {"eager_kernel_ms": eager_ms}
    details = {"idle_probe": {"before_ms": before_ms, "after_ms": after_ms}}
    return Measurement(cell, Status.PASS, "2026-11-22T00:00:00+00:00", 1.0, metrics=metrics, details=details)


@pytest.mark.parametrize("probes", [{"before_ms": 6.0}, {"after_ms": 6.0}])
def test_a_long_probe_repeats_the_cell_and_marks_it(probes):
    company = DisturbanceCheck()
    assert company.judge(measured("triton")) == []
    disturbed = measured("cudagraphs", **probes)
    assert company.judge(disturbed) == [disturbed.cell]
    assert disturbed.details["disturbed"] == "the device was not idle"


def test_a_gpu_that_is_held_back_is_named_and_not_taken_for_company():
    company = DisturbanceCheck()
    company.judge(measured("triton"))
    hot = measured("cudagraphs", after_ms=26.4)
    hot.details["throttled"] = ["hardware_thermal"]
    assert company.judge(hot) == [hot.cell]
    assert hot.details["disturbed"] == "the GPU was held back: hardware_thermal"


def test_a_lower_clock_is_no_company():
    company = DisturbanceCheck()
    company.judge(measured("triton"))
    assert company.judge(measured("cudagraphs", before_ms=4.2, after_ms=4.2)) == []


def test_an_eager_device_time_off_from_the_models_others_repeats_the_slower_one():
    company = DisturbanceCheck()
    company.judge(measured("triton", eager_ms=10.0))
    slower = measured("cudagraphs", eager_ms=20.0)
    assert company.judge(slower) == [slower.cell]
    assert "eager device time" in slower.details["disturbed"]
    assert company.judge(measured("aten", eager_ms=10.3)) == []
    assert company.judge(measured("triton", eager_ms=20.0, model="other")) == []


def test_the_first_of_a_model_is_repeated_once_a_later_one_shows_that_it_was_slow():
    company = DisturbanceCheck()
    first = measured("triton", eager_ms=20.0)
    assert company.judge(first) == []
    assert company.judge(measured("cudagraphs", eager_ms=10.0)) == [first.cell]


def test_a_cell_is_repeated_once_and_says_so():
    company = DisturbanceCheck()
    company.judge(measured("triton", eager_ms=10.0))
    company.judge(measured("cudagraphs", eager_ms=20.0))
    second = measured("cudagraphs", eager_ms=20.0)
    assert company.judge(second) == []
    assert second.details["repeated"]
    assert second.details["disturbed"]


def test_the_shortest_probe_is_what_an_idle_device_needs():
    company = DisturbanceCheck()
    assert company.idle_ms == 0.0
    company.judge(measured("triton", before_ms=3.5, after_ms=3.2))
    assert company.idle_ms == 3.2
