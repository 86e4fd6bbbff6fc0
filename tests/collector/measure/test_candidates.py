"""When candidates of autotuning are compiled, in which order, and where."""

import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from torch._inductor import config

from collector.measure import candidates
from collector.measure.candidates import MainThread, compile_candidates_beside, compiled_in, in_own_order, others_in


@pytest.fixture
def select(monkeypatch):
    """A stand-in for Inductor's module: a candidate tells when it was compiled, and `go` lets a wait for candidates end."""
    go = threading.Event()

    class AlgorithmSelectorCache:
        def make_precompile_fn(self, choices):
            def wait():
                return go.wait(10)

            wait.precompile_key = "a key"
            return wait

    class TritonTemplateCaller:
        def precompile(self):
            return time.monotonic()

    module = ModuleType("torch._inductor.select_algorithm")
    vars(module).update(AlgorithmSelectorCache=AlgorithmSelectorCache, TritonTemplateCaller=TritonTemplateCaller, go=go)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with config.patch(compile_threads=1):
        yield module


def in_threads(work, count=1):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads):
    for thread in threads:
        thread.join(20)


def test_candidates_are_compiled_one_by_one_while_the_main_thread_waits(select, monkeypatch, tmp_path):
    main_thread, ends, at_once = MainThread(), [], []

    def compiled(_):
        at_once.append(1)
        time.sleep(0.05)
        ends.append(len(at_once))
        at_once.pop()

    monkeypatch.setattr(select.TritonTemplateCaller, "precompile", compiled)
    compile_candidates_beside(main_thread)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "candidates"))
    candidate, wait = select.TritonTemplateCaller(), select.AlgorithmSelectorCache().make_precompile_fn([])
    assert others_in(tmp_path / "candidates") == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        assert others_in(tmp_path / "candidates") == 1
    assert wait.precompile_key == "a key"

    threads = in_threads(candidate.precompile, 3)
    time.sleep(0.2)
    assert ends == [], "the main thread works"
    candidate.precompile()
    assert len(ends) == 1, "it may need this very one"
    waiting = in_threads(wait)
    join(threads)
    assert ends == [1, 1, 1, 1], "somebody waits for candidates: one at a time"
    select.go.set()
    join(waiting)
    threads = in_threads(candidate.precompile)
    time.sleep(0.1)
    assert len(ends) == 4
    with main_thread.waits():
        while not at_once:  # it ends while the candidate is compiled
            time.sleep(0.001)
    assert len(ends) == 5, "nothing is compiled beside what is timed next"
    join(threads)
    monkeypatch.setattr(candidates, "_PATIENCE_S", 0.05)
    join(in_threads(candidate.precompile))
    monkeypatch.setattr(candidates, "_PATIENCE_S", 60)
    join(in_threads(candidate.precompile))
    assert len(ends) == 7, "the rule has ended"


def test_on_cores_of_others_two_candidates_are_compiled_at_once(select, monkeypatch):
    cores, both = sorted(os.sched_getaffinity(0))[:2], threading.Barrier(2)
    main_thread, found = MainThread(cores), []

    def compiled(_):
        found.append(sorted(os.sched_getaffinity(0)))
        both.wait(10)  # passes where two are here at once

    monkeypatch.setattr(select.TritonTemplateCaller, "precompile", compiled)
    compile_candidates_beside(main_thread)
    assert select.get_num_workers() == 2
    with main_thread.waits():
        join(in_threads(select.TritonTemplateCaller().precompile, 4))
    assert found == [cores] * 4


def test_two_processes_compile_candidates_in_different_orders(monkeypatch):
    choices = [SimpleNamespace(kernel_hash_key=lambda number=number: f"triton_mm_{number}") for number in range(8)]
    here = in_own_order(choices)
    assert sorted(map(id, here)) == sorted(map(id, choices))
    assert in_own_order(choices[::-1]) == here, "Inductor recognises a list of candidates by its order"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert in_own_order(choices) != here
    assert in_own_order([1, 2]) == [1, 2], "a torch whose candidates have no key"


@pytest.mark.parametrize("before", [None, "/of/this/cell"])
def test_a_folder_for_candidates_is_set_only_meanwhile(before, monkeypatch):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    if before:
        monkeypatch.setenv("TRITON_CACHE_DIR", before)
    with compiled_in(None):
        assert os.environ.get("TRITON_CACHE_DIR") == before
    with pytest.raises(ValueError, match="no such kernel"), compiled_in(Path("/of/all/cells")):
        assert os.environ["TRITON_CACHE_DIR"] == "/of/all/cells"
        raise ValueError("no such kernel")
    assert os.environ.get("TRITON_CACHE_DIR") == before
