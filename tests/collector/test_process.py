"""A cell is a process with a time limit; nothing of it is left behind, however it ends. Real processes throughout."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from collector.process import CellProcess, cell_environment, processes_with_token
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Stage, Status
from jobs.pool import Pool, worker_variables

LONG = Settings(rounds=5, timeout_s=120)
MODEL = "ViTTinyForImageClassification"
#: Hangs in the middle of its start, before torch is imported, as a cell would that never comes back.
HANGING = "import time; time.sleep(600)"


def cell(template="triton", model=MODEL):
    return Cell("huggingface", model, Phase.INFERENCE, "float32", "cpu", 1, Config(template=template))


#: Cells that end early, for three reasons.
EARLY = [cell("tritn"), cell("cudagraphs"), cell(model="NoSuchModel")]
EARLY_STATUS = [Status.CONFIG_ERROR, Status.UNAVAILABLE, Status.MODEL_FAIL_TO_LOAD]


def use_temp(patch, folder):
    folder.mkdir(exist_ok=True)
    patch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def temp(tmp_path, monkeypatch):
    """The folder in which cells make theirs."""
    return use_temp(monkeypatch, tmp_path / "temp")


@pytest.fixture
def running(temp):
    """A cell that has just been started and takes seconds to import torch."""
    process = CellProcess(cell(), LONG)
    yield process
    process.kill()


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def wait_for_end(process, seconds=20.0):
    def over():
        process.pump()
        return process.finished

    wait_until(over, seconds)
    return process.close().measurement


def nothing_left(folder, token):
    return list(folder.iterdir()) == [] and list(processes_with_token(token)) == []


def token_of(folder):
    (found,) = folder.iterdir()
    return found.name


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    """One pool of cells that end early, with all that it left in its folder."""
    with pytest.MonkeyPatch.context() as patch:
        folder = use_temp(patch, tmp_path_factory.mktemp("early") / "temp")
        outcomes = list(Pool(EARLY, LONG).run())
        return [outcome.measurement for outcome in outcomes], list(folder.iterdir())


def test_one_worker_measures_in_the_order_of_the_plan(early):
    assert [found.cell for found in early[0]] == EARLY


def test_each_cell_has_its_own_reason(early):
    assert [found.status for found in early[0]] == EARLY_STATUS
    assert "did you mean triton" in early[0][0].failure.message
    assert "GPU only" in early[0][1].failure.message
    assert "NoSuchModel" in early[0][2].failure.message


def test_cells_that_ended_leave_no_folder(early):
    assert early[1] == []


def test_an_outcome_names_the_environment_it_came_from(early):
    assert early[0][0].environment_id is not None
    assert early[0][0].environment_id == early[0][1].environment_id


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.slow
def test_two_workers_measure_every_cell_once(temp):
    found = [outcome.measurement for outcome in Pool(EARLY, LONG, workers=2).run()]
    assert {item.cell: item.status for item in found} == dict(zip(EARLY, EARLY_STATUS, strict=True))
    assert len(found) == len(EARLY)
    assert list(temp.iterdir()) == []


def test_a_cell_over_its_time_is_a_timeout_that_names_the_stage(temp):
    began = time.monotonic()
    (outcome,) = Pool([cell()], Settings(timeout_s=0.5)).run()
    found = outcome.measurement
    assert time.monotonic() - began < 10
    assert found.status is Status.TIMEOUT
    assert found.failure.stage is Stage.START
    assert found.failure.message == "not done after 0.5 s, in stage start"
    assert list(temp.iterdir()) == []


def test_a_time_limit_ends_one_cell_and_not_the_run(temp):
    found = [outcome.measurement.status for outcome in Pool([cell(), cell("aten")], Settings(timeout_s=0.3)).run()]
    assert found == [Status.TIMEOUT, Status.TIMEOUT]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_ended_by_a_signal_is_crashed_and_names_it(running, temp, number):
    token = token_of(temp)
    wait_until(lambda: running.pid in processes_with_token(token))
    os.kill(running.pid, number)
    found = wait_for_end(running)
    assert found.status is Status.CRASHED
    assert found.failure.exception == number.name
    assert number.name in found.failure.message
    assert "stage start" in found.failure.message
    assert ("out-of-memory" in (found.failure.hint or "")) is (number is signal.SIGKILL)
    assert nothing_left(temp, token)


def test_a_process_that_ends_without_a_result_names_its_exit_code(temp, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import os; print('last words', flush=True); os._exit(7)")
    found = wait_for_end(CellProcess(cell(), LONG, {**os.environ, "PYTHONPATH": str(tmp_path)}))
    assert found.status is Status.CRASHED
    assert "code 7" in found.failure.message
    assert found.log_tail == "last words\n"
    assert list(temp.iterdir()) == []


def test_children_that_left_the_group_are_killed_with_their_cell(temp, tmp_path):
    # A child in a session of its own: killpg does not reach it, its environment gives it away.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, subprocess, sys, time\n"
        "if os.environ.pop('START_A_CHILD', None):\n"
        f"    subprocess.Popen([sys.executable, '-S', '-c', {HANGING!r}], start_new_session=True)\n"
        "    time.sleep(600)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "START_A_CHILD": "1"}
    process = CellProcess(cell(), LONG, environ)
    token = token_of(temp)
    try:
        wait_until(lambda: len(list(processes_with_token(token))) == 2)
    finally:
        found = process.close().measurement
    assert found.failure.exception == "Interrupted"
    wait_until(lambda: nothing_left(temp, token), 3)


def test_a_flood_of_output_neither_blocks_the_cell_nor_fills_memory(temp, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nfor _ in range(2000): os.write(1, b'x' * 1023 + b'\\n')\nos.write(1, b'the end')\nos._exit(3)\n"
    )
    found = wait_for_end(CellProcess(cell(), LONG, {**os.environ, "PYTHONPATH": str(tmp_path)}))
    assert found.log_tail.endswith("the end")
    assert len(found.log_tail) == 8 * 1024


def test_a_run_closed_in_the_middle_ends_its_processes(temp):
    pool = Pool([cell(), cell("aten")], Settings(timeout_s=0.3))
    outcomes = pool.run()
    assert next(outcomes).measurement.status is Status.TIMEOUT
    outcomes.close()
    assert list(temp.iterdir()) == []


def test_without_budget_nothing_is_measured(temp):
    assert list(Pool(EARLY, LONG, budget_s=0).run()) == []
    assert list(temp.iterdir()) == []


def test_a_cell_that_stands_still_is_stopped_and_goes_on(running):
    running.stand()
    wait_until(lambda: state(running.pid) == "T")
    assert running.stands
    running.go_on()
    wait_until(lambda: state(running.pid) in "RSD")
    assert not running.stands


def test_time_spent_standing_does_not_count_against_the_limit(temp):
    process = CellProcess(cell(), Settings(timeout_s=100))
    try:
        process.stand()
        before = process.left_s()
        time.sleep(0.4)
        assert process.left_s() == pytest.approx(before, abs=0.1)
        process.go_on()
        process.stand()
        process.go_on()
        time.sleep(0.3)
        assert before - process.left_s() == pytest.approx(0.3, abs=0.15)
    finally:
        process.close()


def test_a_stopped_cell_can_be_closed(running, temp):
    token = token_of(temp)
    running.stand()
    wait_until(lambda: state(running.pid) == "T")
    assert running.close().measurement.failure.exception == "Interrupted"
    assert nothing_left(temp, token)


def test_every_cell_has_empty_caches_of_its_own(tmp_path):
    (tmp_path / "a").mkdir()
    given = {"TORCHINDUCTOR_CACHE_DIR": "/shared", "TRITON_CACHE_DIR": "/shared", "HOME": "/home/x"}
    found = cell_environment(given, tmp_path / "a", "token")
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR"):
        place = Path(found[name])
        assert place.parent == tmp_path / "a"
        assert list(place.iterdir()) == []
    assert found["HF_HUB_OFFLINE"] == "1"
    assert found["HOME"] == "/home/x"
    assert given["TRITON_CACHE_DIR"] == "/shared"


@pytest.mark.parametrize(("workers", "pinned"), [(1, False), (2, True)])
def test_a_probe_sees_the_cores_of_one_worker(workers, pinned):
    if workers > len(os.sched_getaffinity(0)):
        pytest.skip("needs two cores")
    assert bool(worker_variables(workers)) is pinned
