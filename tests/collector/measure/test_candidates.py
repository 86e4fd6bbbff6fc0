"""When candidates of autotuning are compiled, and where."""

import os
import sys
import threading
import time
from types import ModuleType

from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile

from collector.measure import candidates
from collector.measure.candidates import MainThread, compile_candidates_beside, compile_in_processes, others_in


def in_threads(work, count=1):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads):
    for thread in threads:
        thread.join(20)


@config.patch(compile_threads=1)
def test_the_longest_cells_compile_in_processes_on_the_cores_of_all_workers(monkeypatch):
    own, started = os.sched_getaffinity(0), []
    monkeypatch.setattr(AsyncCompile, "use_process_pool", lambda: started.append(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, {min(own)})
    try:
        compile_in_processes(())
        assert (started, config.compile_threads) == ([], 1)
        compile_in_processes(sorted(own))
        assert started == [own] and config.compile_threads == min(4, len(own))
        assert os.sched_getaffinity(0) == {min(own)}
    finally:
        os.sched_setaffinity(0, own)


@config.patch(compile_threads=1)  # without compile workers
def test_candidates_are_compiled_one_by_one_while_the_main_thread_waits(monkeypatch, tmp_path):
    main_thread, go, ends, at_once = MainThread(), threading.Event(), [], []

    class AlgorithmSelectorCache:
        def make_precompile_fn(self, choices):
            def wait():
                return go.wait(10)

            wait.precompile_key = "a key"
            return wait

    class TritonTemplateCaller:
        def precompile(self):
            at_once.append(1)
            time.sleep(0.05)
            ends.append(len(at_once))
            at_once.pop()

    module = ModuleType("torch._inductor.select_algorithm")
    vars(module).update(AlgorithmSelectorCache=AlgorithmSelectorCache, TritonTemplateCaller=TritonTemplateCaller)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    compile_candidates_beside(main_thread)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "candidates"))
    candidate, wait = TritonTemplateCaller(), AlgorithmSelectorCache().make_precompile_fn([])
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
    go.set()
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
