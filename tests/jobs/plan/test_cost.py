"""What a cell costs, from synthetic bundles with round numbers and from the measured ones."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collector.usage_errors import BundleError
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.plan.cost import (
    DEFAULT_WORKER_S,
    NEWEST,
    Cost,
    CostModel,
    Estimates,
    Source,
    learn_from,
    read_history,
    shipped_costs,
)
from jobs.plan.schedule import longest_first
from tests.factories import CUDAGRAPHS, DEFAULT, MAX_AUTOTUNE, cell, failing, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[3]
MEASURED = ROOT / "data" / "releases"
HELD = {"measure": 2.0, "tune": 10.0, "device": 3.0}


def took(which, seconds, **details):
    return passing(which, wall_s=seconds, details=details)


def test_a_cell_costs_its_time_less_what_it_waited_and_what_it_held():
    sizes = {"load_model": 3_000_000_000, "eager": 2_000_000_000, "correctness": 9_000_000_000}
    item = took(cell(), 40.0, waited_s=15.0, stood_s=5.0, held_s=HELD, stage_bytes=sizes)
    expected = Cost(25.0, 15.0, Source.MEASURED, 12.0, 3_000_000_000, 2_000_000_000, check_bytes=9_000_000_000)
    assert CostModel.learn([item]).estimate(cell()) == expected


@pytest.mark.parametrize(
    ("items", "seconds"),
    [
        ([took(cell(), 4.0, waited_s=9.0)], 0.0),  # no negative cost
        ([failing(cell(), Status.UNAVAILABLE, wall_s=0.5), took(cell(), 30.0)], 30.0),  # it was measured after all
        ([failing(cell(), Status.FAIL_TO_COMPILE, wall_s=70.0)], 70.0),  # what it took to fail
        ([], DEFAULT_WORKER_S),
    ],
)
def test_a_cell_costs_what_it_took(items, seconds):
    assert CostModel.learn(items).estimate(cell()).worker_s == seconds


def test_what_a_bundle_does_not_tell_is_none():
    found = CostModel.learn([took(cell(), 40.0)]).estimate(cell())
    assert (found.worker_s, found.device_s, found.alone_s) == (40.0, None, None)
    assert (found.load_bytes, found.eager_bytes) == (None, 2_000_000_000)  # the peak of its eager calls
    assert CostModel.learn([]).estimate(cell()) == Cost(DEFAULT_WORKER_S, None, Source.DEFAULT)
    # To hold the device for nothing is not the same as not to know.
    assert CostModel.learn([took(cell(), 4.0, held_s={})]).estimate(cell()).device_s == 0.0


@pytest.mark.parametrize("odd", ["long", None, True, [1], {"a": 1}])
def test_odd_details_of_a_foreign_bundle_are_passed_over(odd):
    found = CostModel.learn([took(cell(), 40.0, waited_s=odd, held_s=odd, stage_bytes=odd)]).estimate(cell())
    assert found.worker_s == 40.0
    assert found.device_s in (None, 1.0)


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.SKIPPED, Status.CONFIG_ERROR])
def test_a_cell_that_could_not_be_asked_is_cheap_itself_and_says_nothing_of_others(status):
    model = CostModel.learn([failing(cell("a"), status, wall_s=0.5), took(cell("b", CUDAGRAPHS), 30.0)])
    assert model.estimate(cell("a")) == Cost(0.5, 0.0, Source.MEASURED, 0.0, 0, 0, 0, 0)
    assert (model.estimate(cell("c")).worker_s, model.estimate(cell("c")).source) == (30.0, Source.PHASE)


def test_the_memory_of_other_models_says_nothing_and_of_other_configs_all():
    sizes = {"load_model": 500, "eager": 800}
    model = CostModel.learn([took(cell("a"), 9.0, stage_bytes=sizes)])
    found = model.estimate(cell("a", CUDAGRAPHS))
    assert (found.load_bytes, found.eager_bytes) == (500, 800)
    assert model.estimate(cell("b")).load_bytes is None
    # Older bundles have the peak alone.
    older = CostModel.learn([passing(cell(), metrics={"eager_peak_bytes": 700.0})]).estimate(cell())
    assert (older.load_bytes, older.eager_bytes) == (None, 700)


def test_what_no_run_has_told_is_as_it_was_when_this_version_was_made():
    shipped = CostModel.learn([took(cell("a"), 90.0, stage_bytes={"load_model": 500, "eager": 800})])
    model = CostModel.learn([took(cell("b"), 10.0), took(cell("a", CUDAGRAPHS), 20.0)], shipped)
    known = model.estimate(cell("a", CUDAGRAPHS))
    assert (known.worker_s, known.load_bytes, known.eager_bytes) == (20.0, 500, 2_000_000_000)
    other = model.estimate(cell("b"))
    assert (other.worker_s, other.load_bytes) == (10.0, None)
    alone = CostModel.learn([took(cell("b"), 10.0)], shipped).estimate(cell("a"))
    assert (alone.worker_s, alone.source, alone.eager_bytes) == (90.0, Source.MEASURED, 800)


def test_a_night_without_history_knows_the_memory_of_its_largest_models():
    model = CostModel.of_history([])
    which = replace(cell("gpt-oss-20b-4layers.decode"), suite="llm", dtype="bfloat16", batch_size=8)
    assert 1e9 < model.estimate(which).load_bytes < 80e9
    assert model.estimate(replace(which, device="cpu")).load_bytes is None


def test_the_shipped_costs_are_of_one_gpu_and_plausible():
    rows = json.loads((ROOT / "jobs" / "plan" / "first_costs.json").read_text())
    cells = [Cell.from_json(row["cell"]) for row in rows]
    assert len({cell.cell_id for cell in cells}) == len(cells) > 30
    assert {cell.device for cell in cells} == {"cuda"}
    for row, which in zip(rows, cells, strict=True):
        assert 1 <= row["worker_s"] < 600
        assert 0 < row["stage_bytes"]["eager"] < 80e9
        found = shipped_costs().estimate(which)
        assert (found.worker_s, found.source) == (row["worker_s"], Source.MEASURED)
        assert found.eager_bytes > 0
    assert shipped_costs() is shipped_costs()


def test_shipped_costs_make_a_first_night_start_with_its_longest_cells():
    rows = json.loads((ROOT / "jobs" / "plan" / "first_costs.json").read_text())
    longest = max(rows, key=lambda row: row["worker_s"])
    cells = [Cell.from_json(row["cell"]) for row in rows]
    ordered = longest_first(cells, CostModel.of_history([]), 15)
    assert CostModel.of_history([]).estimate(ordered[0]).worker_s == longest["worker_s"]


def test_a_folders_history_is_its_newest_bundles(tmp_path):
    for number in range(NEWEST + 2):
        head = header(f"r{number:02}", minutes=-number)  # the later the name, the older
        write_bundle(tmp_path / "deep" / str(number), head, [took(cell(f"m{number}"), 5.0)], closed=number % 2 == 0)
    (tmp_path / "broken.jsonl").write_text("no bundle\n")
    (tmp_path / "half.jsonl.gz.partial").write_bytes(b"\x1f\x8b")
    found = [contents.header.run_id for contents in read_history(tmp_path)]
    assert found == [f"r{number:02}" for number in range(NEWEST)]
    assert learn_from(tmp_path).estimate(cell("m0")).source is Source.MEASURED
    assert learn_from(tmp_path).estimate(cell(f"m{NEWEST}")).source is Source.CONFIG


def test_one_bundle_is_a_history_and_no_place_is_an_empty_one(tmp_path):
    path = write_bundle(tmp_path, header("one"), [took(cell(), 5.0)])
    assert learn_from(path).estimate(cell()).worker_s == 5.0
    assert read_history(tmp_path / "nowhere") == []
    (tmp_path / "plain.txt").write_text("words\n")
    with pytest.raises(BundleError, match="is not a bundle"):
        learn_from(tmp_path / "plain.txt")


def test_the_measured_bundles_are_learned_from_completely():
    history = read_history(MEASURED)
    model = CostModel.learn(item for contents in history for item in contents.measurements)
    cells = [item.cell for contents in history for item in contents.measurements]
    assert cells
    assert {model.estimate(item).source for item in cells} == {Source.MEASURED}


def test_costs_and_schedules_need_no_torch_and_no_command_line():
    code = "import jobs.plan.cost, jobs.plan.schedule, sys; print([n for n in ('torch', 'click', 'rich') if n in sys.modules])"
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout.strip() == "[]"


# --- from the cell itself to what is further away

TRAINING = Phase.TRAINING


def test_a_measured_cell_is_its_own_median():
    found = Estimates([(cell(), value) for value in (10.0, 90.0, 12.0)])
    assert found.estimate(cell()) == (12.0, Source.MEASURED)


def test_the_same_config_in_another_size_comes_before_another_config():
    found = Estimates([(replace(cell(), batch_size=64), 10.0), (cell(config=CUDAGRAPHS), 99.0)])
    assert found.estimate(cell()) == (10.0, Source.MODEL)


def test_another_config_is_scaled_by_the_models_that_have_both():
    values = [
        (cell("a", DEFAULT), 10.0),
        (cell("a", MAX_AUTOTUNE), 40.0),
        (cell("b", DEFAULT), 20.0),
        (cell("b", MAX_AUTOTUNE), 80.0),
        (cell("only tuned", MAX_AUTOTUNE), 1000.0),  # no part of the ratio: it lacks the other config
        (cell("new", DEFAULT), 7.0),
    ]
    assert Estimates(values).estimate(cell("new", MAX_AUTOTUNE)) == (28.0, Source.MODEL)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (cell("new", DEFAULT), (11.0, Source.CONFIG)),
        (cell("new", Config(template="tma")), (12.0, Source.PHASE)),
        (cell("a", Config(template="tma")), (12.0, Source.PHASE)),
        (cell("new", DEFAULT, phase=TRAINING), (12.0, Source.OVERALL)),
        (cell("new", DEFAULT, device="cpu"), None),
    ],
)
def test_without_the_model_it_is_the_config_then_the_phase_then_the_device(asked, answer):
    values = [(cell("a", DEFAULT), 10.0), (cell("b", DEFAULT), 12.0), (cell("c", CUDAGRAPHS), 50.0)]
    assert Estimates(values).estimate(asked) == answer


def test_nothing_measured_is_no_estimate_and_zeros_give_no_ratio():
    assert Estimates([]).estimate(cell()) is None
    values = [(cell("a", DEFAULT), 0.0), (cell("a", CUDAGRAPHS), 5.0), (cell("b", DEFAULT), 0.0)]
    assert Estimates(values).estimate(cell("b", CUDAGRAPHS)) == (5.0, Source.CONFIG)


def test_the_order_of_the_measurements_does_not_matter():
    rng = random.Random(0)
    configs = (DEFAULT, CUDAGRAPHS, MAX_AUTOTUNE)
    values = [
        (cell(f"m{n}", config), rng.uniform(5, 200)) for n in range(9) for config in configs if rng.random() < 0.7
    ]
    asked = [cell(f"m{n}", config) for n in range(12) for config in configs]
    answers = [Estimates(values).estimate(item) for item in asked]
    for _ in range(5):
        rng.shuffle(values)
        assert [Estimates(values).estimate(item) for item in asked] == answers
