"""When candidates of autotuning are compiled, and where."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from types import SimpleNamespace

from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.runtime import compile_tasks

from collector.measure import candidates
from collector.measure.candidates import MainThread, compile_candidates_beside, others_in

THREADS = ThreadPoolExecutor(4)


def in_threads(work, count=1):
    return [THREADS.submit(work) for _ in range(count)]


@config.patch(compile_threads=1)
def test_the_longest_cells_compile_in_processes_on_the_cores_of_all_workers(monkeypatch):
    own, calls = os.sched_getaffinity(0), []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: calls.append(set(cores)))
    monkeypatch.setattr(AsyncCompile, "use_process_pool", lambda: calls.append("started"))
    candidates.compile_in_processes(())
    candidates.compile_in_processes([90, 91])
    assert (calls, config.compile_threads) == ([{90, 91}, "started", own], 2)


def test_a_cell_assembles_with_the_ptxas_of_its_workers(monkeypatch, tmp_path):
    for folder in (tmp_path / "bin", tmp_path / "1" / "bin"):  # torch 2.13 looks one folder deeper
        folder.mkdir(parents=True)
        (folder / "ptxas").touch(mode=0o700)
    monkeypatch.setattr(compile_tasks, "__file__", str(tmp_path / "1" / "2" / "3.py"))
    monkeypatch.setattr(os, "environ", {})  # the user may have chosen an assembler
    candidates.use_one_assembler()
    assert os.environ["TRITON_PTXAS_PATH"].startswith(str(tmp_path))


@config.patch(compile_threads=1)  # without compile workers
def test_candidates_are_compiled_one_by_one_while_the_main_thread_waits(monkeypatch, tmp_path):
    main_thread, go, ends, at_once = MainThread(), threading.Event(), [], []

    def compile_one(_):
        at_once.append(1)
        time.sleep(0.05)
        ends.append(len(at_once))
        at_once.pop()

    precompile = partial(go.wait, 10)
    precompile.precompile_key = "a key"
    cache = type("AlgorithmSelectorCache", (), {"make_precompile_fn": lambda *_: precompile})
    caller = type("TritonTemplateCaller", (), {"precompile": compile_one})
    module = SimpleNamespace(AlgorithmSelectorCache=cache, TritonTemplateCaller=caller)
    monkeypatch.setitem(sys.modules, "torch._inductor.select_algorithm", module)
    compile_candidates_beside(main_thread)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "candidates"))
    candidate, awaited = caller(), cache().make_precompile_fn([])
    assert others_in(tmp_path / "candidates") == 0
    (tmp_path / "candidates" / f"{os.getpid()}.user").rename(tmp_path / "candidates" / "1.user")
    assert others_in(tmp_path / "candidates") == 1
    assert awaited.precompile_key == "a key"

    threads = in_threads(candidate.precompile, 3)
    time.sleep(0.2)
    assert ends == [], "the main thread works"
    candidate.precompile()
    assert len(ends) == 1, "it may need this very one"
    waiting = in_threads(awaited)
    wait(threads)
    assert ends == [1, 1, 1, 1], "somebody waits for candidates: one at a time"
    go.set()
    wait(waiting)
    threads = in_threads(candidate.precompile)
    time.sleep(0.1)
    assert len(ends) == 4
    with main_thread.waits():
        while not at_once:  # it ends while the candidate is compiled
            time.sleep(0.001)
    assert len(ends) == 5, "nothing is compiled beside what is timed next"
    wait(threads)
    for patience_s in (0.05, 60):
        monkeypatch.setattr(candidates, "_PATIENCE_S", patience_s)
        wait(in_threads(candidate.precompile))
    assert len(ends) == 7, "the rule has ended"
