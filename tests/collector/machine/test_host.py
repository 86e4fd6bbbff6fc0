"""Cores are shared out evenly, and a process keeps to those it was given."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from collector.machine.host import CORES_VARIABLE as VARIABLE
from collector.machine.host import LENT_CORES_VARIABLE as LENT_VARIABLE
from collector.machine.host import lent_cores, share_out, spell_cores

ASK = (
    "import os; from collector.machine.host import pin_to_cores; pin_to_cores(); print(sorted(os.sched_getaffinity(0)))"
)


def test_each_worker_gets_as_many_neighbours_and_each_has_one():
    assert share_out([0, 1, 2, 3], 2) == [[0, 1], [2, 3]]
    assert share_out([4, 7, 9], 2) == [[4], [7]]
    with pytest.raises(ValueError, match="3 workers need at least 3 cores, there are 2"):
        share_out([0, 1], 3)


@pytest.mark.parametrize("given", [True, False])
def test_a_process_keeps_to_its_cores(given):
    here = sorted(os.sched_getaffinity(0))
    environ = {**os.environ, VARIABLE: str(here[-1])} if given else {**os.environ, VARIABLE: ""}
    done = subprocess.run([sys.executable, "-c", ASK], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(here[-1:] if given else here)


def test_lent_cores_are_those_of_the_variable(monkeypatch):
    monkeypatch.delenv(LENT_VARIABLE, raising=False)
    assert lent_cores() == set()
    for name, value in spell_cores([3, 5], LENT_VARIABLE).items():
        monkeypatch.setenv(name, value)
    assert lent_cores() == {3, 5}
