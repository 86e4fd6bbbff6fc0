"""Autotuning's choices in one folder: the first decides, later processes find its choice, torch's own caches accept it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._inductor import codecache
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import CacheBase, PyCodeCache
from torch._inductor.fx_passes import pad_mm
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.autotune_cache import AutotuneCache

from collector.measure.tuning import SharedTuning, keep_choices
from collector.vocabulary import Cell, Config, Phase

CELL = Cell("synthetic", "Two/Layers", Phase.INFERENCE, "float32", "cpu", 8, Config())
SOURCE = """
inductor_meta = {'kernel_name': 'triton_poi_fused_add_3', 'num_load': 1, 'store_cubin': False}
def triton_poi_fused_add_3(in_ptr0, XBLOCK): ...
"""
META = {"autotune_local_cache": True, "autotune_remote_cache": False}


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Starts as a new process does: with empty caches of its own, and what those before it have shared."""
    write = codecache.write
    monkeypatch.setattr(AsyncCompile, "triton", AsyncCompile.triton)

    def start(number, lays_in=True):
        monkeypatch.setattr(codecache, "write", write)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / f"cache{number}"))
        CacheBase.get_local_cache_path.cache_clear()
        shared = SharedTuning(tmp_path / "shared", CELL)
        if lays_in:
            shared.install()
        return shared

    yield start
    CacheBase.get_local_cache_path.cache_clear()


@pytest.fixture
def kept(process, tmp_path):
    """The file in which a first process has kept its choice."""
    shared = process(1)
    tune(warps=4)
    shared.keep()
    (file,) = (tmp_path / "shared").rglob("*.json")
    return file


def tune(warps, source=SOURCE, candidates="four", **how):
    """What Inductor leaves when it has compiled a kernel and chosen among candidates."""
    store, key = place_of(source, candidates).local_cache
    choice = {"XBLOCK": 64, "num_warps": warps, "num_stages": 1, "configs_hash": candidates, "time_taken_ms": warps}
    store.put(key, choice | how)


def place_of(source, candidates):
    return AutotuneCache.create(META, PyCodeCache.write(source)[1], candidates)


def looked_up(source=SOURCE, candidates="four"):
    return place_of(source, candidates)._read()


def test_the_first_process_decides_for_the_second(process, kept):
    assert kept.name == "synthetic.Two_Layers.inference.float32.8.json"
    assert "triton_cache_hash" not in kept.read_text()
    second = process(2)
    assert looked_up()["num_warps"] == 4
    assert {name: count for name, count in second.keep().items() if count} == {"kernels_found": 1}
    # The kernel is found under another number and wrapper.
    assert looked_up(SOURCE.replace("add_3", "add_12"))["num_warps"] == 4
    assert looked_up(SOURCE.replace("store_cubin': False", "store_cubin': True"))["num_warps"] == 4
    assert looked_up(SOURCE.replace("num_load': 1", "num_load': 2")) is None
    process(3)
    file = PyCodeCache.load(SOURCE).__file__  # as a process does with a candidate
    assert AutotuneCache.create(META, file, "four")._read()["num_warps"] == 4
    process(1)
    tune(warps=8)
    process(1)
    assert looked_up()["num_warps"] == 8, "a program that is found keeps to its choices, not to the shared 4"


def test_the_choice_is_there_before_a_compile_worker_looks(process, kept, monkeypatch):
    class Compiler:
        def triton(self, kernel_name, source_code, device_str="cuda"):
            file = Path(codecache.get_path(codecache.code_hash(source_code.strip()), "py")[2])
            return AutotuneCache.create(META, str(file), "four")._read()

    monkeypatch.setattr("torch._inductor.async_compile.AsyncCompile", Compiler)
    process(2)
    assert Compiler().triton("triton_poi_fused_add_3", SOURCE, device_str="cuda")["num_warps"] == 4
    assert Compiler().triton(kernel_name="add_12", source_code=SOURCE.replace("add_3", "add_12"))["num_warps"] == 4


def test_of_two_beside_each_other_the_first_to_end_decides(process):
    counts = []
    for number, warps in ((1, 4), (2, 8)):
        shared = process(number, lays_in=False)
        assert looked_up() is None
        tune(warps)
        counts.append({name: count for name, count in shared.keep().items() if count})
    assert counts == [{"kernels_tuned": 1}, {"kernels_tuned": 1, "decided_otherwise": 1}]
    process(3)
    assert looked_up()["num_warps"] == 4


def test_a_choice_of_coordinate_descent_replaces_the_one_it_began_from(process):
    first = process(1)
    tune(warps=4)
    first.keep()  # as it tells the choice that it begins from
    tune(warps=8, found_by_coordesc=True)
    assert first.keep()["decided_otherwise"] == 0
    for number, how in ((2, {}), (3, {"found_by_coordesc": True})):
        other = process(number, lays_in=False)
        tune(warps=2, **how)
        assert other.keep()["decided_otherwise"] == 1
    process(4)
    found = looked_up()
    assert (found["num_warps"], found["found_by_coordesc"]) == (8, True)


def test_each_build_finds_the_choice_among_its_own_candidates(process, monkeypatch):
    for build, candidates, warps in (("1" * 40, "four", 2), ("2" * 40, "five", 8)):
        monkeypatch.setattr(torch.version, "git_version", build)
        shared = process(build[0], lays_in=False)
        tune(warps, candidates=candidates)
        shared.keep()
    # A third build gets the choice of the first one.
    monkeypatch.setattr("torch._inductor.codecache.torch_key", lambda: b"another build")
    for build, warps in (("1" * 40, 2), ("2" * 40, 8), ("3" * 40, 2)):
        monkeypatch.setattr(torch.version, "git_version", build)
        process("again" + build[0])
        assert looked_up()["num_warps"] == warps


