"""Measurements that shared the device are found by the run's own figures, and repeated once."""

from __future__ import annotations

import pytest

from collector.vocabulary import Cell, Config, Measurement, Phase, Status
from jobs.pool.usage import DisturbanceCheck


def judge(check, measurement):
    return check.judge(measurement, measurement.cell)


def measured(config, eager_ms=None, before_ms=3.0, after_ms=3.0, model="m"):
    cell = Cell("suite", model, Phase.INFERENCE, "bfloat16", "cuda", 4, Config(template=config))
    metrics = {} if eager_ms is None else {"eager_kernel_ms": eager_ms}
    details = {"idle_probe": {"before_ms": before_ms, "after_ms": after_ms}}
    return Measurement(cell, Status.PASS, "2026-11-22T00:00:00+00:00", 1.0, metrics=metrics, details=details)


@pytest.mark.parametrize("probes", [{"before_ms": 6.0}, {"after_ms": 6.0}])
def test_a_long_probe_repeats_the_cell_and_marks_it(probes):
    check = DisturbanceCheck()
    assert check.idle_ms == 0.0
    assert judge(check, measured("triton")) == []
    assert judge(check, measured("aten", before_ms=4.2, after_ms=4.2)) == [], "a lower clock is no disturbance"
    assert check.idle_ms == 3.0
    disturbed = measured("cudagraphs", **probes)
    assert judge(check, disturbed) == [disturbed.cell]
    assert disturbed.details["disturbed"] == "the device was not idle"
    again = measured("cudagraphs", **probes)
    assert judge(check, again) == [], "it is repeated once"
    assert again.details["repeated"] and again.details["disturbed"]


def test_a_gpu_that_is_held_back_is_named_and_not_taken_for_a_neighbour():
    check = DisturbanceCheck()
    judge(check, measured("triton"))
    hot = measured("cudagraphs", after_ms=26.4)
    hot.details["throttled"] = ["hardware_thermal"]
    assert judge(check, hot) == [hot.cell]
    assert hot.details["disturbed"] == "the GPU was held back: hardware_thermal"


def test_an_eager_device_time_off_from_the_others_repeats_the_slower():
    check = DisturbanceCheck()
    judge(check, measured("triton", eager_ms=10.0))
    slower = measured("cudagraphs", eager_ms=20.0)
    assert judge(check, slower) == [slower.cell]
    assert "eager device time" in slower.details["disturbed"]
    assert judge(check, measured("aten", eager_ms=10.3)) == []
    first = measured("triton", eager_ms=20.0, model="other")
    assert judge(check, first) == []
    assert judge(check, measured("cudagraphs", eager_ms=10.0, model="other")) == [first.cell], "a later one is faster"


def test_a_device_time_longer_than_its_call_repeats_the_cell():
    """As measured on an H200 beside others: 3.45 ms of device time in calls of 2.57 ms."""
    check = DisturbanceCheck()
    impossible = measured("cudagraphs", eager_ms=2.92)
    impossible.metrics |= {"eager_ms": 3.79, "compiled_kernel_ms": 3.45, "compiled_ms": 2.57}
    assert judge(check, impossible) == [impossible.cell]
    assert "longer than the call" in impossible.details["disturbed"]
    possible = measured("triton", eager_ms=2.92)
    possible.metrics |= {"eager_ms": 3.79, "compiled_kernel_ms": 2.60, "compiled_ms": 2.57}
    assert judge(check, possible) == []


def test_a_slow_host_shows_in_eager_alone_and_its_process_is_repeated():
    check = DisturbanceCheck()
    first, second, third = (measured(config, eager_ms=3.0) for config in ("triton", "cudagraphs", "aten"))
    first.metrics["eager_ms"], second.metrics["eager_ms"], third.metrics["eager_ms"] = 5.2, 3.15, 3.54
    assert judge(check, first) == []
    assert judge(check, second) == [first.cell]
    assert "disturbed" not in second.details
    assert judge(check, third) == []
    slow = measured("max_autotune", eager_ms=3.0)
    slow.metrics["eager_ms"] = 4.1
    assert judge(check, slow) == [slow.cell]
    assert slow.details["disturbed"].startswith("the host was slow")
