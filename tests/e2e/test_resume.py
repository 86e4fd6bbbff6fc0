"""A night that is killed at any point goes on and ends with each planned cell once: real processes, real kills."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Cell, Config, Status
from tests.e2e.killing import KINDS, Storm
from tests.factories import cell
from tests.jobs.acting import CORES, played_host
from tests.jobs.pool.test_device_slots import TWO, play_driver
from tests.jobs.pool.test_testbeds import FACTS

#: Cheap to measure: nothing is compiled.
EAGER = [
    cell("ViTTinyForImageClassification", Config(backend="eager"), dtype="float32", device="cpu", batch_size=size)
    for size in range(1, 7)
]


def check_whole(path):
    """Each planned cell once, in a closed and undamaged file; returns what was measured."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    named = Counter(Cell.from_json(line["cell"]).cell_id for line in lines if line["record"] == "measurement")
    found = read_bundle(path)
    assert named == {cell.cell_id: 1 for cell in found.planned}, path
    assert (found.damage, found.finished_at is not None) == ([], True)
    return found


def survive(tmp_path, cells, kills, seed, longest_s, words=(), **environ):
    """Nights under kills: each of them, be it one bundle or several, has measured each cell once when all is over."""
    storm = Storm(tmp_path, cells, seed, longest_s, words, **environ)
    try:
        storm.rage(kills, amid_cells=bool(environ))
        storm.finish()
    finally:
        storm.clear()
    paths = sorted(storm.runs.glob("*.jsonl*"))
    assert [path for path in paths if path.name.endswith((".jsonl", ".gz.partial"))] == [], storm.log()
    found = [check_whole(path) for path in paths if path.suffix == ".gz"]
    statuses = Counter(item.status for run in found for item in run.measurements)
    assert storm.kills.total() == kills
    # A night that was killed before it had a plan has measured nothing; all that announced themselves are there.
    announced = {line.split()[1].strip(":,") for line in storm.log().splitlines() if line.startswith("run ")}
    assert announced <= {run.header.run_id for run in found}
    assert set(statuses) <= {Status.PASS, Status.CRASHED}
    return storm, found, statuses


#: What every cell of a played night does.
SCRIPT = "work:0.2,device:0.05,tune:0.05*2,measure:0.05,work:0.1"


@pytest.mark.parametrize("gpus", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_night_that_is_killed_goes_on_where_it_was(gpus, tmp_path):
    models = ["BertForMaskedLM", "GPT2ForSequenceClassification", "T5Small"]
    cells = [cell(models[number % 3], Config(backend="eager"), batch_size=number) for number in range(1, 9)]
    (tmp_path / "bin").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        play_driver(tmp_path / "bin", patch, TWO)
        played = played_host(tmp_path / "played", **FACTS) | {"PATH": os.environ["PATH"], "PLAY_SCRIPT": SCRIPT}
    played |= {"CUDA_VISIBLE_DEVICES": "0,1"}
    words = ["--start", "spawn", "--workers", str(min(2 // gpus, len(CORES))), "--gpus", "all" if gpus == 2 else "0"]
    storm, found, statuses = survive(tmp_path, cells, kills=3, seed=8, longest_s=1, words=words, **played)
    nights = {}
    for run in found:
        nights.setdefault(run.header.night or run.header.run_id, []).extend(run.planned)
    assert len(found) == gpus * len(nights)
    for planned in nights.values():
        assert sorted(cell.batch_size for cell in planned) == list(range(1, 9))
    assert max(run.attempt for run in found) > 1
    assert set(storm.kills) == set(KINDS)
    assert statuses[Status.PASS] > statuses[Status.CRASHED]
    assert statuses[Status.CRASHED] <= storm.kills["worker"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_kills_at_random_points_lose_and_double_nothing(tmp_path):
    storm, found, statuses = survive(tmp_path, EAGER, kills=50, seed=1, longest_s=16)
    for run in found:
        assert run.planned == EAGER
    assert min(storm.kills.values()) >= 10, storm.kills
    assert max(run.attempt for run in found) > 3
    # A killed cell is a recorded outcome, the kill of a runner or a host is none. Most kills meet the fork server while it
    # imports, so that none may hit a cell: that is what the played nights above are for.
    assert statuses[Status.CRASHED] <= 2 * storm.kills["worker"]
