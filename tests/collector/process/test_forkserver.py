"""A cell forked from a server that has imported torch, as a night's cells are: measured like a fresh one."""

import os

import pytest

from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.cell_process import CellProcess
from collector.process.launcher import Launcher, Preload
from collector.process.orphans import processes_with_token
from collector.settings import Settings
from collector.vocabulary import Status
from tests.collector.processes import ROOT, cell, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environ():
    # No probing of the CPU's instructions, which would take ten seconds of the test's time.
    return {**os.environ, SKIP_VARIABLE: "1", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def launcher(environ):
    found = Launcher(environ, Preload("cpu", ["transformers"]))
    wait_until(lambda: found.is_ready, 200)
    yield found
    found.close()


def measured(launcher, environ, which):
    process = CellProcess(which, Settings(rounds=5, timeout_s=200), launcher, environ)
    token = process._token
    try:
        wait_until(lambda: answered(process) or process.finished, 200)
    finally:
        found = process.close().measurement
    assert list(processes_with_token(token)) == []
    return found


def answered(process):
    process.pump()
    if process.asks:
        process.grant()


def test_cells_of_one_server_compile_cold_and_like_a_fresh_one(launcher, environ):
    first, second = (measured(launcher, environ, cell()) for _ in range(2))
    fresh = Launcher(environ)
    try:
        spawned = measured(fresh, environ, cell())
    finally:
        fresh.close()
    for found in (first, second, spawned):
        assert found.status is Status.PASS, (found.failure, found.log_tail)
        assert found.metrics["compile_cold_s"] > 0.5
        assert found.metrics["graphs"] == 1
        assert set(found.details["held_s"]) == {"device", "measure"}
    assert (first.program_id, first.environment_id) == (second.program_id, second.environment_id)
    # A cache that the first one left would make the second compile in a fraction of the time.
    assert second.metrics["compile_cold_s"] > 0.4 * first.metrics["compile_cold_s"]
    assert spawned.program_id == first.program_id
    for name in ("graphs", "graph_breaks", "kernels_generated", "eager_peak_bytes", "compiled_peak_bytes"):
        assert spawned.metrics.get(name) == first.metrics.get(name), name
