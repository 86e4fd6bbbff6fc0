"""A cell's findings: one for each dimension, none hidden by another, by the metric that tells it best."""

from dataclasses import replace
from types import SimpleNamespace

from analysis.compare.comparison import MOST_CONFIRMATIONS, due_cells, is_due
from tests.analysis.compare.cells import compared, of


def test_where_the_device_is_as_busy_as_before_the_host_has_the_overhead():
    for device, is_overhead in (("unchanged", True), ("inconclusive", False)):
        judged = [of("compiled_ms", "regressed", 0.1), of("compiled_kernel_ms", device, 0.0)]
        found = compared("regressed", "compiled_ms", judged).findings
        assert [one.is_host_overhead for one in found if one.metric == "compiled_ms"] == [is_overhead]


def test_another_machine_or_library_is_no_change():
    judged = [of("compiled_ms", "regressed", 0.3), of("compiled_peak_bytes", "unchanged", 0.0)]
    for outcome, moved, latency, memory in (
        ("environment_changed", False, "environment_changed", "unchanged"),
        ("environment_changed", True, "environment_changed", "environment_changed"),
        ("inconclusive", True, "inconclusive", "inconclusive"),
    ):
        found = {one.dimension: one.verdict for one in compared(outcome, judged=judged, moved=moved).findings}
        assert (found["latency"], found["memory"]) == (latency, memory)


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
