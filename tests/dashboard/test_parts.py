"""Turns, and what is drawn alone: few pages at a time, none waits for itself, and the whole page where something shows all."""

import threading

import pytest

from dashboard import parts, turns
from tests.dashboard.conftest import ran


@pytest.fixture
def one_turn(monkeypatch):
    free = threading.BoundedSemaphore(1)
    monkeypatch.setattr(turns, "_free", free)
    return free


def test_a_turn_is_given_back_however_a_page_ends(one_turn):
    with pytest.raises(KeyError), turns.taken():
        assert not one_turn.acquire(blocking=False)
        raise KeyError
    assert one_turn.acquire(blocking=False)


def test_a_page_that_never_ends_does_not_stop_the_others(one_turn, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.01)
    with turns.taken(), turns.taken():
        pass
    assert one_turn.acquire(blocking=False), "what had no turn gave none back"


@pytest.mark.parametrize("page", ["", "compare", "model", "trends"])
def test_a_page_with_a_part_takes_one_turn(open_app, two_nights, one_turn, monkeypatch, page):
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.0)
    refused = []
    take = one_turn.acquire
    monkeypatch.setattr(one_turn, "acquire", lambda **how: take(**how) or refused.append(how), raising=False)
    assert open_app(two_nights, page).title and refused == []


def test_with_the_permalink_open_nothing_is_drawn_alone(open_app, two_nights, monkeypatch):
    alone = []
    monkeypatch.setattr(parts.st, "fragment", lambda draw: alone.append(draw) or draw)
    app = open_app(two_nights, "trends")
    assert len(alone) == 1
    app.session_state["permalink"] = True
    ran(app)
    assert len(alone) == 1 and app.title
