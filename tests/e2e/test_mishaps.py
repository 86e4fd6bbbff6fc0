"""What happens to anybody: a signal, two commands at once, a torch, a GPU or a folder that is not there. One line is said."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Config
from tests.collector.processes import wait_until
from tests.command_line import ROOT, call, free_port, is_healthy, is_one_line, tell
from tests.e2e.killing import Storm, write_plan
from tests.factories import cell, new_store
from tests.jobs.acting import played_host

NO_TORCH = """raise ModuleNotFoundError("No module named 'torch'", name="torch")"""
BROKEN_TORCH = "raise ImportError('libcudart.so.12: cannot open shared object file')"
_DROP_FROM_BOUNDS, _MAY_WRITE_ANYWHERE = 24, 1


@pytest.fixture
def played(request, tmp_path):
    """A night of three cells that play instead of measuring, which somebody has just started; seconds a cell."""
    cells = [cell("BertForMaskedLM", Config(backend="eager"), device="cpu", batch_size=size) for size in (1, 2, 3)]
    variables = played_host(tmp_path / "played") | {"PLAY_SCRIPT": f"work:{request.param}"}
    words = ("--device", "cpu", "--workers", "1", "--start", "spawn")
    storm = Storm(tmp_path, cells, seed=1, longest_s=1, words=words, **variables)
    process = storm.start()
    try:
        wait_until((tmp_path / "played").exists, 60)  # the first cell has begun
        yield storm, process, variables
    finally:
        storm.clear()
        process.wait()


@pytest.mark.parametrize(("played", "number"), [(0.5, signal.SIGINT), (60, signal.SIGTERM)], indirect=["played"])
def test_a_night_that_is_ended_leaves_no_process_and_no_folder_and_goes_on(played, number, tmp_path):
    storm, process, variables = played
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # a terminal sends it to all of them
    else:
        refused = call("resume", "--no-store", folder=tmp_path, **variables)
        is_one_line(refused, 2, "is being written by another process", "wait")
        (bundle,) = storm.runs.iterdir()
        assert (read_bundle(bundle).attempt, read_bundle(bundle).finished_at, process.poll()) == (1, None, None)
        process.send_signal(number)
    assert process.wait(30) == 128 + number, storm.log()
    assert "Traceback" not in storm.log()
    assert storm.processes() == []
    # torch, where it is imported, makes a folder for its cache; that is empty.
    assert [path for path in (tmp_path / "tmp").rglob("*") if not path.name.startswith("torchinductor_")] == []
    assert [path.suffix for path in storm.runs.iterdir()] == [".jsonl"]
    if number == signal.SIGINT:
        assert storm.log().splitlines()[-1].startswith("interrupted: ")
        assert "`inductor-watch resume` measures the rest" in storm.log()
        storm.finish()
        (bundle,) = storm.runs.glob("*.jsonl.gz")
        assert [item.cell.batch_size for item in read_bundle(bundle).measurements] == [1, 2, 3]


def test_the_dashboard_leaves_no_server_behind(tmp_path):
    new_store(tmp_path / "s.db").dispose()
    port = free_port()
    storm = Storm(tmp_path, [], seed=1, longest_s=1, STREAMLIT_SERVER_HEADLESS="true")
    process = storm.call("dashboard", "--db", "s.db", "--port", str(port))
    try:
        wait_until(lambda: is_healthy(port), 60)
        process.terminate()
        process.wait(60)
        assert not is_healthy(port)
        assert storm.processes() == []
    finally:
        storm.clear()


@pytest.mark.parametrize(
    ("words", "module", "said"),
    [
        (["nightly"], NO_TORCH, "torch is not installed"),
        (["nightly"], BROKEN_TORCH, "torch does not start here: ImportError: libcudart.so.12"),
        (["plan", "--device", "cpu"], BROKEN_TORCH, "torch does not import here: libcudart.so.12"),
    ],
)
def test_a_torch_that_is_not_there_or_does_not_import_is_one_line(words, module, said, tmp_path):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "torch.py").write_text(module + "\n")
    done = call(*words, folder=tmp_path, PYTHONPATH=f"{tmp_path / 'modules'}{os.pathsep}{ROOT}")
    is_one_line(done, 2, said)
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["modules"]


def test_doctor_names_a_compiler_and_a_torch_that_are_missing(tmp_path):
    (tmp_path / "torch.py").write_text(BROKEN_TORCH + "\n")
    paths = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PATH": str(tmp_path)}
    found = call("doctor", folder=tmp_path, PYTHONDONTWRITEBYTECODE="1", **paths)
    assert found.returncode == 1, tell(found)
    assert found.stderr == ""
    missing = {line.split(maxsplit=1)[1] for line in found.stdout.splitlines() if line.startswith("missing")}
    assert any(line.startswith("torch ") and "libcudart.so.12" in line for line in missing)
    assert any(line.startswith("C++ compiler ") and "install g++" in line for line in missing)
    assert any(line.startswith("bytecode ") and "-m compileall" in line for line in missing)


NO_GPU = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU here")


@NO_GPU
def test_a_gpu_that_is_not_there_is_one_line_and_exit_code_2(tmp_path):
    for gpus in ("0", "all"):
        is_one_line(call("nightly", "--gpus", gpus, folder=tmp_path), 2, f"--gpus {gpus}: there is no GPU here")
    assert list(tmp_path.iterdir()) == []


@NO_GPU
@pytest.mark.slow
def test_without_a_gpu_a_plan_of_gpu_cells_measures_none_of_them(tmp_path):
    is_one_line(call("nightly", "--device", "cuda", "--start", "spawn", folder=tmp_path), 2, "use --device cpu")
    assert list(tmp_path.iterdir()) == []
    cells = [cell("ViTTinyForImageClassification", Config(backend="eager"), batch_size=size) for size in (1, 2, 3)]
    done = call("nightly", "--plan", write_plan(tmp_path, cells), "--start", "spawn", "--no-store", folder=tmp_path)
    assert done.returncode in (2, 4), tell(done)
    is_one_line(done, done.returncode)
    for path in (tmp_path / "runs").glob("*"):
        found = read_bundle(path)
        assert (found.planned, found.measurements) == (cells, [])


@pytest.mark.slow
def test_without_a_compiler_a_cell_fails_to_compile_and_says_so(tmp_path):
    ask = ("run", "--model", "ViTTiny*", "--config", "default", "--device", "cpu", "--samples", "5", "--no-store")
    done = call(*ask, folder=tmp_path, PATH=str(tmp_path))
    assert "Traceback" not in done.stdout + done.stderr, tell(done)
    (bundle,) = (tmp_path / "runs").iterdir()
    (found,) = read_bundle(bundle).measurements
    assert found.status == "fail_to_compile"
    assert "compiler" in str(found.failure).lower()


def _without_privileges():
    """Root obeys the modes of folders from its next program on."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDS, _MAY_WRITE_ANYWHERE)


RUN = ("run", "--model", "ViTTiny*", "--backend", "eager", "--device", "cpu", "--start", "spawn")


def test_a_folder_that_cannot_be_written_is_one_line_and_stays_as_it_was(tmp_path):
    shut = tmp_path / "shut"
    shut.mkdir()
    shut.chmod(0o500)
    command = [sys.executable, "-m", "jobs.cli", *RUN]
    environ = os.environ | played_host(tmp_path / "played")
    done = subprocess.run(
        command, cwd=shut, env=environ, capture_output=True, text=True, check=False, preexec_fn=_without_privileges
    )
    assert done.returncode in (2, 4), tell(done)
    is_one_line(done, done.returncode, "inductor-watch: ")
    assert "annot be written" in done.stderr or "Permission denied" in done.stderr, tell(done)
    assert list(shut.iterdir()) == []
