"""The tests see an environment of the suite's own, whatever the machine is set up to."""

from __future__ import annotations

import importlib.util
import locale
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_nothing_of_the_users_settings_is_seen():
    assert [name for name in os.environ if name.startswith(("PYTHON", "GIT_", "PIP_", "UV_", "TORCH", "OMP_"))] == [
        name
        for name in os.environ
        if name
        in ("PYTHONDONTWRITEBYTECODE", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "PIP_CONFIG_FILE", "UV_NO_CONFIG")
    ]
    assert (time.tzname[0], locale.getencoding().lower(), os.umask(0o022)) == ("UTC", "utf-8", 0o022)
    (Path.home() / "mine").write_text("written")
    torch = importlib.util.find_spec("torch")
    assert torch is None or "site-packages" in str(torch.origin)


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_nor_on_a_machine_that_is_set_up_badly(workers):
    command = [sys.executable, "scripts/hostile.py", *workers, "-k", "users_settings", "tests/test_hermetic.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "somebody else was here" in done.stderr  # it was set up badly


def test_a_host_that_only_measures_runs_the_collectors_tests():
    missing = ("sqlalchemy", "hypothesis", "pytest_timeout", "xdist", "click", "rich", "pandas")
    files = ["tests/collector/test_bundle.py", "tests/collector/measure/test_timing.py"]
    words = [*files, "-rs", "-p", "no:cacheprovider"]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); import pytest; sys.exit(pytest.main({words}))"
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, 1 skipped" in done.stdout
    assert "sqlalchemy is not installed: pip install" in done.stdout
