"""What a page shows arrives in batches, all of it and in its order, however the script ends."""

from types import SimpleNamespace

import pytest

from dashboard import sending


@pytest.fixture
def sent(monkeypatch):
    found = []
    context = SimpleNamespace(_enqueue=found.append)
    monkeypatch.setattr(sending, "get_script_run_ctx", lambda: context)
    return SimpleNamespace(found=found, context=context)


def test_messages_wait_for_each_other_and_keep_their_order(sent):
    with sending.together():
        for number in range(5):
            sent.context._enqueue(number)
        assert sent.found == []
    assert sent.found == [0, 1, 2, 3, 4]
    sent.context._enqueue(5)
    assert sent.found[-1] == 5


def test_what_takes_long_is_shown_as_it_comes(sent, monkeypatch):
    monkeypatch.setattr(sending, "_WAIT_S", -1.0)
    with sending.together():
        sent.context._enqueue("early")
        assert sent.found == ["early"]


def test_a_script_that_ends_early_has_sent_what_it_showed(sent):
    with pytest.raises(KeyError), sending.together():
        sent.context._enqueue("shown")
        raise KeyError
    assert sent.found == ["shown"]


def test_a_click_meanwhile_ends_the_run_and_the_next_one_sends_again(sent):
    def interrupted(message):
        raise KeyboardInterrupt

    plain = sent.context._enqueue
    sent.context._enqueue = interrupted
    with pytest.raises(KeyboardInterrupt), sending.together():
        sent.context._enqueue("lost")
    assert sent.context._enqueue is interrupted
    sent.context._enqueue = plain
    with sending.together():
        sent.context._enqueue("next")
    assert sent.found == ["next"]


def test_without_a_page_nothing_is_done(monkeypatch):
    monkeypatch.setattr(sending, "get_script_run_ctx", lambda: None)
    with sending.together():
        pass
