"""The page of records: empty, listed, opened, and changed only where that is allowed."""

from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from db.engine import open_store
from db.regression_records import Finding, change_state, list_regressions, open_regression
from tests.dashboard import stores
from tests.dashboard.conftest import alts, ran, text_of
from tests.factories import cell

AT = datetime(2026, 8, 2, 8, tzinfo=UTC)
GPT2 = cell("gpt2")


@contextmanager
def opened(path, write=True):
    engine = open_store(path, write=write)
    yield engine
    engine.dispose()


@pytest.fixture
def recorded(tmp_path):
    """A store of two nights with one open record, whose texts are hostile; the store and the record's name."""
    path = stores.fill(tmp_path / "store.db")
    finding = Finding(GPT2.cell_id, "night-0", "night-1", "regressed", "compiled_ms", 10.0, 12.0)
    with opened(path) as engine:
        made = open_regression(engine, finding, at=AT, author="ann", text=stores.HOSTILE, owner=stores.HOSTILE)
    return path, made.regression_id


def test_the_list_says_since_the_onset_and_can_be_filtered_and_sorted(open_app, recorded):
    path, name = recorded
    bert = Finding(cell("bert").cell_id, "night-0", "night-1", "broke")
    with opened(path) as engine:
        (info,) = list_regressions(engine)
        other = open_regression(engine, bert, at=AT, author="ann")
        change_state(engine, name, "acknowledged", at=AT, author="bob", text="seen")
    assert info.onset_at and info.onset_at < AT
    app = open_app(path, "regressions", sort="cell")
    said = text_of(app)
    assert f"{info.onset_at:%Y-%m-%d %H:%M}" in said and f"{AT:%Y-%m-%d %H:%M}" not in said
    assert said.index("bert") < said.index("gpt2") and "2 records" in said
    said = text_of(open_app(path, "regressions", state="acknowledged"))
    assert "1 record" in said and name in said and other.regression_id not in said


def test_one_record_shows_base_range_history_and_how_to_measure_it(open_app, recorded):
    app = open_app(recorded[0], "regressions", record=recorded[1])
    said = text_of(app)
    assert "night-0 " in said.replace("<", " ") and "(pinned)" in said
    assert "ann" in said and "<script>alert" not in said
    assert said.index("Details") < said.index("1 record"), "what was opened stands above the list"
    (history,) = alts(app)
    assert "over 2 runs: " in history
    assert "inductor-watch run --suite huggingface --model gpt2" in said
    assert "Read-only" in said
    assert not app.button(key="swap").disabled and not [item for item in app.button if item.label == "Save"]


def test_closed_ones_are_shown_when_asked_for(open_app, recorded):
    path, name = recorded
    with opened(path) as engine:
        change_state(engine, name, "expected", at=AT, author="bob", text="by design")
    app = open_app(path, "regressions")
    assert "No open records" in text_of(app)
    assert any("inductor-watch regressions detect" in block.value for block in app.code)
    said = text_of(open_app(path, "regressions", closed="1", record=name))
    assert "expected" in said and "by design" in said
    assert "There is no such record" in text_of(open_app(path, "regressions", record="nope"))


def submit(app, **values):
    for label, value in values.items():
        kinds = (app.selectbox, app.text_input, app.text_area)
        (field,) = [item for kind in kinds for item in kind if item.label == label.replace("_", " ")]
        field.set_value(value)
    (button,) = [item for item in app.button if item.label == "Save"]
    button.click()
    return ran(app)


def test_who_may_write_changes_state_and_leaves_a_note_under_a_name(open_app, recorded, monkeypatch):
    monkeypatch.setenv("INDUCTOR_WATCH_WRITE", "1")
    path, name = recorded

    def found():
        with opened(path, write=False) as engine:
            return list_regressions(engine)[0]

    app = submit(open_app(path, "regressions", record=name), State="confirmed")
    assert "Say who you are" in app.error[0].value
    submit(app, State="as it is", Your_name="dan", Link="javascript:alert(1)")
    assert "https://" in app.error[0].value
    assert (found().link, found().state) == ("", "new")
    submit(app, State="acknowledged", Your_name="carol", Note="looking", Owner="carol", Link="")
    assert (found().state, found().owner) == ("acknowledged", "carol")
    assert (found().events[-1].author, found().events[-1].text) == ("carol", "looking")
    assert "acknowledged" in text_of(app)
