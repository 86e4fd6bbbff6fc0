"""Candidates compile on cores that are idle, and nothing else of a cell leaves its own."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

import pytest
from torch._inductor import config

from collector.measure import candidates
from collector.measure.candidates import compile_candidates_on
from collector.process.cell_process import CellProcess

CORES = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture
def own():
    """One core for this thread, as a cell of a pool has."""
    os.sched_setaffinity(0, CORES[:1])
    yield set(CORES[:1])
    CellProcess.move(SimpleNamespace(pid=os.getpid()), CORES)


def where():
    return os.sched_getaffinity(0), os.sched_getscheduler(0)


@pytest.fixture
def cache(monkeypatch):
    """A stand-in for Inductor's cache: it begins a thread that waits, and returns a function that lets it end."""

    class AlgorithmSelectorCache:
        def make_precompile_fn(self, choices):
            if not choices:
                raise ValueError("no choices")
            go, found = threading.Event(), []
            thread = threading.Thread(target=lambda: (go.wait(10), found.append(where())))
            thread.start()

            def wait():
                go.set()
                thread.join()
                return os.sched_getaffinity(0), found[0]

            return wait

    class TritonTemplateCaller:
        def precompile(self):
            return time.monotonic()

    select = ModuleType("torch._inductor.select_algorithm")
    select.AlgorithmSelectorCache, select.TritonTemplateCaller = AlgorithmSelectorCache, TritonTemplateCaller
    monkeypatch.setitem(sys.modules, select.__name__, select)
    with config.patch(compile_threads=1):
        yield AlgorithmSelectorCache


def test_candidates_run_on_lent_cores_and_give_way(own, cache):
    compile_candidates_on(set(CORES), lambda: False)
    here, (lent, policy) = cache().make_precompile_fn(["a"])()
    assert (here, lent, policy) == (own, set(CORES), os.SCHED_IDLE)


def test_a_cell_that_moves_to_the_quiet_core_leaves_its_candidates(own, cache):
    compile_candidates_on(set(CORES), lambda: False)
    wait = cache().make_precompile_fn(["a"])
    CellProcess.move(SimpleNamespace(pid=os.getpid()), CORES[-1:])
    assert os.sched_getaffinity(0) == set(CORES[-1:])
    assert wait()[1][0] == set(CORES)


def test_no_thread_begins_a_candidate_while_the_process_is_alone(own, cache, monkeypatch):
    alone, ends = threading.Event(), []
    compile_candidates_on(set(CORES), alone.is_set)
    candidate = sys.modules["torch._inductor.select_algorithm"].TritonTemplateCaller()

    def compile_in_a_thread():
        thread = threading.Thread(target=lambda: ends.append(candidate.precompile()))
        thread.start()
        return thread

    alone.set()
    thread = compile_in_a_thread()
    assert candidate.precompile() > 0, "the main thread, which may need the candidate, does not wait"
    time.sleep(0.1)
    assert ends == []
    alone.clear()
    thread.join(5)
    assert len(ends) == 1
    alone.set()
    monkeypatch.setattr(candidates, "_PATIENCE_S", 0.05)
    compile_in_a_thread().join(5)
    assert len(ends) == 2


def test_a_failing_start_leaves_the_thread_on_its_own_cores(own, cache):
    compile_candidates_on(set(CORES), lambda: False)
    with pytest.raises(ValueError, match="no choices"):
        cache().make_precompile_fn([])
    assert os.sched_getaffinity(0) == own


def test_a_host_that_lets_no_thread_give_way_lends_none(own, cache, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    compile_candidates_on(set(CORES), lambda: False)
    assert cache().make_precompile_fn(["a"])()[1][0] == own


def test_a_torch_that_compiles_in_processes_is_left_alone(own, cache):
    before = cache.make_precompile_fn
    with config.patch(compile_threads=2):
        compile_candidates_on(set(CORES), lambda: False)
    assert cache.make_precompile_fn is before


def test_cores_that_are_gone_are_not_lent(own, cache):
    compile_candidates_on({4095}, lambda: False)
    assert cache().make_precompile_fn(["a"])()[1][0] == own


@pytest.mark.parametrize("lent", [set(), set(CORES[:1])])
def test_without_more_cores_nothing_is_replaced(own, cache, lent):
    before = cache.make_precompile_fn
    compile_candidates_on(lent, lambda: False)
    assert cache.make_precompile_fn is before
