"""The bootstrap under a Python that is too old, and what make says of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Says that it is Python 3.10, then runs the script.
OLD = "import runpy, sys; sys.version_info, sys.version = (3, 10, 4), '3.10.4 (main)'; sys.argv = sys.argv[1:]; "
OLD += "runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.fixture
def old_python(tmp_path):
    """An executable that passes for Python 3.10."""
    path = tmp_path / "python3.10"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{OLD}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("target", ["setup", "lint"])
def test_make_stops_with_one_line_where_python_is_too_old(old_python, tmp_path, target):
    words = ["make", "-C", str(ROOT), target, f"PYTHON={old_python}", f"VENV={tmp_path / 'venv'}"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert ours == [
        "inductor-watch needs Python 3.11 or newer, this is 3.10.4:"
        " name another, e.g. make PYTHON=python3.12, or run this script with it"
    ]
    assert not (tmp_path / "venv").exists()
