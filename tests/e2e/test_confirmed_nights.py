"""A night that measures again what changed, before it is named: the real command line, cells that play their latencies."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from collector.bundle import CONFIRM, BundleWriter, read_bundle
from collector.vocabulary import Config
from db.engine import open_store
from db.ingest import ingest_bundle
from tests.command_line import call, tell
from tests.factories import cell
from tests.jobs.acting import played_host

TORCH, OTHER_TORCH = "f" * 40, "e" * 40
NIGHTS = 11
CELLS = [
    cell("BertForMaskedLM", Config(backend="eager"), batch_size=number, device="cpu", dtype="float32")
    for number in range(1, 7)
]
WORDS = ["--plan", "plan.json", "--start", "spawn", "--device", "cpu", "--branch", "main"]
#: Cell 1 is slower in every process, cell 2 in its first one.
SLOWER = {1: [5.5], 2: [5.5, 5.0]}


class Host:
    def __init__(self, folder, torch_git):
        self.folder, self.torch_git, self.calls = folder, torch_git, 0
        (folder / "plan.json").write_text(json.dumps({"cells": [one.to_json() for one in CELLS]}))

    def watch(self, *words, latencies):
        """Calls the command line; the processes of the call are the first ones of their cells."""
        self.calls += 1
        played = {one.batch_size: [5.0] for one in CELLS} | latencies
        variables = played_host(self.folder / f"played-{self.calls}", torch_git=self.torch_git)
        return call(*words, folder=self.folder, **variables, PLAY_SCRIPT="work:0.01", PLAY_LATENCIES=json.dumps(played))

    def bundles(self):
        """The bundles by night and trigger, in the order of their starts."""
        found = [read_bundle(path) for path in (self.folder / "runs").glob("*.gz")]
        return sorted(found, key=lambda one: one.header.started_at)

    def again(self):
        return [one for one in self.bundles() if one.header.trigger == CONFIRM]

    def verdicts(self):
        done = call("compare", "latest~1", "latest", "--json", folder=self.folder)
        assert done.returncode == 0, tell(done)
        return {one["batch_size"]: one["verdict"] for one in json.loads(done.stdout)["cells"]}


@pytest.fixture
def host(tmp_path, request):
    """A host with earlier nights, by the torch of tonight or, where a test asks for it, by another; the first is a real one."""
    host = Host(tmp_path, getattr(request, "param", TORCH))
    done = host.watch("nightly", *WORDS, "--no-store", latencies={})
    assert done.returncode == 0, tell(done)
    (first,) = host.bundles()
    random, store = np.random.default_rng(1), open_store(tmp_path / "inductor-watch.db", write=True)
    for night in range(NIGHTS):
        started = (datetime.now(UTC) - timedelta(days=NIGHTS - night)).isoformat(timespec="seconds")
        header = replace(first.header, run_id=f"night-{night:02}", started_at=started, commit=f"{night:040x}")
        writer = BundleWriter(tmp_path / "runs", header, first.planned)
        for environment_id, data in first.environments.items():
            writer.environment(environment_id, data)
        for item in first.measurements:
            metrics = {name: value * float(random.normal(1, 0.003)) for name, value in item.metrics.items()}
            writer.measurement(replace(item, metrics=metrics, started_at=started))
        ingest_bundle(store, writer.close(started))
    store.dispose()
    next((tmp_path / "runs").glob(f"{first.header.run_id}*")).unlink()
    host.torch_git = TORCH
    return host


def test_a_single_slow_process_is_no_change_once_measured_again(host):
    done = host.watch("nightly", *WORDS, latencies={2: SLOWER[2]})
    assert done.returncode == 0, tell(done)
    assert re.search(r"\d cells? to confirm against night-10, both sides\n", done.stdout), tell(done)
    assert re.search(r"confirmed \d cells? in 0.\d min, both sides\n", done.stdout), tell(done)
    again = defaultdict(set)
    for one in host.again():
        again[one.header.night].update(cell.batch_size for cell in one.planned)
    assert len(again) == 2 and "night-10" in again
    assert all(2 in cells for cells in again.values())
    assert host.verdicts()[2] not in ("regressed", "improved")


@pytest.mark.parametrize("host", [OTHER_TORCH], indirect=True)
def test_resume_confirms_the_new_side_of_a_night_that_was_cut_short(host):
    done = host.watch("nightly", *WORDS, "--max-hours", "0", latencies=SLOWER)
    late = "6 cells were not started in time: `inductor-watch resume --out runs` measures them"
    assert late in done.stdout and "confirm" not in done.stdout, tell(done)
    done = host.watch("resume", latencies=SLOWER)
    confirmed = re.compile(r"confirmed \d cells? in 0.\d min, new side only: base is another torch\n")
    assert confirmed.search(done.stdout), tell(done)
    again = host.again()
    # As if it had been killed before it confirmed anything.
    for one in again:
        next((host.folder / "runs").glob(f"{one.header.run_id}*")).unlink()
        assert call("db", "remove", one.header.run_id, "--yes", folder=host.folder).returncode == 0
    done = host.watch("resume", latencies={1: SLOWER[1]})
    assert "confirmed" in done.stdout, tell(done)
    assert [one.header.night for one in host.again()] == [again[0].header.night] * len(host.again())
    verdicts = host.verdicts()
    assert verdicts[1] == "regressed" != verdicts[2]
    # A later night that is told not to confirm is left alone by the next command, too.
    done = host.watch("nightly", *WORDS, "--no-confirm", latencies={3: SLOWER[1]})
    assert "confirm" not in done.stdout, tell(done)
    assert "nothing left to do" in host.watch("resume", latencies={}).stdout
    assert len(host.again()) == len(again)
