"""`make gpu`: each file with tests for a GPU has a process of its own, and one that crashes stops no other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Stands for a Python: has a GPU or none, notes which files it is to test, and fails or crashes in two of them.
PYTHON = """#!/bin/sh
case "$1" in -c) exit {no_gpu};; esac
echo "$@" >> {notes}
case "$*" in *test_memory*) kill -SEGV $$;; *test_autotuning*) exit 1;; esac
"""


@pytest.fixture
def make(tmp_path):
    if not shutil.which("make"):
        pytest.skip("needs make")

    def run(no_gpu):
        program, notes = tmp_path / "python", tmp_path / "notes"
        program.write_text(PYTHON.format(no_gpu=no_gpu, notes=notes))
        program.chmod(0o755)
        command = ["make", "gpu", f"PYTHON={program}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done, notes.read_text().splitlines() if notes.exists() else []

    return run


def test_gpu_tests_run_file_by_file_and_all_are_reported(make):
    done, noted = make(no_gpu=0)
    marked = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py") if _is_marked(path)}
    assert {line.split()[-1] for line in noted} == marked
    assert len(noted) == len(marked) > 5
    assert all(line.startswith("-m pytest -m gpu tests/") for line in noted)
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines() if line.startswith("tests/"))
    assert told.keys() == marked
    failed = {path.rpartition("/")[2]: word for path, word in told.items() if word != "passed"}
    assert failed == {"test_memory.py": "FAILED with exit code 139", "test_autotuning.py": "FAILED with exit code 1"}
    assert done.returncode != 0


def test_without_a_gpu_nothing_counts_as_passed(make):
    done, noted = make(no_gpu=1)
    assert (noted, done.stdout) == ([], "no GPU here: nothing was run\n")
    assert done.returncode != 0


def _is_marked(path):
    return "mark." + "gpu" in path.read_text()
