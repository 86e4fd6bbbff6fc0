"""Alerts become records: once, with a pinned base, and what has to happen before one is fixed or returned."""

from __future__ import annotations

from datetime import timedelta

import pytest

from collector.vocabulary import Config
from db.errors import RecordError
from db.queries.cells import revision
from db.regressions.records import change_state, list_regressions
from jobs.regressions.recording import record_alerts
from tests.analysis.history.histories import MODELS, History, find_alerts, slower
from tests.factories import DEFAULT, START

NIGHTS = 60


@pytest.fixture
def history(tmp_path):
    found = History(tmp_path, nights=NIGHTS)
    found.import_commits()
    return found


def morning(night):
    """When a night was judged."""
    return START + timedelta(days=night, hours=6)


def detect(history, night, **more):
    found = record_alerts(history.store, find_alerts(history.store, **more), author="detector", now=morning(night))
    return {name: len(getattr(found, name)) for name in ("opened", "kept", "returned", "fixed") if getattr(found, name)}


def only(history):
    (record,) = list_regressions(history.store)
    return record


def test_an_alert_opens_a_record_with_its_pinned_base_once(history):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    assert detect(history, 21) == {"opened": 1}
    record = only(history)
    assert (record.state, record.kind, record.metric, record.branch) == ("new", "slower", "compiled_ms", "main")
    assert (record.base_run, record.onset_run) == ("n011", "n012")
    assert (record.base_commit, record.onset_commit) == (history.commit(11), history.commit(12))
    assert record.new_value / record.base_value == pytest.approx(1.08, rel=0.005)
    (event,) = record.events
    assert (event.author, event.at, event.to_state) == ("detector", morning(21), "new")
    assert event.text.startswith("compiled_ms +8.")
    before = revision(history.store)
    assert detect(history, 21) == {"kept": 1}
    history.night(22, slower(1.08))
    assert detect(history, 22) == {"kept": 1}
    assert detect(history, 22, window=22) == {"kept": 1}
    assert len(only(history).events) == 1
    assert revision(history.store) == before + 1  # the night


def test_every_cell_and_metric_of_an_alert_has_a_record(history):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.2, ("bert", "t5"), ("compiled_ms", "compiled_peak_bytes")), fails=("gpt2",))
    assert detect(history, 21) == {"opened": 5}
    found = sorted((record.kind, record.metric) for record in list_regressions(history.store))
    assert found == [("broke", ""), *[("larger", "compiled_peak_bytes")] * 2, *[("slower", "compiled_ms")] * 2]


def test_what_is_pending_better_or_over_opens_nothing(history):
    history.nights(0, 12, slower(1.2))
    history.nights(12, 24)  # better
    history.nights(24, 36, slower(1.1, ("t5",)))
    history.nights(36, 46)  # over
    history.nights(46, 49, slower(1.1, ("vit",)))  # pending
    alerts = find_alerts(history.store)
    assert [(alert.direction, alert.certainty, alert.is_over) for alert in alerts] == [
        ("worse", "pending", False),
        ("better", "established", False),
        ("worse", "established", True),
        ("better", "established", False),
    ]
    assert detect(history, 48) == {}
    assert list_regressions(history.store) == []


def test_a_change_within_one_commit_opens_nothing(history):
    history.nights(0, 12)
    history.night(11, slower(1.1), run_id="again", minutes=1440 * 11 + 60, environment={"driver": "2.0"})
    history.nights(12, 24, slower(1.1), environment={"driver": "2.0"})
    assert len(find_alerts(history.store)) == 1
    assert detect(history, 23) == {}


def test_what_the_machine_did_to_all_cells_opens_nothing(history):
    configs = [DEFAULT, *(Config(overrides={"max_autotune": value}) for value in (1, 2, 3, 4))]
    machine = slower(1.06, MODELS, ("eager_ms", "compiled_ms"))
    own = lambda model, name: machine(model, name) * (1.1 if (model, name) == ("bert", "compiled_ms") else 1)  # noqa: E731
    history.nights(0, 11, configs=configs)
    history.nights(11, 21, own, configs=configs)
    assert detect(history, 20) == {"opened": 5}
    assert len({record.cell_id for record in list_regressions(history.store)}) == 5


def test_a_range_that_moves_with_a_later_backfill_is_the_same_record(history):
    history.nights(0, 12)
    history.nights(14, 24, slower(1.08))
    assert detect(history, 23) == {"opened": 1}
    history.night(12, minutes=1440 * 24)
    history.night(13, slower(1.08), minutes=1440 * 24 + 60)
    assert detect(history, 24) == {"kept": 1}
    assert only(history).onset_run == "n014"  # pinned


