"""What a cell of a check needs next."""

from __future__ import annotations

import math

import pytest

from jobs.checking.deciding import CONFIRMED_COMPILING, MOST_COMPILES, Need, need

NOT_MEASURED = (None, math.nan, math.nan)
METRICS = ("compiled_ms", "compiled_kernel_ms", "compiled_peak_bytes", "compile_cold_s", "compile_instructions")


def row(verdict="unchanged", statuses=("pass", "pass"), code_changed=True, **of_metrics):
    """A row as a comparison and its judgement have it; a metric is (verdict, change, more runs).

    Half of its interval is a twentieth of the further runs.
    """
    cells = {"verdict": verdict, "status_base": statuses[0], "status_new": statuses[1], "code_changed": code_changed}
    for name in METRICS:
        word, change, more = of_metrics.get(name, ("unchanged", 0.0, 0.0) if "compile_" in name else NOT_MEASURED)
        low, high = (math.expm1(math.log1p(change) + sign * more / 20) for sign in (-1, 1))
        cells |= {f"{name}_verdict": word, f"{name}_change": change, f"{name}_more_runs": more}
        cells |= {f"{name}_base": 1.0, f"{name}_new": 1.0 + change}
        cells |= {f"{name}_adjusted": change, f"{name}_low": low, f"{name}_high": high}
    return cells


SLOWER, OPEN, SAME = ("regressed", 0.1, 0.0), ("inconclusive", 0.1, 3.0), ("unchanged", 0.0, 0.0)
HOPELESS, NOISY = ("inconclusive", 0.1, math.inf), ("inconclusive", 0.1, 10.0)
UNKNOWN, UNKNOWN_LARGE = ("inconclusive", 0.1, math.nan), ("inconclusive", 0.3, math.nan)


@pytest.mark.parametrize(
    ("cells", "timed", "compiled", "wanted"),
    [
        # Equal code is not timed; other code is, and so is code that is not known.
        (row(code_changed=False), 0, 1, Need.NOTHING),
        (row(code_changed=True), 0, 1, Need.TIME),
        (row(code_changed=None), 0, 1, Need.TIME),
        # A change is seen twice before it counts; no change need not be.
        (row("regressed", compiled_ms=SLOWER), 1, 1, Need.TIME),
        (row("regressed", compiled_ms=SLOWER), 2, 1, Need.NOTHING),
        (row("unchanged", compiled_ms=SAME), 1, 1, Need.NOTHING),
        (row("unchanged", compiled_ms=OPEN, compiled_kernel_ms=SAME), 1, 1, Need.NOTHING),
        (row("regressed", compiled_ms=SAME, compiled_peak_bytes=SLOWER), 1, 1, Need.TIME),
        # A latency that was seen once, beside an unchanged device time.
        (row("inconclusive", compiled_ms=OPEN, compiled_kernel_ms=SAME), 1, 1, Need.TIME),
        # What is open goes on, unless it is known to be too noisy.
        (row("inconclusive", compiled_ms=OPEN), 7, 1, Need.TIME),
        (row("inconclusive", compiled_ms=HOPELESS), 2, 1, Need.TIME),
        (row("inconclusive", compiled_ms=HOPELESS), 4, 1, Need.NOTHING),
        # Compile time needs no timing, and has a limit of its own.
        (row("inconclusive", code_changed=False, compile_cold_s=OPEN), 0, 1, Need.COMPILE),
        (row("inconclusive", code_changed=False, compile_cold_s=OPEN), 0, MOST_COMPILES, Need.NOTHING),
        (row("inconclusive", code_changed=False, compile_cold_s=UNKNOWN_LARGE), 0, 1, Need.COMPILE),
        (row("inconclusive", code_changed=False, compile_cold_s=UNKNOWN), 0, 1, Need.NOTHING),
        (row("inconclusive", code_changed=False, compile_cold_s=NOISY), 0, 1, Need.NOTHING),
        (row("inconclusive", code_changed=False, compile_cold_s=("inconclusive", 0.3, 10.0)), 0, 1, Need.COMPILE),
        (row("inconclusive", code_changed=False, compile_cold_s=("inconclusive", 0.04, 2)), 0, 1, Need.NOTHING),
        (row("regressed", code_changed=False, compile_cold_s=SLOWER), 0, 1, Need.COMPILE),
        (row("regressed", code_changed=False, compile_cold_s=SLOWER), 0, CONFIRMED_COMPILING, Need.NOTHING),
        (row("regressed", compiled_ms=SAME, compile_cold_s=SLOWER), 1, 0, Need.COMPILE),
        # What fails on one side is tried once more in the way in which it failed.
        (row("broke", ("pass", "fail_to_compile")), 0, 1, Need.COMPILE),
        (row("broke", ("pass", "fail_to_compile")), 0, 2, Need.NOTHING),
        (row("broke", ("pass", "fail_accuracy")), 1, 1, Need.TIME),
        (row("still_failing", ("oom", "oom")), 0, 1, Need.NOTHING),
        (row("missing", ("pass", None)), 0, 1, Need.NOTHING),
    ],
)
def test_a_cell_is_measured_until_it_is_decided(cells, timed, compiled, wanted):
    assert need(cells, timed, compiled, is_acting=False) is wanted


def test_the_side_that_tuned_for_both_compiles_once_more_after_all_else():
    tuned = row(code_changed=False) | {"compile_cold_s_base": math.nan}
    assert need(tuned, 0, 1, is_acting=False) is Need.COMPARE_COMPILING
    assert need(tuned, 0, 3, is_acting=False) is Need.NOTHING
    assert need(tuned | {"code_changed": True}, 0, 1, is_acting=False) is Need.TIME


def test_equal_code_is_timed_where_files_act_at_run_time():
    assert need(row(code_changed=False), 0, 0, is_acting=True) is Need.TIME
    assert need(row(code_changed=False, compiled_ms=SAME), 1, 0, is_acting=True) is Need.NOTHING
