"""How a cell asks its parent for the device: every message on the pipe, for holds inside holds."""

import io
import json
import subprocess
import sys
import time

import pytest

from collector.process.worker import PipeHost, leave
from collector.vocabulary import Stage


class Pipe:
    """A host whose parent answers every question at once; `messages` is what it has said since they were last read."""

    def __init__(self, answers=20, **facts):
        self._report = io.StringIO()
        granted = {"idle_ms": 3.5, "room_bytes": 80, **facts}
        self.kept = 0
        self.host = PipeHost(self._report, io.StringIO((json.dumps(granted) + "\n") * answers), lambda: self.kept)

    @property
    def messages(self):
        found = [json.loads(line) for line in self._report.getvalue().splitlines()]
        for ask in (one for one in found if "ask" in one):
            assert ask.pop("at") <= time.monotonic()
        self._report.seek(0)
        self._report.truncate()
        return found


def ask(purpose, size=None):
    return {"ask": purpose, "bytes": size}


def done(size=0):
    return {"done": True, "bytes": size}


@pytest.fixture
def pipe():
    return Pipe()


def test_the_parents_answer_is_known_afterwards():
    pipe = Pipe(eager_ms=7.5, promised_bytes=9)
    host = pipe.host
    assert (host.idle_ms, host.eager_ms, host.room_bytes, host.promised_bytes) == (0.0, 0.0, None, None)
    with host.exclusive():
        assert (host.idle_ms, host.eager_ms, host.room_bytes, host.promised_bytes) == (3.5, 7.5, 80, 9)
    assert pipe.messages == [ask("measure"), done()]


@pytest.mark.parametrize(
    ("outer", "inner", "between"),
    [
        (("device", 5), ("device", None), None),
        (("tune", 5), ("device", 4), None),
        (("still", 5), ("measure", 5), None),
        (("device", None), ("device", 9), ("device", 9)),
        (("device", 5), ("tune", None), ("tune", 5)),
        (("tune", 5), ("device", 9), ("tune", 9)),
        (("measure", 5), ("still", 5), ("still", 5)),
    ],
)
def test_an_inner_hold_swaps_the_outer_one_only_for_more(outer, inner, between, pipe):
    with pipe.host.exclusive(*outer):
        pipe.kept = 1
        with pipe.host.exclusive(*inner):
            pipe.kept = 2
            swapped = [ask(*outer), *([done(1), ask(*between)] if between else [])]
            assert pipe.messages == swapped
        assert pipe.messages == ([done(2), ask(*outer)] if between else [])
        pipe.kept = 3
    assert pipe.messages == [done(3)]


def test_what_is_held_can_be_given_back_for_some_time(pipe):
    with pipe.host.exclusive("device", 5), pipe.host.exclusive("device", 7):
        pipe.kept = 4
        with pipe.host.released():
            assert pipe.messages[-1] == done(4)
            with pipe.host.exclusive("tune", 1):
                assert pipe.messages == [ask("tune", 1)]
        assert pipe.messages == [done(4), ask("device", 7)]
    assert pipe.messages == [done(4), ask("device", 5), done(4)]
    with pipe.host.released():
        pass
    assert pipe.messages == [], "nothing was held"


def test_memory_is_freed_in_a_hold_that_lasts_to_the_end(pipe):
    class Gpu:
        def leave(self):
            assert pipe.messages == [ask("device", 0)], "granted before"

    leave(Gpu(), pipe.host)
    assert pipe.messages == []


def test_an_exception_gives_every_hold_back_and_a_lost_parent_ends_all(pipe):
    for inner in [("device", 1), ("tune", 9)]:
        with pytest.raises(ZeroDivisionError), pipe.host.exclusive("device", 5), pipe.host.exclusive(*inner):
            raise ZeroDivisionError
        told = pipe.messages
        assert told[-1] == done()
        assert [*map(tuple, told)].count(("done", "bytes")) == [*map(tuple, told)].count(("ask", "bytes"))
        with pipe.host.exclusive("tune", 1):
            pass
        assert pipe.messages == [ask("tune", 1), done()], "nothing of the earlier ones is left"
    pipe = Pipe(answers=1)
    with pytest.raises(SystemExit, match="has ended"), pipe.host.exclusive("device"), pipe.host.exclusive("tune"):
        raise AssertionError("nobody has given it the device")


def test_all_is_strict_json_and_a_crash_leaves_no_core_file(pipe):
    pipe.host.stage(Stage.EAGER)
    assert pipe.messages == [{"stage": "eager"}]
    with pytest.raises(ValueError, match="JSON"):
        pipe.host.send({"value": float("nan")})
    assert pipe.messages == []
    code = "import resource as limits; from collector.process.worker import write_no_core as call; call(); "
    code += "print(limits.getrlimit(limits.RLIMIT_CORE))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("(0, ")
