"""Autotuning's choices in one folder: the first decides, later processes find its choice, torch's own caches accept it."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch._inductor.codecache import CacheBase
from torch._inductor.runtime.autotune_cache import AutotuneCache

from collector.measure.tuning import SharedTuning, keep_descents
from collector.vocabulary import Cell, Config, Phase

CELL = Cell("synthetic", "Two/Layers", Phase.INFERENCE, "float32", "cpu", 8, Config())
KERNEL = "ab/cabsyntheticsource.py"
META = {"autotune_local_cache": True, "autotune_remote_cache": False}


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Starts as a new process does: with empty caches of its own, their folder, and what those before it have shared."""

    def start(number, lays_in=True):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / f"cache{number}"))
        CacheBase.get_local_cache_path.cache_clear()
        shared = SharedTuning(tmp_path / "shared", CELL)
        if lays_in:
            shared.lay_in()
        return tmp_path / f"cache{number}", shared

    yield start
    CacheBase.get_local_cache_path.cache_clear()


@pytest.fixture
def kept(process, tmp_path):
    """The file in which a first process has kept its choice."""
    cache, shared = process(1)
    tune(cache, warps=4)
    shared.keep()
    (file,) = (tmp_path / "shared").rglob("*.json")
    return file


def tune(cache, warps, kernel=KERNEL, candidates="four"):
    """What Inductor leaves when it has compiled a kernel and chosen among candidates."""
    source = cache / kernel
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("# synthetic")
    place = AutotuneCache.create(META, str(source), candidates)
    store, key = place.local_cache
    store.put(
        key, {"XBLOCK": 64, "num_warps": warps, "num_stages": 1, "configs_hash": candidates, "time_taken_ms": warps}
    )


def looked_up(cache, kernel=KERNEL, candidates="four"):
    return AutotuneCache.create(META, str(cache / kernel), candidates)._read()


def test_the_first_process_decides_for_the_second(process, kept):
    assert kept.name == "synthetic.Two_Layers.inference.float32.8.json"
    assert "triton_cache_hash" not in kept.read_text()
    cache, second = process(2)
    assert looked_up(cache)["num_warps"] == 4
    (cache / KERNEL).write_text("# synthetic")
    assert {name: count for name, count in second.keep().items() if count} == {"kernels_found": 1}


def test_of_two_beside_each_other_the_first_to_end_decides(process):
    counts = []
    for number, warps in ((1, 4), (2, 8)):
        cache, shared = process(number, lays_in=False)
        assert looked_up(cache) is None
        tune(cache, warps)
        counts.append({name: count for name, count in shared.keep().items() if count})
    assert counts == [{"kernels_tuned": 1}, {"kernels_tuned": 1, "decided_otherwise": 1}]
    assert looked_up(process(3)[0])["num_warps"] == 4


def test_each_build_finds_the_choice_among_its_own_candidates(process, monkeypatch):
    for build, candidates, warps in (("1" * 40, "four", 2), ("2" * 40, "five", 8)):
        monkeypatch.setattr(torch.version, "git_version", build)
        cache, shared = process(build[0], lays_in=False)
        tune(cache, warps, candidates=candidates)
        shared.keep()
    # A third build gets the choice of the first one.
    monkeypatch.setattr("torch._inductor.codecache.torch_key", lambda: b"another build")
    for build, warps in (("1" * 40, 2), ("2" * 40, 8), ("3" * 40, 2)):
        monkeypatch.setattr(torch.version, "git_version", build)
        cache, _ = process("again" + build[0])
        assert looked_up(cache)["num_warps"] == warps


def test_times_and_decisions_of_operations_are_shared_and_never_replaced(process):
    def left(pads, times):
        CacheBase().update_local_cache({"pad 8 by 7": pads, "mm": {"[8, 8]": {"highest": times}}})

    _, first = process(1)
    left(False, {"aten": 0.5, "template": 0.4})
    assert first.keep()["operations_new"] == 2
    _, second = process(2)
    found = {"pad 8 by 7": False, "mm": {"[8, 8]": {"highest": {"aten": 0.5, "template": 0.4}}}}
    assert CacheBase().get_local_cache() == found
    left(True, {"aten": 0.1, "template": 0.9, "newer": 0.3})
    assert second.keep()["operations_new"] == 1
    _, third = process(3)
    found["mm"]["[8, 8]"]["highest"]["newer"] = 0.3
    assert CacheBase().get_local_cache() == found
    CacheBase().update_local_cache({"mm": 3})
    assert third.keep()["operations_new"] == 0


def test_a_laid_choice_of_coordinate_descent_is_not_tuned_again():
    class Autotuner:
        filename = f"/somewhere/else/{KERNEL}"

        def coordinate_descent_tuning(self, launcher, *arguments):
            return "tuned", launcher, arguments

    def launcher(warps=4):
        return SimpleNamespace(config=SimpleNamespace(kwargs={"XBLOCK": 64}, num_warps=warps, num_stages=1))

    laid = {"XBLOCK": 64, "num_warps": 4, "num_stages": 1, "found_by_coordesc": True, "configs_hash": "four"}
    keep_descents(Autotuner, {KERNEL: laid, "ab/other.py": laid | {"found_by_coordesc": False}})
    tuner, same = Autotuner(), launcher()
    assert tuner.coordinate_descent_tuning(same, 1) is same
    other = launcher(8)  # Inductor has not taken the choice
    assert tuner.coordinate_descent_tuning(other, 1) == ("tuned", other, (1,))
    for name in ("/cache/ab/other.py", "/cache/ab/unknown.py", None):
        tuner.filename = name
        assert tuner.coordinate_descent_tuning(same) == ("tuned", same, ())


def test_a_file_of_another_make_costs_the_sharing_and_not_the_measurement(process, kept, monkeypatch):
    kept.write_text(json.dumps({"kernels": {KERNEL: 5}, "operations": {}}))
    cache, again = process(2)
    tune(cache, 4)
    assert list(again.keep()) == ["not_kept"]
    assert "cache2" not in again.keep()["not_kept"]
    with monkeypatch.context() as patch:  # a torch that keeps its choices elsewhere
        patch.delattr(CacheBase, "get_local_cache_path")
        again.lay_in()
        assert list(again.keep()) == ["not_kept"]


@pytest.mark.parametrize("content", ["{", '{"kernels": {"../../x.py": {"h": {"chosen": {"num_warps": 1}}}}}'])
def test_a_damaged_file_counts_as_empty(process, kept, content):
    kept.write_text(content)
    cache, _ = process(2)
    assert not list(cache.parent.rglob("*x*.best_config"))
    assert looked_up(cache) is None
