"""Where a run measures, and where it goes on: real probes of a machine whose GPUs and fingerprint two programs play."""

from __future__ import annotations

import json
import os
import sys

import pytest

from collector.bundle import BundleContents
from collector.machine.environment import extract_testbed
from collector.machine.toolchain import SKIP_VARIABLE
from collector.settings import Settings
from collector.usage_errors import ConfigError
from collector.vocabulary import Config
from jobs.plan.shards import group_of
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.resuming import find_night
from jobs.pool.testbeds import HostError, StartedTestbeds, Testbed, find_testbeds, last_testbeds, preload_for
from jobs.pool.testbeds import testbeds_of as find_again
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.factories import cell, header, passing, write_bundle
from tests.jobs.acting import CORES, PLAYER
from tests.jobs.pool.test_device_slots import TWO, play_driver

FACTS = {"torch": "2.13.0", "torch_git": "f" * 40, "device": "cuda", "cpu": "A CPU", "node": "here", "gpu": "Played"}
CELLS = [cell(f"m{number}", Config(backend="eager")) for number in range(4)]

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    play_driver(tmp_path / "bin", monkeypatch, TWO)
    monkeypatch.setenv("PYTHONPATH", str(PLAYER))
    monkeypatch.setenv(SKIP_VARIABLE, "1")
    monkeypatch.setenv("PLAY_ENVIRONMENT", json.dumps(FACTS))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def indexes(testbeds):
    return [testbed.environment.get("gpu_index") for testbed in testbeds]


