"""The benchmark of the dashboard takes every step on a small synthetic store."""

from __future__ import annotations

import re
import shutil

import pytest

from benchmarks import dashboard


@pytest.mark.slow
@pytest.mark.skipif(
    not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    reason="no chromium on this machine: apt-get install chromium",
)
def test_every_step_is_taken_and_told(monkeypatch, capsys, tmp_path):
    pytest.importorskip("playwright")
    small = ["--commits", "14", "--models", "12", "--configs", "9", "--rounds", "2"]
    monkeypatch.setattr("sys.argv", ["dashboard.py", "--db", str(tmp_path / "synthetic.db"), *small])
    dashboard.main()
    told = set(re.findall(r"^(\S.*?) +\d+ +\d+ +\d+ +\d+", capsys.readouterr().out, flags=re.MULTILINE))
    names = dashboard.Names(("a" * 40,) * 5, ("suite/model",), ("default",) * 9)
    assert {step.kind for step in dashboard.steps(names, 0)} | {"first content", "all interactions"} <= told
