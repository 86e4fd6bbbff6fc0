"""The tests see an environment of the suite's own, whatever the machine is set up to."""

from __future__ import annotations

import importlib.util
import locale
import os
import time
from pathlib import Path

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