def test_a_second_step_of_the_same_series_is_a_record_of_its_own(history):
    history.nights(0, 12)
    history.nights(12, 24, slower(1.1))
    assert detect(history, 23) == {"opened": 1}
    history.nights(24, 36, slower(1.21))
    assert detect(history, 35) == {"kept": 1, "opened": 1}
    assert sorted(record.onset_run for record in list_regressions(history.store)) == ["n012", "n024"]


@pytest.mark.parametrize("state", ["confirmed", "acknowledged", "expected", "false_alarm"])
def test_what_a_person_said_stays_said(history, state):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    detect(history, 21)
    change_state(history.store, only(history).regression_id, state, at=morning(21), author="ann")
    history.night(22, slower(1.08))
    assert detect(history, 22) == {"kept": 1}
    assert only(history).state == state


def test_two_runs_back_at_the_base_fix_a_record_and_one_does_not(history):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    detect(history, 21)
    history.night(22)
    assert detect(history, 22) == {"kept": 1}
    history.night(23)
    assert detect(history, 23) == {"fixed": 1}
    record = only(history)
    assert (record.state, record.base_run, record.events[-1].author) == ("fixed", "n011", "detector")
    assert "two newest runs" in record.events[-1].text or "2 newest runs" in record.events[-1].text
    history.night(24)
    assert detect(history, 24) in ({"kept": 1}, {})
    assert only(history).state == "fixed"


def test_an_alert_that_is_no_longer_found_fixes_nothing(history):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    detect(history, 21)
    assert record_alerts(history.store, [], author="detector", now=morning(22)).fixed == ()
    assert only(history).state == "new"


def test_nights_that_measured_nothing_fix_nothing(history):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    detect(history, 21)
    history.nights(22, 24, missing=MODELS)
    assert detect(history, 23) == {"kept": 1}


def test_runs_in_the_noise_around_a_small_step_fix_nothing(history):
    """Half of the nights lie nearer to the base, two in a row among them: not far enough from the worse level."""
    history.nights(0, 30, sd=0.02)
    history.nights(30, 48, slower(1.05), sd=0.02)
    assert detect(history, 47) == {"opened": 1}
    history.nights(48, 50, slower(1.022), sd=0.0001)
    assert detect(history, 49) == {"kept": 1}
    assert only(history).state == "new"


def test_what_was_fixed_and_comes_back_is_returned_with_its_old_base(history):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    detect(history, 21)
    history.nights(22, 34)
    assert detect(history, 33) == {"fixed": 1}
    history.nights(34, 44, slower(1.08))
    assert detect(history, 43) == {"returned": 1}
    record = only(history)
    assert (record.state, record.base_run, record.onset_run) == ("returned", "n011", "n012")
    assert [event.to_state for event in record.events] == ["new", "fixed", "returned"]
    assert history.commit(34)[:10] in record.events[-1].text
    history.night(44, slower(1.08))
    assert detect(history, 44) == {"kept": 1}
    assert len(only(history).events) == 3


def test_a_record_that_a_person_closed_too_early_returns_once_two_later_runs_are_still_slow(history):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    detect(history, 21)
    change_state(history.store, only(history).regression_id, "fixed", at=morning(21), author="ann")
    assert detect(history, 21) == {"kept": 1}
    history.night(22, slower(1.08))
    assert detect(history, 22) == {"kept": 1}
    history.night(23, slower(1.08))
    assert detect(history, 23) == {"returned": 1}


def test_a_cell_that_broke_is_fixed_by_two_passes_and_returns_when_it_fails_twice(history):
    history.nights(0, 3)
    history.nights(3, 5, fails=("gpt2",))
    assert detect(history, 4) == {"opened": 1}
    assert (only(history).kind, only(history).base_value) == ("broke", None)
    history.night(5)
    assert detect(history, 5) == {}
    history.night(6)
    assert detect(history, 6) == {"fixed": 1}
    history.night(7, fails=("gpt2",))
    assert detect(history, 7) == {"kept": 1}
    history.night(8, fails=("gpt2",))
    assert detect(history, 8) == {"returned": 1}


def test_what_was_expected_to_fail_once_is_looked_at_anew_when_it_breaks_elsewhere(history):
    history.nights(0, 3)
    history.nights(3, 5, fails=("gpt2",))
    detect(history, 4)
    change_state(history.store, only(history).regression_id, "expected", at=morning(4), author="ann")
    history.nights(5, 8)
    history.nights(8, 10, fails=("gpt2",))
    assert detect(history, 9) == {"opened": 1}


def test_alerts_of_another_store_are_refused_and_nothing_is_written(history, tmp_path):
    history.nights(0, 12)
    history.nights(12, 22, slower(1.08))
    alerts = find_alerts(history.store)
    (tmp_path / "other").mkdir()
    other = History(tmp_path / "other", nights=1)
    other.night(0)
    with pytest.raises(RecordError, match="n011"):
        record_alerts(other.store, alerts, author="detector")
    assert list_regressions(other.store) == []
