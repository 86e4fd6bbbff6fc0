"""A cell's findings: one for each dimension, none hidden by another, by the metric that tells it best."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from analysis.compare.cell_comparison import Judged, Outcome, findings
from analysis.compare.comparison import MOST_CONFIRMATIONS, due_cells, is_due
from collector.metrics import Dimension
from tests.analysis.compare.cells import compared


def judged(outcome="regressed", decided=None, moved=False, **metrics):
    """A cell's findings: its outcome, and verdict, change and half width of the interval of each metric."""
    values = {
        name: Judged(name, Outcome(word), adjusted=change, low=None if width is None else change - width)._replace(
            high=None if width is None else change + width, q=0.01
        )
        for name, (word, change, width) in metrics.items()
    }
    return findings(Outcome(outcome), decided, values, moved=moved)


def by_dimension(found):
    return {finding.dimension: finding for finding in found}


def test_a_cell_may_be_faster_and_larger():
    values = {"compiled_peak_bytes": ("regressed", 1.15, 0.01), "compile_cold_s": ("regressed", 1.91, 0.2)}
    found = by_dimension(judged(compiled_ms=("improved", -0.62, 0.05), **values))
    assert {dimension: finding.verdict for dimension, finding in found.items()} == {
        Dimension.CORRECTNESS: Outcome.UNCHANGED,
        Dimension.LATENCY: Outcome.IMPROVED,
        Dimension.MEMORY: Outcome.REGRESSED,
        Dimension.COMPILE: Outcome.REGRESSED,
    }
    assert (found[Dimension.MEMORY].metric, found[Dimension.MEMORY].change) == ("compiled_peak_bytes", 1.15)


@pytest.mark.parametrize(
    ("wall", "device", "verdict", "metric"),
    [
        ("regressed", "unchanged", Outcome.REGRESSED, "compiled_ms"),  # overhead of the host
        ("unchanged", "regressed", Outcome.UNCHANGED, "compiled_ms"),  # nobody waits for it
        ("inconclusive", "regressed", Outcome.REGRESSED, "compiled_kernel_ms"),
        ("inconclusive", "inconclusive", Outcome.INCONCLUSIVE, "compiled_kernel_ms"),
    ],
)
def test_wall_time_decides_and_device_time_where_it_is_open(wall, device, verdict, metric):
    row = judged(compiled_ms=(wall, 0.03, 0.02), compiled_kernel_ms=(device, 0.03, 0.01))
    found = by_dimension(row)[Dimension.LATENCY]
    assert (found.verdict, found.metric) == (verdict, metric)


def test_where_the_device_is_as_busy_as_before_the_host_has_the_overhead():
    values = {"compiled_ms": ("regressed", 0.1, 0.02), "compiled_kernel_ms": ("unchanged", 0.0, 0.01)}
    assert by_dimension(judged(**values))[Dimension.LATENCY].is_host_overhead
    both = values | {"compiled_kernel_ms": ("regressed", 0.08, 0.01)}
    found = by_dimension(judged(**both))[Dimension.LATENCY]
    assert not found.is_host_overhead and (found.metric, found.beside.metric) == ("compiled_kernel_ms", "compiled_ms")


def test_another_machine_or_library_is_no_change():
    values = {"compiled_ms": ("regressed", 0.3, 0.1), "compiled_peak_bytes": ("unchanged", 0.0, 0.1)}
    found = by_dimension(judged("environment_changed", **values))
    assert found[Dimension.LATENCY].verdict is Outcome.ENVIRONMENT_CHANGED
    assert found[Dimension.MEMORY].verdict is Outcome.UNCHANGED
    moved = by_dimension(judged("environment_changed", moved=True, **values))
    assert {finding.verdict for finding in moved.values()} == {Outcome.ENVIRONMENT_CHANGED, Outcome.UNCHANGED}
    other = judged("inconclusive", moved=True, compiled_ms=("regressed", 0.3, 0.1))
    assert by_dimension(other)[Dimension.LATENCY].verdict is Outcome.INCONCLUSIVE


def test_a_cell_that_does_not_pass_twice_has_its_status_alone():
    for status in ("broke", "fixed", "still_failing", "flaky", "missing"):
        (found,) = judged(status, compiled_ms=("regressed", 0.3, 0.1))
        assert (found.dimension, found.verdict) == (Dimension.CORRECTNESS, Outcome(status))


# Which cells of a night are measured again


def test_what_changed_or_one_more_run_decides_is_due():
    assert all(is_due(outcome, None) for outcome in ("regressed", "improved", "broke", "flaky"))
    assert is_due("inconclusive", 1.0)
    unsettled = [("inconclusive", runs) for runs in (2.0, float("inf"), None)]  # None: nothing is known of the noise
    assert not any(is_due(*one) for one in [*unsettled, ("unchanged", 1.0), ("still_failing", None)])


def test_a_cell_is_due_so_often_and_where_a_run_can_settle_it():
    def is_one_due(one, confirmed=0):
        return due_cells(SimpleNamespace(cells=(one,)), {one.cell.cell_id: confirmed}) == [one]

    broke = compared("broke", statuses=("pass", "fail_to_run"))
    assert [is_one_due(broke, MOST_CONFIRMATIONS - more) for more in (1, 0)] == [True, False]
    assert not is_one_due(replace(broke, model_changed=True))
    assert not is_one_due(compared("broke", statuses=("pass", "fail_to_run"), moved=True))
