"""The benchmark of the dashboard on a small synthetic store: every step is taken, by one person and by two, without an error."""

from __future__ import annotations

import re
import shutil

import pytest

from benchmarks import dashboard
from benchmarks.dashboard_steps import Names, rounds, script

NAMES = Names(
    nights=tuple(f"night-{number}" for number in range(6)),
    commits=tuple(f"{number:040x}" for number in range(6)),
    models=tuple(f"suite/model{number}" for number in range(5)),
    configs=("aten", "default", "triton"),
    suites=("one", "two"),
)


def test_no_round_asks_what_the_one_before_asked():
    kinds = [step.kind for step in rounds(NAMES, 0)]
    assert kinds == [step.kind for step in rounds(NAMES, 1)]
    assert {kind.partition(":")[0] for kind in kinds} == {"overview", "compare", "model", "trends", "page"}
    asked = [tuple(wanted.contains for step in rounds(NAMES, number) for wanted in step.wanted) for number in (0, 1)]
    assert asked[0] != asked[1]
    assert len(list(script(NAMES, 0))) >= 6


@pytest.mark.slow
@pytest.mark.skipif(
    not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    reason="no chromium on this machine: apt-get install chromium",
)
def test_every_step_is_taken_and_told(monkeypatch, capsys, tmp_path):
    pytest.importorskip("playwright")
    small = ["--commits", "14", "--models", "12", "--configs", "4", "--rounds", "1", "--people", "2", "--cold", "1"]
    monkeypatch.setattr("sys.argv", ["dashboard.py", "--db", str(tmp_path / "synthetic.db"), *small])
    dashboard.main()
    said = capsys.readouterr().out
    assert "errors: 0" in said, said
    kinds = {step.kind for step in rounds(NAMES, 0)} | {"load: cold", "load: warm", "all interactions"}
    told = {line[:42].strip() for line in said.splitlines() if re.search(r"\d+ +\d+ +\d+ +\d+ ", line)}
    assert kinds <= told
    assert re.search(r"server memory at its peak: \d+ MB alone", said)
