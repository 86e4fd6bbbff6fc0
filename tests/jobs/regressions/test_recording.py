"""Alerts become records: once, with a pinned base, and what has to happen before one is fixed or returned."""

from __future__ import annotations

from datetime import timedelta

import pytest

from collector.vocabulary import Config
from db.queries.cells import revision
from db.regression_records import change_state, list_regressions
from db.store_errors import RecordError
from jobs.regressions.recording import record_alerts
from tests.analysis.history.histories import MODELS, History, copied, find_alerts, slower
from tests.factories import DEFAULT, START


@pytest.fixture(scope="module")
def without_nights(tmp_path_factory):
    history = History(tmp_path_factory.mktemp("empty"), nights=60)
    history.import_commits()
    return history


@pytest.fixture(scope="module")
def slowed(without_nights, tmp_path_factory):
    """Twelve quiet nights, and ten more in which a model is slower."""
    history = copied(without_nights, tmp_path_factory.mktemp("slowed"))
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    return history


@pytest.fixture
def empty(without_nights, tmp_path):
    return copied(without_nights, tmp_path)


@pytest.fixture
def recorded(slowed, tmp_path):
    """The slowed history, whose alert has been recorded."""
    history = copied(slowed, tmp_path)
    assert detect(history, 21) == {"opened": 1}
    return history


def morning(night):
    return START + timedelta(days=night, hours=6)


def detect(history, night, **more):
    found = record_alerts(history.store, find_alerts(history.store, **more), author="detector", now=morning(night))
    return {name: len(getattr(found, name)) for name in ("opened", "kept", "returned", "fixed") if getattr(found, name)}


def only(history):
    (record,) = list_regressions(history.store)
    return record


def move(history, state, night):
    change_state(history.store, only(history).regression_id, state, at=morning(night), author="ann")


def test_an_alert_opens_a_record_with_its_pinned_base_once(recorded):
    record = only(recorded)
    assert (record.state, record.kind, record.metric, record.branch) == ("new", "slower", "compiled_ms", "main")
    assert (record.base_run, record.onset_run) == ("n011", "n012")
    assert (record.base_commit, record.onset_commit) == (recorded.commit(11), recorded.commit(12))
    assert record.new_value / record.base_value == pytest.approx(1.08, rel=0.005)
    (event,) = record.events
    assert (event.author, event.at, event.to_state) == ("detector", morning(21), "new")
    assert event.text.startswith("compiled_ms +8.")
    before = revision(recorded.store)
    assert detect(recorded, 21) == {"kept": 1}
    recorded.night(22, slower(1.08))
    assert detect(recorded, 22, window=22) == {"kept": 1}
    assert len(only(recorded).events) == 1
    assert revision(recorded.store) == before + 1  # the night


def test_what_is_pending_better_or_over_opens_nothing(empty):
    empty.nights(0, 10, slower(1.2))
    empty.nights(10, 20)  # better
    empty.nights(20, 30, slower(1.1, ("t5",)))
    empty.nights(30, 40)  # over
    empty.nights(40, 43, slower(1.1, ("vit",)))  # pending
    better = ("better", "established", False)
    found = [(alert.direction, alert.certainty, alert.is_over) for alert in find_alerts(empty.store)]
    assert found == [("worse", "pending", False), better, ("worse", "established", True), better]
    assert detect(empty, 42) == {}
    assert list_regressions(empty.store) == []


def test_what_the_machine_did_to_all_cells_opens_nothing(empty):
    configs = [DEFAULT, *(Config(overrides={"max_autotune": value}) for value in (1, 2, 3, 4))]
    machine = slower(1.06, MODELS, ("eager_ms", "compiled_ms"))
    own = lambda model, name: machine(model, name) * (1.1 if (model, name) == ("bert", "compiled_ms") else 1)  # noqa: E731
    empty.nights(0, 11, configs=configs)
    empty.nights(11, 21, own, configs=configs)
    assert detect(empty, 20) == {"opened": 5}
    assert len({record.cell_id for record in list_regressions(empty.store)}) == 5


def test_what_a_person_said_stays_said(recorded):
    recorded.night(22, slower(1.08))
    for state in ("confirmed", "acknowledged", "expected", "false_alarm"):
        move(recorded, state, 21)
        assert detect(recorded, 22) == {"kept": 1}
        assert only(recorded).state == state


def test_two_runs_back_at_the_base_fix_a_record_and_nothing_else_does(recorded):
    assert record_alerts(recorded.store, [], author="detector", now=morning(22)).fixed == ()
    recorded.nights(22, 24, missing=MODELS)
    assert detect(recorded, 23) == {"kept": 1}
    for night, found, state in ((24, "kept", "new"), (25, "fixed", "fixed")):
        recorded.night(night)
        assert (detect(recorded, night), only(recorded).state) == ({found: 1}, state)
    record = only(recorded)
    assert (record.state, record.base_run, record.events[-1].author) == ("fixed", "n011", "detector")
    assert "2 newest runs" in record.events[-1].text
    recorded.night(26)
    assert detect(recorded, 26) in ({"kept": 1}, {})
    assert only(recorded).state == "fixed"


def test_runs_in_the_noise_around_a_small_step_fix_nothing(empty):
    """Half of the nights lie nearer to the base, two in a row among them: not far enough from the worse level."""
    empty.nights(0, 24, sd=0.02)
    empty.nights(24, 38, slower(1.05), sd=0.02)
    assert detect(empty, 37) == {"opened": 1}
    empty.nights(38, 40, slower(1.022), sd=0.0001)
    assert detect(empty, 39) == {"kept": 1}
    assert only(empty).state == "new"


def test_what_was_fixed_and_comes_back_is_returned_with_its_old_base(recorded):
    recorded.nights(22, 34)
    assert detect(recorded, 33) == {"fixed": 1}
    recorded.nights(34, 44, slower(1.08))
    assert detect(recorded, 43) == {"returned": 1}
    record = only(recorded)
    assert (record.state, record.base_run, record.onset_run) == ("returned", "n011", "n012")
    assert [event.to_state for event in record.events] == ["new", "fixed", "returned"]
    assert recorded.commit(34)[:10] in record.events[-1].text
    assert detect(recorded, 44) == {"kept": 1}
    assert len(only(recorded).events) == 3


def test_a_record_closed_too_early_returns_once_two_runs_are_still_slow(recorded):
    move(recorded, "fixed", 21)
    assert detect(recorded, 21) == {"kept": 1}
    for night, found in ((22, "kept"), (23, "returned")):
        recorded.night(night, slower(1.08))
        assert detect(recorded, night) == {found: 1}


def test_a_broken_cell_is_fixed_by_two_passes_and_returns_on_two_failures(empty):
    empty.nights(0, 3)
    empty.nights(3, 5, fails=("gpt2",))
    assert detect(empty, 4) == {"opened": 1}
    assert (only(empty).kind, only(empty).base_value) == ("broke", None)
    nights = [((), {}), ((), {"fixed": 1}), (("gpt2",), {"kept": 1}), (("gpt2",), {"returned": 1})]
    for number, (fails, expected) in enumerate(nights, 5):
        empty.night(number, fails=fails)
        assert detect(empty, number) == expected


def test_alerts_of_another_store_are_refused_and_nothing_is_written(recorded, tmp_path):
    alerts = find_alerts(recorded.store)
    (tmp_path / "other").mkdir()
    other = History(tmp_path / "other", nights=1)
    other.night(0)
    with pytest.raises(RecordError, match="n011"):
        record_alerts(other.store, alerts, author="detector")
    assert list_regressions(other.store) == []
