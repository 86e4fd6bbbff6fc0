"""A built wheel works outside a checkout: it has all files that the program reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.collector.processes import wait_until
from tests.command_line import ROOT, free_port, is_healthy

pytestmark = pytest.mark.slow

MODEL = """
import torch
from torch import nn


def small(batch_size):
    return nn.Sequential(nn.Linear(64, 64), nn.GELU()), (torch.randn(batch_size, 64),)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program of an environment that has the wheel and what it depends on, made from the files that git knows."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    made = tmp_path_factory.mktemp("wheel")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if not name.startswith(("tests/", "data/")) and (ROOT / name).exists():
            (made / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, made / "source" / name)
    uv, python = [sys.executable, "-m", "uv", "-q"], made / "venv" / "bin" / "python"
    subprocess.run([*uv, "build", "--wheel", "--no-build-isolation", "-o", made, made / "source"], check=True)
    (wheel,) = made.glob("inductor_watch-*.whl")
    subprocess.run([*uv, "venv", "--python", sys.executable, made / "venv"], check=True)
    subprocess.run([*uv, "pip", "install", "--no-deps", "--offline", "--python", python, wheel], check=True)
    (packages,) = (made / "venv" / "lib").glob("python*/site-packages")
    # Without the .pth files of that folder, of which one names the checkout.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = subprocess.run(
        [python, "-c", "import analysis; print(analysis.__file__)"], cwd=made, capture_output=True, text=True
    )
    assert where.stdout.startswith(str(packages)), where
    return python.with_name("inductor-watch")


@pytest.fixture
def call(program, tmp_path):
    """Call the program in a folder of its own; returns how that ended."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "INDUCTOR_WATCH"))}

    def called(*words, start=False):
        command = [program, *map(str, words)]
        if start:
            return subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL)
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    return called


def test_results_are_stored_compared_and_published(call, tmp_path):
    done = call("ingest", ROOT / "data" / "nights")
    assert done.returncode == 0, done.stderr
    assert "latency in 22 of 28 models" in call("compare", "latest~1", "latest").stdout
    assert call("publish", "site").returncode == 0
    assert (tmp_path / "site" / "index.html").exists()
    assert "<svg" in call("report", "latest~1", "latest", "--format", "html").stdout


def test_a_function_of_the_folder_is_measured(call, tmp_path):
    (tmp_path / "my_models.py").write_text(MODEL)
    done = call("run", "--model", "my_models:small", "--samples", 5, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "user/my_models:small inference float32 cpu bs1 default  pass" in done.stdout + done.stderr


def test_the_dashboard_starts(call):
    call("ingest", ROOT / "data" / "nights")
    port = free_port()
    server = call("dashboard", "--port", port, start=True)
    try:
        wait_until(lambda: is_healthy(port), 60)
    finally:
        server.terminate()
        server.wait(20)
