"""`make gpu`: each file with tests for a GPU has a pytest of its own, one that crashes stops no other, and none is left."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collector.processes import dead, wait_until

ROOT = Path(__file__).parents[1]
#: Stands for torch.
TORCH = "class cuda:\n    is_available = staticmethod(lambda: {has_gpu})\n"
MARK = "@pytest.mark." + "gpu\n"
FILES = {
    "test_crashes.py": f"import os, pytest\n{MARK}def test_it():\n    os.kill(os.getpid(), 11)\n",
    "test_fails.py": f"import pytest\n{MARK}def test_it():\n    assert False\n{MARK}def test_other():\n    pass\n",
    "test_passes.py": f"import pytest\n{MARK}def test_it():\n    pass\n{MARK}def test_known():\n    pytest.xfail('torch')\n"
    f"{MARK}def test_skipped():\n    pytest.skip('no reason')\n",
    "test_unmarked.py": "def test_it():\n    assert False\n",
}


@pytest.fixture
def place(tmp_path):
    """A repository with a torch that has a GPU, and no tests yet."""
    if not shutil.which("make"):
        pytest.skip("needs make")
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "tests").mkdir()
    (tmp_path / "torch.py").write_text(TORCH.format(has_gpu=True))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider\nmarkers = gpu\n")
    return tmp_path


def command(*options):
    return ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "gpu", f"PYTHON={sys.executable}", *options]


def test_gpu_tests_run_file_by_file_and_all_are_reported(place):
    for name, text in FILES.items():
        (place / "tests" / name).write_text(text)
    done = subprocess.run(command(), cwd=place, capture_output=True, text=True, check=False)
    assert re.sub(r"\d+ s\b", "N s", done.stdout).splitlines()[-5:] == [
        "",
        "tests/test_crashes.py: FAILED with exit code 139 in N s (0 tests passed)",
        "tests/test_fails.py: FAILED with exit code 1 in N s (1 test passed, 1 failed)",
        "tests/test_passes.py: passed in N s (1 test passed, 1 expected to fail, 1 skipped)",
        "in all: 2 tests passed, 1 failed, 1 expected to fail, 1 skipped in 3 files, N s",
    ]
    assert done.returncode != 0
    # Without a GPU nothing counts as passed.
    (place / "torch.py").write_text(TORCH.format(has_gpu=False))
    done = subprocess.run(command(), cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode != 0, done.stdout) == (True, "no GPU here: nothing was run\n")


#: Waits for a program that its fixture has started.
HANGS = f"""import os, pathlib, pytest, subprocess, sys
@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path("pids").write_text(f"{{os.getpid()}} {{process.pid}} ")
    yield process
    pathlib.Path("ended").touch()
{MARK}def test_it(child):
    child.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_make_is_ended(place, number):
    (place / "tests" / "test_hangs.py").write_text(HANGS)
    with subprocess.Popen(command(), cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as make:
        pids = place / "pids"
        wait_until(lambda: pids.exists() and pids.read_text().endswith(" "), 60)
        os.kill(make.pid, number)
    wait_until(lambda: all(dead(int(pid)) for pid in pids.read_text().split()), 30)
    assert (place / "ended").exists()
