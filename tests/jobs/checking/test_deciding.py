"""What a cell of a check needs next."""

from __future__ import annotations

import math

import pytest

from jobs.checking.deciding import CONFIRMED_COMPILING, MOST_COMPILES, Need, change_of_model, need
from tests.analysis.compare import cells

COMPILING = ("compile_cold_s", "compile_instructions")


def row(outcome="unchanged", statuses=("pass", "pass"), code_changed=True, without=(), by=None, **of_metrics):
    """A compared cell; a metric is (verdict, change, more runs), and half of its interval a twentieth of these.

    Base lacks the metrics `without`. The metric `by` decided the outcome.
    """
    parts = dict.fromkeys(COMPILING, ("unchanged", 0.0, 0.0)) | of_metrics
    judged = []
    for name, (word, change, more) in parts.items():
        low, high = (math.expm1(math.log1p(change) + sign * (more or 0.0) / 20) for sign in (-1, 1))
        ends = {} if more is None else {"low": low, "high": high}
        judged.append(cells.of(name, word, change, more_runs=more, **ends))
    sides = {name: 1.0 for name in parts if name not in without}, {name: 1 + part[1] for name, part in parts.items()}
    return cells.compared(outcome, by, judged, statuses, sides, code_changed=code_changed)


SLOWER, FASTER, SAME = ("regressed", 0.1, 0.0), ("improved", -0.1, 0.0), ("unchanged", 0.0, 0.0)
MUCH_SLOWER = ("regressed", 0.2, 0.0)
OPEN, HOPELESS, NOISY = (("inconclusive", 0.1, more_runs) for more_runs in (3.0, math.inf, 10.0))
UNKNOWN, UNKNOWN_LARGE = ("inconclusive", 0.1, None), ("inconclusive", 0.3, None)


