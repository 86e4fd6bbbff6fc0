"""Instructions are counted where that is allowed, and absent elsewhere."""

from __future__ import annotations

import sys
import types

import pytest

from collector.measure.instructions import counted


def counter(monkeypatch, start, end=0):
    module = types.ModuleType("_instruction_counter")
    module.start, module.end = lambda: start, lambda number: end
    monkeypatch.setitem(sys.modules, "torch._C._instruction_counter", module)
    monkeypatch.setattr("torch._C._instruction_counter", module, raising=False)


def test_the_count_comes_with_what_was_returned(monkeypatch):
    counter(monkeypatch, start=4, end=123_456)
    assert counted(lambda: 2.5) == (2.5, 123_456)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (4, 2**64 - 1), (4, 0)])
def test_where_it_is_forbidden_there_is_none(monkeypatch, start, end):
    counter(monkeypatch, start, end)
    assert counted(lambda: 2.5) == (2.5, None)


def test_what_is_counted_may_fail(monkeypatch):
    counter(monkeypatch, start=4, end=7)
    with pytest.raises(ZeroDivisionError):
        counted(lambda: 1 / 0)


def test_this_torch_answers_one_way_or_the_other():
    made, count = counted(lambda: float(sum(range(100_000))))
    assert made == 4999950000.0
    assert count is None or count > 100_000