def test_every_gpu_is_a_testbed_of_its_own_and_the_first_is_the_default(two_gpus):
    found = find_testbeds(None, ExecutionOptions(gpus="all"))
    assert indexes(found) == [0, 1]
    assert [testbed.slot.variables["CUDA_VISIBLE_DEVICES"] for testbed in found] == ["GPU-aaaa", "GPU-bbbb"]
    assert [testbed.environment["cores"] for testbed in found] == [len(CORES) // 2] * 2
    assert {testbed.device for testbed in found} == {"cuda"}
    (alone,) = find_testbeds(None, ExecutionOptions())
    assert (indexes([alone]), alone.environment["cores"]) == ([0], len(CORES))
    (cpu,) = find_testbeds("cpu", ExecutionOptions(gpus="all"))
    assert ("CUDA_VISIBLE_DEVICES" in cpu.slot.variables, indexes([cpu])) == (False, [None])
    with pytest.raises(ConfigError, match="each of 2 GPUs"):
        find_testbeds(None, ExecutionOptions(len(CORES), gpus="all"))


def begin(folder, testbeds, done):
    """The bundles of a night on these testbeds, each with the first cells of its plan measured; a closed one is done."""
    for number, (testbed, count) in enumerate(zip(testbeds, done, strict=True)):
        planned = CELLS[2 * number : 2 * number + 2]
        requested = RequestedOptions(Settings(timeout_s=9), testbed.execution)
        asked = requested.to_json() | {"torch_git": testbed.environment["torch_git"]}
        where = extract_testbed(testbed.environment) | Settings().testbed()
        head = header(f"n1-{number}", asked=asked, night="n1", testbed=where)
        write_bundle(folder, head, [passing(which) for which in planned[:count]], planned=planned, closed=count == 2)


def resumed(folder, name=None):
    """The runs that go on, by name, and where."""
    found = find_night(folder, name)
    return {run.contents.header.run_id: run for run in found}, find_again(found)


def test_each_run_of_a_night_goes_on_where_it_began(two_gpus, tmp_path):
    began = find_testbeds(None, ExecutionOptions(gpus="1,0", start="spawn"))
    assert indexes(began) == [1, 0]
    begin(tmp_path / "runs", began, [1, 0])
    found, here = resumed(tmp_path / "runs")
    assert here == began
    left = {name: run.work(run.contents).cells for name, run in found.items()}
    assert left == {"n1-0": CELLS[1:2], "n1-1": CELLS[2:]}
    found, here = resumed(tmp_path / "runs", "n1-1")
    assert ([*found], here) == (["n1-1"], began[1:]), "alone it gets its old part of the cores"


def test_a_night_whose_gpu_has_gone_or_whose_torch_is_another_is_refused(two_gpus, tmp_path, monkeypatch):
    began = find_testbeds(None, ExecutionOptions(gpus="all"))
    begin(tmp_path / "runs", began, [0, 0])
    with monkeypatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert indexes(find_testbeds("cuda", ExecutionOptions(gpus="all"))) == [1]
        with pytest.raises(ConfigError, match="no GPU 0 here"):
            resumed(tmp_path / "runs")
    monkeypatch.setenv("PLAY_ENVIRONMENT", json.dumps({**FACTS, "torch_git": "e" * 40}))
    with pytest.raises(ConfigError, match="eeeeeeeeeeee"):
        resumed(tmp_path / "runs")


def test_only_cells_with_cpp_wait_for_the_probes_of_the_cpu():
    plain = [cell("bert", Config(template=name)) for name in ("triton", "cudagraphs", "max_autotune")]
    for more in ([cell("bert", Config(template="cpp_wrapper"))], [cell("bert", Config(backend="aot"))]):
        assert (preload_for(plain, "cuda").has_cpp, preload_for(plain + more, "cuda").has_cpp) == (False, True)
    assert preload_for(plain, "cpu").has_cpp


def test_models_stay_on_the_gpu_of_this_host_that_measured_them_last():
    def run(minutes, node, gpu, *models):
        head = header(f"r{minutes}", minutes=minutes, testbed={"node": node, "gpu_index": gpu})
        return BundleContents(head, measurements=[passing(cell(model)) for model in models])

    here = [Testbed(DeviceSlot([[]]), {**FACTS, "gpu_index": gpu}, ExecutionOptions()) for gpu in (3, 1)]
    history = [run(9, "here", 1, "a", "b"), run(8, "there", 3, "c")]
    history += [run(7, "here", 3, "b", "d"), run(6, "here", 0, "e")]
    assert last_testbeds(history, here) == {group_of(cell("a")): 1, group_of(cell("b")): 1, group_of(cell("d")): 0}


def test_of_two_overlays_this_process_imports_the_one_that_it_plans_with(tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.pool.testbeds.probe", lambda device, slot: {"path": slot.variables["PYTHONPATH"]})
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ConfigError, match="gone, from which torch was imported"):
        find_testbeds("cpu", ExecutionOptions(overlay=str(tmp_path / "gone")))
    paths = {}
    for name in ("base", "new"):
        folder = tmp_path / name
        (folder / "torch").mkdir(parents=True)
        (testbed,) = find_testbeds("cpu", ExecutionOptions(overlay=str(folder)), plans=name == "base")
        paths[name] = testbed.environment["path"].partition(os.pathsep)[0]
    assert paths == {name: str(tmp_path / name) for name in paths}
    assert [path for path in sys.path if path.startswith(str(tmp_path))] == [str(tmp_path / "base")]


def test_an_overlay_in_which_torch_does_not_start_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "new" / "torch").mkdir(parents=True)
    (tmp_path / "new" / "torch" / "__init__.py").write_text("import torch.sparse")
    with pytest.raises(HostError, match=f"No module named 'torch.sparse'; .*remove {tmp_path}, which"):
        find_testbeds("cpu", ExecutionOptions(overlay=str(tmp_path / "new")))


def test_what_imports_at_the_same_time_has_cores_of_its_own(monkeypatch):
    taken = []
    monkeypatch.setattr("jobs.pool.testbeds.make_slots", lambda *_: [DeviceSlot([[core] for core in range(8)])])
    monkeypatch.setattr("jobs.pool.testbeds.Launcher", lambda _, __, cores: taken.append(cores))
    monkeypatch.setattr("jobs.pool.testbeds.probe", lambda _, slot: taken.append(slot.cores[0]) or FACTS)
    for side in (0, 1):
        StartedTestbeds("cpu", ExecutionOptions(start="fork"), True, side).probed(plans=False)
    assert sorted(taken) == [[0], [2], [4], [6]]