@pytest.mark.parametrize(
    ("one", "timed", "compiled", "wanted"),
    [
        # Equal code is not timed; other code is, and so is code that is not known.
        (row(code_changed=False), 0, 1, Need.NOTHING),
        (row(code_changed=True), 0, 1, Need.TIME),
        (row(code_changed=None), 0, 1, Need.TIME),
        # A change is seen twice before it counts; no change need not be.
        (row("regressed", compiled_ms=SLOWER), 1, 1, Need.TIME),
        (row("regressed", compiled_ms=SLOWER), 2, 1, Need.NOTHING),
        (row("regressed", compiled_ms=SAME, compiled_kernel_ms=SLOWER), 1, 1, Need.TIME),
        (row("unchanged", compiled_ms=OPEN, compiled_kernel_ms=SAME), 1, 1, Need.NOTHING),
        (row("regressed", compiled_ms=SAME, compiled_peak_bytes=SLOWER), 1, 1, Need.TIME),
        # One that is hardly larger than what matters is seen four times.
        (row("regressed", compiled_ms=SAME, compiled_kernel_ms=("regressed", 0.02, 0.0)), 3, 1, Need.TIME),
        (row("regressed", compiled_ms=SAME, compiled_kernel_ms=("regressed", 0.02, 0.0)), 4, 1, Need.NOTHING),
        (row("regressed", compiled_ms=SLOWER, compiled_kernel_ms=("regressed", 0.02, 0.0)), 2, 1, Need.NOTHING),
        # A latency that was seen once, beside an unchanged device time.
        (row("inconclusive", by="compiled_ms", compiled_ms=OPEN, compiled_kernel_ms=SAME), 1, 1, Need.TIME),
        # What is open for its compile time alone is not timed again; for its memory it is.
        (row("inconclusive", compiled_kernel_ms=SAME, compile_cold_s=UNKNOWN_LARGE), 1, 1, Need.COMPILE),
        (row("inconclusive", compiled_ms=OPEN, compiled_kernel_ms=SAME, compile_cold_s=UNKNOWN), 1, 1, Need.NOTHING),
        (row("inconclusive", compiled_kernel_ms=SAME, compiled_peak_bytes=OPEN), 1, 1, Need.TIME),
        # What is open goes on, unless it is known to be too noisy.
        (row("inconclusive", compiled_ms=HOPELESS), 2, 1, Need.TIME),
        (row("inconclusive", compiled_ms=HOPELESS), 4, 1, Need.NOTHING),
        # Compile time needs no timing, and has a limit of its own.
        (row("inconclusive", code_changed=False, compile_cold_s=OPEN), 0, 1, Need.COMPILE),
        (row("inconclusive", code_changed=False, compile_cold_s=OPEN), 0, MOST_COMPILES, Need.NOTHING),
        (row("inconclusive", code_changed=False, compile_cold_s=UNKNOWN_LARGE), 0, 1, Need.COMPILE),
        (row("inconclusive", code_changed=False, compile_cold_s=UNKNOWN), 0, 1, Need.NOTHING),
        (row("inconclusive", code_changed=False, compile_cold_s=NOISY), 0, 1, Need.NOTHING),
        (row("inconclusive", code_changed=False, compile_cold_s=("inconclusive", -0.5, None)), 0, 1, Need.NOTHING),
        (row("inconclusive", code_changed=False, compile_cold_s=("inconclusive", 0.04, 2)), 0, 1, Need.NOTHING),
        (row("regressed", code_changed=False, compile_cold_s=SLOWER), 0, 1, Need.COMPILE),
        (row("regressed", code_changed=False, compile_cold_s=SLOWER), 0, CONFIRMED_COMPILING, Need.NOTHING),
        (row("regressed", compiled_ms=SAME, compile_cold_s=SLOWER), 1, 0, Need.COMPILE),
        # One that runs slower is decided, though its compile time is open; one that runs faster is not.
        (row("regressed", compiled_ms=SLOWER, compile_cold_s=OPEN), 2, 1, Need.NOTHING),
        (row("improved", compiled_ms=FASTER, compile_cold_s=OPEN), 2, 1, Need.COMPILE),
        # What fails on one side is tried once more in the way in which it failed.
        (row("broke", ("pass", "fail_to_compile")), 0, 1, Need.COMPILE),
        (row("broke", ("pass", "fail_accuracy")), 1, 1, Need.TIME),
        (row("still_failing", ("oom", "oom")), 0, 1, Need.NOTHING),
        (row("missing", ("pass", None)), 0, 1, Need.NOTHING),
        # A change that no second mode explains is seen once: not one whose interval reaches what a second mode is, nor one
        # of which the host shows less than half or the opposite.
        (row("regressed", compiled_ms=SLOWER, compiled_kernel_ms=SLOWER), 1, 1, Need.NOTHING),
        (row("regressed", compiled_ms=SLOWER, compiled_kernel_ms=("regressed", 0.1, 0.9)), 1, 1, Need.TIME),
        (row("regressed", compiled_ms=FASTER, compiled_kernel_ms=SLOWER), 1, 1, Need.TIME),
        (row("inconclusive", compiled_ms=SLOWER, compiled_kernel_ms=("inconclusive", 0.1, 0.0)), 1, 1, Need.TIME),
        # With other code a large one needs no witness; what hangs on other files does.
        (row("regressed", compiled_ms=FASTER, compiled_kernel_ms=MUCH_SLOWER), 1, 1, Need.NOTHING),
        (row("regressed", compiled_ms=FASTER, compiled_kernel_ms=MUCH_SLOWER, code_changed=None), 1, 1, Need.TIME),
        (row("regressed", compiled_ms=FASTER, compiled_kernel_ms=("regressed", 0.2, 3.0)), 1, 1, Need.TIME),
        (row("improved", compiled_ms=("improved", -0.2, 0.0), compiled_kernel_ms=FASTER), 1, 1, Need.NOTHING),
    ],
)
def test_a_cell_is_measured_until_it_is_decided(one, timed, compiled, wanted):
    assert need(one, timed, compiled, is_acting=False) is wanted


def test_another_config_of_the_model_shows_the_same_change_once_more():
    changed = row("regressed", compiled_ms=SLOWER)
    assert need(changed, 1, 1, is_acting=False, alike=1) is Need.NOTHING
    assert need(row("inconclusive", compiled_ms=OPEN), 1, 1, is_acting=False, alike=1) is Need.TIME
    slower, larger = row("regressed", compiled_ms=SLOWER), row("regressed", compiled_peak_bytes=SLOWER)
    assert change_of_model(slower) == change_of_model(row("regressed", compiled_ms=("regressed", 0.2, 0.0)))
    assert change_of_model(slower) != change_of_model(larger)
    assert change_of_model(row("unchanged")) == row("unchanged").cell.cell_id


def test_a_cell_that_was_told_is_still_compiled_for_its_compile_time():
    slower = row("unchanged", compiled_ms=NOISY, compile_cold_s=("inconclusive", 0.3, 3.0))
    assert [need(slower, 1, 1, is_acting=False, is_told=told) for told in (False, True)] == [Need.TIME, Need.COMPILE]
