"""What tests of jobs share."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner
from rich.console import Console

from jobs.cli import app
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.session import RunProgress
from jobs.pool.testbeds import Testbed
from tests.analysis.compare.test_cell_verdicts import MODELS, make_run
from tests.factories import failing, new_store
from tests.jobs.github_server import github_server


class Measured(list):
    """(plan, names, settings) of each run; `devices` are those that were asked for, `progress` is what all runs return."""

    def __init__(self):
        super().__init__()
        self.devices, self.progress = [], RunProgress(Console(quiet=True), 1)

    def measure(self, plan, testbeds, names, settings, *_):
        self.append((plan, names, settings))
        return ["run"], self.progress

    def find_testbeds(self, device, execution, serve, models=()):
        self.devices.append(device)
        environment = {"device": device or "cpu", "torch": "2.13.0", "torch_git": "a" * 40}
        return [Testbed(DeviceSlot([[0]]), environment, execution)]


@pytest.fixture
def measured(monkeypatch):
    """What the command line would measure, without a machine to measure on."""
    found = Measured()
    monkeypatch.setattr("jobs.commands.measuring.measure_and_store", found.measure)
    monkeypatch.setattr("jobs.commands.measuring.find_testbeds", found.find_testbeds)
    monkeypatch.setattr("jobs.commands.measuring.print_night", lambda *_: None)
    monkeypatch.setattr("jobs.commands.measuring._confirm", lambda *_, **__: None)
    return found


@pytest.fixture
def server():
    """A stand-in for GitHub."""
    with github_server() as found:
        yield found


@pytest.fixture(scope="session")
def nights_with_losses(tmp_path_factory):
    """A database of twelve quiet nights and one in which a model got slower and another broke. Use a copy."""
    folder = tmp_path_factory.mktemp("nights")
    store = new_store(folder / "store.db")
    for number in range(12):
        make_run(store, folder, number)
    make_run(store, folder, 12, slower={MODELS[4]: {"compiled_ms": 1.1}, MODELS[7]: failing})
    store.dispose()
    return folder / "store.db"


@pytest.fixture(scope="session")
def nights_with_records(nights_with_losses, tmp_path_factory):
    """The same with a record of each of the two losses, opened by ann. Use `recorded`."""
    path = shutil.copy(nights_with_losses, tmp_path_factory.mktemp("records") / "store.db")
    words = ["regressions", "open", "r11", "r12", "--db", str(path)]
    assert CliRunner(env={"INDUCTOR_WATCH_AUTHOR": "ann"}).invoke(app, words).exit_code == 0
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is copied is one file
    return path


@pytest.fixture
def recorded(nights_with_records, tmp_path):
    """A copy of them, to change."""
    return str(shutil.copy(nights_with_records, tmp_path / "recorded.db"))
