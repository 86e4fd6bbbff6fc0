"""Which cells of a night are carried over without being compiled."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from collector.bundle import CENSUS
from collector.census.gpu_models import CensusError
from collector.code import known_by
from collector.machine.toolchain import SKIP_VARIABLE
from collector.masking import ENV
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Status
from jobs.census import census_runs as module
from jobs.census.census_runs import unchanged_cells
from jobs.plan.spared_cells import Known
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions
from tests.factories import cell, passing

CELLS = [cell(f"model{number}") for number in range(12)]
SETTINGS = Settings()
H200 = {"device": "cuda", "gpu": "NVIDIA H200", "torch": "2.13"}
TESTBED = Testbed(DeviceSlot([[0]]), H200, ExecutionOptions(start="spawn"))


def known(says_same, **environment):
    """By cell_id what an earlier night measured in this environment, or in another one."""
    used = TESTBED.environment | SETTINGS.testbed() | environment
    found = {}
    for one in CELLS:
        before = passing(one, code_id=f"code of {one.model}")
        code = known_by(before.code_id, before.program_id, used)
        found[one.cell_id] = Known("n1", code, before, {"option": 1}, says_same)
    return found


@pytest.fixture
def census(monkeypatch):
    """Plays the census: these models have other code, those are not known, or it cannot be taken."""
    asked: list[str] = []

    def play(other=(), unknown=(), fails=""):
        class Played(nullcontext):
            def __init__(self, place, settings):
                super().__init__(self)
                self.place = place

            def generate(self, cells, answers):
                assert self.place.device_name == "H200"
                for one in cells:
                    asked.append(one.model)
                    if fails:
                        raise CensusError(fails)
                    code_id = f"code of {one.model}" + " changed" * (one.model in other)
                    facts = {CENSUS: {"known": one.model not in unknown}}
                    yield Outcome(passing(one, status=Status.NOT_CHECKED, code_id=code_id, details=facts))

        monkeypatch.setattr(module, "CensusPool", Played)
        return asked

    return play


def carried(found):
    return [outcome.measurement.cell.model for outcome in found]


def test_cells_of_the_same_code_are_carried_but_for_one_in_ten(census):
    asked = census(other=("model3",), unknown=("model4",))
    found = list(unchanged_cells(CELLS, known(says_same=False), TESTBED, SETTINGS))
    assert asked == [f"model{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11)]
    assert set(asked) - set(carried(found)) == {"model3", "model4"}


def test_cells_whose_server_found_a_compiler_are_carried():
    """It says so in the environment of each cell, and a run does not know before."""
    told = {f"{ENV}{SKIP_VARIABLE}": "1"}
    assert carried(unchanged_cells(CELLS, known(True, **told), TESTBED, SETTINGS)) == [one.model for one in CELLS]
    mine = replace(TESTBED, environment=TESTBED.environment | {f"{ENV}{SKIP_VARIABLE}": "0"})
    assert not list(unchanged_cells(CELLS, known(True, **told), mine, SETTINGS)), "the user says something else"


def test_a_census_that_cannot_be_taken_carries_nothing(census, capsys):
    census(fails="no C compiler")
    assert not list(unchanged_cells(CELLS, known(says_same=False), TESTBED, SETTINGS))
    assert "no census: no C compiler" in capsys.readouterr().err
