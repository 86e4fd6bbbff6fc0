"""Histories judged: synthetic nights of real commits, what is found in them, and between which."""

import math
from dataclasses import astuple

import numpy as np
import pytest

from analysis.history.timelines import judge_history, slow_drift, status_changes
from collector.metrics import MIN_EFFECT
from db.queries.sides import resolve_side
from tests.analysis.history.histories import A_NIGHT, MODELS, History, slower

#: What the synthetic nights have of what is judged; of the rest there is no series.
MEASURED = ("compiled_ms", "compiled_kernel_ms", "compile_cold_s", "compiled_peak_bytes")


def only(found):
    (change,) = found.changes
    return change


def ends(history, change):
    """The numbers of the nights on both sides."""
    places = [history.shas.index(point.commit) for point in (change.span.base, change.span.onset)]
    return tuple(place / A_NIGHT for place in places)


def test_a_step_has_its_levels_interval_direction_and_range(quiet):
    quiet.nights(12, 14)
    found = judge_history(quiet.store)
    assert (found.changes, len(found.cells)) == ((), len(MODELS))
    assert found.series == {metric: len(MODELS) if metric in MEASURED else 0 for metric in MIN_EFFECT}
    quiet.nights(14, 26, slower(1.06))
    change = only(judge_history(quiet.store))
    assert (change.cell, change.metric) == ("huggingface/bert inference bfloat16 cuda bs8 default", "compiled_ms")
    assert (change.direction, change.certainty, change.is_over) == ("worse", "established", False)
    assert ends(quiet, change) == (13, 14)
    levels = change.levels
    assert (levels.before, levels.after) == (pytest.approx(2.0, rel=0.003), pytest.approx(2.12, rel=0.003))
    assert levels.low < 1.06 < levels.high < levels.low + 0.01
    assert levels.p < levels.q < 1e-6
    assert change.worsening == pytest.approx(levels.ratio) == pytest.approx(levels.after / levels.before)
    assert not change.environment_changed


def test_a_shift_along_with_eager_is_the_hosts(quiet):
    quiet.nights(12, 20)
    quiet.nights(20, 23, slower(1.1, metrics=("compiled_ms", "eager_ms")))
    assert judge_history(quiet.store).changes == ()


def test_branches_are_kept_apart(quiet):
    quiet.nights(12, 24, slower(1.2), branch="feature")
    assert judge_history(quiet.store).changes == ()
    quiet.nights(24, 36, branch="feature")
    assert only(judge_history(quiet.store)).branch == "feature"
    assert judge_history(quiet.store, branch="main").changes == ()


def test_another_environment_of_one_commit_blames_no_commit(quiet):
    quiet.night(11, slower(1.1), run_id="again", minutes=1440 * 11 + 60, environment={"driver": "2.0"})
    quiet.nights(12, 24, slower(1.1), environment={"driver": "2.0"})
    change = only(judge_history(quiet.store))
    assert change.span.is_one_commit
    assert [one.key for one in change.environment] == ["driver"]


# Statuses


#: Of a change: the points before and at it, the last one before it first went that way, whether it broke, whether it is pending.
@pytest.mark.parametrize(
    ("passed", "changes"),
    [
        ("1110", [(2, 3, 2, True, False)]),  # from the newest night on
        ("1110111", []),  # a single failure in between
        ("1110001", [(2, 3, 2, True, False), (5, 6, 5, False, True)]),
        ("1101101110", [(8, 9, 8, True, True)]),  # flaky: it has to fail twice
        ("111101000", [(5, 6, 3, True, False)]),  # it may have begun with its first single failure
        ("---000", []),  # never measured before
    ],
)
def test_a_cell_broke_or_was_fixed_where_it_ends_the_same_way_twice(passed, changes):
    points = np.array([{"1": 1.0, "0": 0.0, "-": np.nan}[one] for one in passed])
    assert [astuple(one) for one in status_changes(points)] == changes


# Slow drift


def creeping(number):
    return lambda model, name: math.exp(0.0008 * number) if model == "bert" and name == "compiled_ms" else 1.0


def test_a_slow_drift_without_any_step_is_found_against_a_pin(tmp_path):
    history = History(tmp_path, nights=80)
    history.import_commits()
    for number in range(80):
        history.night(number, creeping(number), sd=0.02)
    assert judge_history(history.store).changes == ()
    with history.store.connect() as conn:
        found = slow_drift(conn, resolve_side(conn, "n003"))
        unpinned = slow_drift(conn)
    assert found.series == len(MODELS) * len(MEASURED)
    (drift,) = found.drifts
    assert (drift.metric, drift.direction) == ("compiled_ms", "worse")
    assert drift.levels.low < math.exp(0.0008 * (74.5 - 4)) < drift.levels.high
    assert drift.levels.steps == 1
    assert drift.levels.ratio == pytest.approx(drift.levels.drift)
    assert (drift.pinned.commit, drift.newest.commit) == (history.commit(3), history.commit(79))
    assert [(one.metric, one.direction) for one in unpinned.drifts] == [("compiled_ms", "worse")]


def test_a_release_on_another_branch_is_a_pin_as_well(history):
    history.nights(0, 6, branch="release/2.13")
    history.nights(6, 20, slower(1.05))
    with history.store.connect() as conn:
        (drift,) = slow_drift(conn, resolve_side(conn, "n002"), branch="main").drifts
    assert (drift.branch, drift.levels.steps) == ("main", 1)
    assert drift.levels.ratio == pytest.approx(1.05, abs=0.004)
