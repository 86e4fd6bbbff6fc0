"""A new store: what synthetic nights of two runs each tell by the third, and what one run a night does not."""

import math

import numpy as np
import pytest
from click.testing import CliRunner

from analysis.history.alerts import survey
from analysis.history.branch_series import Certainty, Direction
from analysis.reports.facts import evidence_of
from jobs.cli import app
from tests.analysis.compare import judging
from tests.analysis.history.histories import find_alerts
from tests.factories import cell, passing


def make_night(store, folder, number, runs=2, models=1, noise=0.01, slower=1.0, eager=1.0, host=1.0, spread=0.0):
    """Store a night on a CPU.

    In the first model `slower` multiplies the compiled latency, `eager` both of them, and `host` both of all others;
    `spread` makes the compiled latency of each longer by that much more than that of the one before.
    """
    for run in range(runs):
        random = np.random.default_rng([number, run])
        made = []
        for model in range(models):
            off = [math.exp(random.normal(0, noise)) for _ in range(2)]
            own, both = (slower, eager) if model == 0 else (1.0, host)
            metrics = {"eager_ms": 2.0 * both * off[0], "compiled_ms": (1 + spread * model) * own * both * off[1]}
            minutes = 1440 * number + 60 * run
            made.append(passing(cell(f"m{model}"), minutes=minutes + 1, samples={}, metrics=metrics))
        head = {"minutes": minutes, "commit": f"{number:040x}", "night": f"n{number}"}
        judging.put_run(store, folder, f"r{number}-{run}", made, **head)


def judged(store):
    """The newest night's comparison, its judgement, and the row of the first model."""
    found, rows = judging.judged(store)
    row = rows.loc["m0"].to_dict()
    with store.connect() as conn:
        lines = evidence_of(conn, judging.cell_of(found, "m0"))
    (told,) = (one for one in found.to_json()["cells"] if one["model"] == "m0")
    return row, told["judged"]["compiled_ms"], lines


@pytest.fixture
def history(store, tmp_path):
    """A way to fill a store with nights, given by what differs in each."""

    def make(*which, **all_of_them):
        for number, differs in enumerate(which):
            make_night(store, tmp_path, number, **(all_of_them | differs))
        return store

    return make


def test_a_spike_long_ago_hides_no_step_where_a_night_has_one_run(history):
    which = [{"slower": {2: 1.5, 10: 1.12}.get(number, 1.0)} for number in range(11)]
    row, told, _ = judged(history(*which, runs=1))
    assert row["verdict"] == "regressed", told


@pytest.mark.parametrize(("models", "verdict"), [(1, "inconclusive"), (8, "regressed")])
def test_a_slower_model_is_judged_by_absolute_times_where_others_show_it(history, models, verdict):
    row, told, lines = judged(history(*[{}] * 8, {"eager": 1.5}, models=models))
    assert row["verdict"] == verdict
    assert any("eager of the same processes" in line and "another model?" in line for line in lines)
    assert told["change"] == pytest.approx(0.5, abs=0.05)
    if models == 1:
        assert any("compiled: +" in line and "as measured" in line for line in lines), lines


def test_a_host_that_slowed_all_of_the_models_is_no_change_of_one(history):
    row, _, _ = judged(history(*[{}] * 8, {"eager": 1.5, "host": 1.5}, models=8))
    assert row["verdict"] != "regressed"


def test_a_step_of_twelve_per_cent_is_told_in_the_third_night(history):
    store = history({}, {}, {"slower": 1.12}, models=6)
    row = judging.judged(store, "n1", "n2")[1].loc["m0"]
    assert (row["verdict"], row["verdict_metric"]) == ("regressed", "compiled_ms")
    (alert,) = find_alerts(store)
    (change,) = alert.changes
    assert (change.metric, change.direction, change.certainty) == ("compiled_ms", Direction.WORSE, Certainty.PENDING)
    assert (change.span.base.commit, change.span.onset.commit) == (f"{1:040x}", f"{2:040x}")
    assert change.levels.ratio == pytest.approx(1.12, abs=0.03)
    assert change.levels.low < 1.12 < change.levels.high
    assert not change.is_over


def test_one_run_a_night_is_not_judged_and_says_what_it_needs(history, tmp_path):
    store = history({}, {}, {"slower": 1.12}, runs=1)
    assert survey(store).history.first["compiled_ms"] == 0
    done = CliRunner().invoke(app, ["changepoints", "--db", str(tmp_path / "store.db")])
    assert "need ten measured commits, or two with repeats (`nightly --replicates 2`)" in done.output


def test_a_commit_that_slows_most_models_hides_no_quiet_night(history):
    """The step of the newest night but one of four is no noise of the nights."""
    store = history({}, {}, {"spread": 0.02}, {"spread": 0.02}, models=30, noise=0.002)
    _, rows = judging.judged(store, "n2", "n3")
    verdicts = rows["verdict"].value_counts()
    assert verdicts.get("unchanged", 0) >= 27, verdicts.to_dict()


@pytest.mark.parametrize(("noise", "is_told"), [(0.05, True), (0.3, False)])
def test_an_interval_that_says_nothing_is_unknown(history, noise, is_told):
    row, told, _ = judged(history({}, {}, noise=noise))
    assert (row["verdict"], told["low"] is not None) == ("inconclusive", is_told)
