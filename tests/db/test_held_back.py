import pytest

from collector.machine.telemetry import THROTTLING
from db.packing.throttling import REASONS, reasons_of, throttled_of


def after(held_by):
    return {"surroundings": {"before": {"clocks_held_by": ["power_cap"]}, "after": {"clocks_held_by": held_by}}}


def test_the_reasons_are_those_that_the_collector_tells():
    assert set(REASONS) == THROTTLING
    assert len(set(REASONS)) == len(REASONS)


@pytest.mark.parametrize(
    ("details", "number", "reasons"),
    [
        (after([]), 0, ()),  # held back by what ran before it, and not any more
        (after(["idle", "application_clocks"]), 0, ()),
        (after(["power_cap"]), 1, ("power_cap",)),
        (after(["hardware_thermal", "power_cap"]), 9, ("power_cap", "hardware_thermal")),
        (after(list(REASONS)), 31, REASONS),
    ],
)
def test_what_held_the_gpu_back_after_the_rounds_is_one_number(details, number, reasons):
    assert throttled_of(details) == number
    assert reasons_of(number) == reasons


@pytest.mark.parametrize(
    "details",
    [{}, {"throttled": ["power_cap"]}, {"surroundings": None}, {"surroundings": {"after": {"load1": 1.0}}}, after("x")],
)
def test_where_nobody_looked_nothing_is_said(details):
    assert throttled_of(details) is None
    assert reasons_of(None) == reasons_of(float("nan")) == ()