def test_times_and_decisions_of_operations_are_shared_and_never_replaced(process):
    def left(pads, times):
        CacheBase().update_local_cache({"pad 8 by 7": pads, "mm": {"[8, 8]": {"highest": times}}})

    first = process(1)
    left(False, {"aten": 0.5, "template": 0.4})
    assert first.keep()["operations_new"] == 2
    second = process(2)
    found = {"pad 8 by 7": False, "mm": {"[8, 8]": {"highest": {"aten": 0.5, "template": 0.4}}}}
    assert CacheBase().get_local_cache() == found
    left(True, {"aten": 0.1, "template": 0.9, "newer": 0.3})
    assert second.keep()["operations_new"] == 1
    third = process(3)
    found["mm"]["[8, 8]"]["highest"]["newer"] = 0.3
    assert CacheBase().get_local_cache() == found
    CacheBase().update_local_cache({"mm": 3})
    assert third.keep()["operations_new"] == 0


class Launcher:
    def __init__(self, warps=4):
        self.config = SimpleNamespace(kwargs={"XBLOCK": 64}, num_warps=warps, num_stages=1)


def test_a_laid_choice_is_neither_tuned_again_nor_timed_beside_variants():
    class Autotuner:
        """Inductor's class in small."""

        filename = "/somewhere/else/ab/cab.py"

        def __init__(self, *launchers, candidates="four"):
            self.launchers, self.save_cache_hook = launchers, AutotuneCache(candidates).save

        def benchmark_all_configs(self, *arguments):
            return "timed", arguments

        def coordinate_descent_tuning(self, launcher, *arguments):
            return "tuned", launcher, arguments

        autotune_to_one_config = benchmark_all_configs

    # A choice of coordinate descent is laid for one file, and another choice for a second one.
    laid = {"XBLOCK": 64, "num_warps": 4, "num_stages": 1, "found_by_coordesc": True, "configs_hash": "four"}
    keep_choices(Autotuner, {"ab/cab.py": laid, "ab/other.py": laid | {"found_by_coordesc": False}})
    chosen, variant = Launcher(), Launcher(8)
    tuner = Autotuner(variant, chosen)
    assert tuner.coordinate_descent_tuning(chosen, 1) is chosen
    assert tuner.coordinate_descent_tuning(variant, 1) == ("tuned", variant, (1,)), "Inductor has not taken the choice"
    assert tuner.benchmark_all_configs(1) == {chosen: 0.0}
    assert Autotuner(variant, chosen, candidates="five").benchmark_all_configs(1) == ("timed", (1,))
    for name, launchers in (("/cache/ab/other.py", [variant]), ("/cache/ab/unknown.py", [variant, chosen])):
        tuner.filename, tuner.launchers = name, launchers
        assert tuner.benchmark_all_configs(1) == ("timed", (1,))
        assert tuner.coordinate_descent_tuning(chosen) == ("tuned", chosen, ())
    tuner.filename = None
    assert tuner.coordinate_descent_tuning(chosen) == ("tuned", chosen, ())


def test_of_two_that_tune_at_once_the_second_takes_what_the_first_chooses(process, monkeypatch, tmp_path):
    def start(number, warps):
        class Autotuner:
            launchers, save_cache_hook = [Launcher(4), Launcher(8)], AutotuneCache("four").save
            coordinate_descent_tuning = None
            filename = property(lambda _: PyCodeCache.write(SOURCE)[1])

            def benchmark_all_configs(self):
                return {Launcher(warps): 0.5}

            def autotune_to_one_config(self):
                tune(*(best.config.num_warps for best in self.benchmark_all_configs()))

        def should_pad():
            if (known := pad_mm.get_cached_should_pad("pad")) is None:
                CacheBase().update_local_cache({"pad": (known := warps == 4)})
            return known

        monkeypatch.setattr(triton_heuristics, "CachingAutotuner", Autotuner)
        monkeypatch.setattr(pad_mm, "should_pad", should_pad)
        monkeypatch.setattr(pad_mm, "get_cached_should_pad", lambda key: CacheBase().get_local_cache().get(key))
        process(number)
        pads, look_up = pad_mm.should_pad, pad_mm.get_cached_should_pad

        def go_on():
            monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / f"cache{number}"))
            monkeypatch.setattr(pad_mm, "get_cached_should_pad", look_up)
            CacheBase.get_local_cache_path.cache_clear()
            Autotuner().autotune_to_one_config()
            return looked_up()["num_warps"], pads()

        return go_on

    assert [go_on() for go_on in [start(1, 4), start(2, 8)]] == [(4, True), (4, True)]


def test_a_file_of_another_make_costs_the_sharing_and_not_the_measurement(process, kept, monkeypatch):
    (kernel,) = json.loads(kept.read_text())["kernels"]
    kept.write_text(json.dumps({"kernels": {kernel: 5}, "operations": {}}))
    again = process(2)
    tune(4)
    assert list(again.keep()) == ["not_kept"]
    assert "cache2" not in again.keep()["not_kept"]
    with monkeypatch.context() as patch:  # a torch that keeps its choices elsewhere
        patch.delattr(CacheBase, "get_local_cache_path")
        again.install()
        assert list(again.keep()) == ["not_kept"]
    kept.write_text("{")
    process(3)
    assert looked_up() is None, "a damaged file counts as empty"
