"""A census of small models for the CPU: the code that `measure` keeps, and an outcome for every cell whatever happens to it."""

import os
import signal
from dataclasses import replace

import pytest
import torch

from collector.bundle import CENSUS
from collector.census.gpu_models import CensusError
from collector.configs import parse_config
from collector.device import CPU
from collector.measure.cell import Alone, measure
from collector.settings import Settings
from collector.vocabulary import Cell, Phase, Status
from collector.zoo.registry import find
from jobs.census.census_pool import CensusPlace, CensusPool
from tests.collector.census import small_models
from tests.collector.processes import state, wait_until

SETTINGS = Settings(code_only=True, warmups=1, timeout_s=120)


def cell(function="net", config="triton", phase="inference", **changes):
    named = f"{small_models.__name__}:{function}"
    return replace(Cell("user", named, Phase(phase), "float32", "cpu", 16, parse_config(config)), **changes)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    place = CensusPlace(CPU, cache=tmp_path_factory.mktemp("cache"), workers=1, threads=torch.get_num_threads())
    with pytest.MonkeyPatch.context() as patch, CensusPool(place, SETTINGS) as pool:
        patch.setenv("SMALL_TOKEN", "zq81Kd-77Plm_xx9-0123456789abcdefQRST")
        yield pool


def taken(pool, *cells):
    return {outcome.measurement.cell: outcome for outcome in pool.generate(cells, {})}


def measured(one):
    outcome = measure(one, find(one.suite, one.model).build, SETTINGS, Alone())
    assert outcome.measurement.status is Status.PASS, outcome.measurement.failure
    return outcome


def test_the_code_is_that_of_a_measurement(pool):
    one = cell()
    census, truth = taken(pool, one)[one], measured(one)
    assert census.measurement.code_id == truth.measurement.code_id
    assert census.code == truth.code
    assert census.texts.keys() == truth.texts.keys()
    assert census.measurement.program_id == truth.measurement.program_id
    assert census.measurement.metrics == {}
    assert census.measurement.details[CENSUS]["known"]
    assert {"torch/_inductor/graph.py", "torch/_dynamo/symbolic_convert.py"} <= pool.imported


@pytest.mark.slow
@pytest.mark.parametrize(
    "one",
    [cell("net_in_two", phase="training"), cell(config="triton+dynamic"), cell(config="freezing"), cell(dtype="amp")],
    ids=lambda one: f"{one.phase} {one.dtype} {one.config.name}",
)
def test_other_forms_have_the_code_of_a_measurement(pool, one):
    assert taken(pool, one)[one].measurement.code_id == measured(one).measurement.code_id


def test_what_is_timed_or_runs_is_not_known(pool):
    cells = [cell(config=config) for config in ("cpp_wrapper", "max_autotune", "aten", "default+backend=eager")]
    for found in (outcome.measurement for outcome in taken(pool, *cells).values()):
        assert found.status is Status.UNAVAILABLE
        assert found.failure.message.startswith("not known without a GPU: ")
        assert not found.details[CENSUS]["known"]


def test_a_cell_that_fails_or_crashes_takes_no_other_with_it(pool):
    names = ("net_that_fails", "net_that_crashes", "net", "net_that_reads_a_value")
    outcomes = taken(pool, *map(cell, names))
    failed, crashed, plain, reading = (outcomes[cell(name)].measurement for name in names)
    statuses = (failed.status, crashed.status, plain.status)
    assert statuses == (Status.MODEL_FAIL_TO_LOAD, Status.CRASHED, Status.NOT_CHECKED)
    assert "no model of 16" in failed.failure.message
    assert "***" in failed.log_tail and "QRST" not in failed.log_tail, "half a token is none that is recognised"
    assert "SIGABRT" in crashed.failure.message
    # A model that reads values is built with values.
    assert "built with values" in reading.details[CENSUS]["notes"][0]
    assert reading.code_id == plain.code_id


def test_cells_die_with_their_process_and_the_next_one_takes_their_place(pool):
    pool.workers = 2
    endless, one, another = cell("net_that_never_ends"), cell(batch_size=17), cell(batch_size=18)
    found = pool.generate([endless, one], {})
    assert next(found).measurement.cell == one, "it does not wait for the other one"
    os.kill(pool._process._process.pid, signal.SIGKILL)
    (died,) = found
    assert (died.measurement.cell, died.measurement.status) == (endless, Status.CRASHED)
    assert died.measurement.failure.message == "the process of the cell ended with SIGKILL"
    pool.workers = 1
    assert taken(pool, another)[another].measurement.status is Status.NOT_CHECKED


def test_a_process_gives_way_to_others_and_stands_still_while_asked():
    with CensusPool(CensusPlace(CPU, workers=1), SETTINGS) as pool:
        pool.give_way()
        pool.start()
        pid = pool._process._process.pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == 10
        pool.stand()
        wait_until(lambda: state(pid) == "T")
        pool.go_on()
        wait_until(lambda: state(pid) != "T")


def test_a_cell_that_takes_too_long_is_given_up(pool):
    one = cell(batch_size=19)
    pool.take_over(replace(SETTINGS, timeout_s=0.01), workers=1)
    assert taken(pool, one)[one].measurement.status is Status.TIMEOUT
    pool.take_over(SETTINGS, workers=1)
    assert taken(pool, one)[one].measurement.status is Status.NOT_CHECKED


@pytest.mark.skipif(torch.version.cuda is not None, reason="is torch for CUDA")
def test_a_gpu_needs_the_wheel_for_cuda(tmp_path, monkeypatch):
    monkeypatch.setattr("jobs.census.census_pool.build_runtime", lambda *_: "")
    line = "built without CUDA: the census of a GPU needs the wheel for CUDA"
    core = max(os.sched_getaffinity(0))
    with CensusPool(CensusPlace("H100", cache=tmp_path, workers=1, cores=[core]), SETTINGS) as pool:
        pool.start()
        assert os.sched_getaffinity(pool._process._process.pid) == {core}
        with pytest.raises(CensusError, match=line):
            taken(pool, cell(device="cuda"))


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is None, reason="is torch for a CPU")
@pytest.mark.parametrize("gpu", ["H100", "H200", "A100", "B200"])
def test_code_for_a_gpu_is_generated_without_one(tmp_path, gpu):
    configs = ("triton", "cudagraphs", "triton+dynamic", "max_autotune")
    cells = [
        cell(device="cuda", dtype="float32", config="freezing"),
        cell(device="cuda", dtype="amp", phase="training"),
    ]
    cells += [cell(device="cuda", dtype="bfloat16", config=config) for config in configs]
    with CensusPool(CensusPlace(gpu, cache=tmp_path), SETTINGS) as pool:
        found = taken(pool, *cells)
    *known, timed = (found[one] for one in cells)
    for outcome in known:
        assert outcome.measurement.details[CENSUS]["known"], outcome.measurement.failure
        assert any("async_compile.triton" in text for text in outcome.texts.values())
        assert outcome.environment["census"] == gpu
    assert timed.measurement.status is Status.UNAVAILABLE
