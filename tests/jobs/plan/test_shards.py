"""The order of cells, and shards of a night."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.bundle import read_bundle
from collector.usage_errors import ConfigError
from db.engine import open_store
from db.nights import list_nights
from db.queries.side_rows import side_rows
from db.queries.sides import resolve_side
from jobs.cli import app
from jobs.plan.cost import CostModel
from jobs.plan.planning import Plan, read_plan
from jobs.plan.shards import cut, group_of, longest_first, predict, shares, write_plans
from tests.factories import CONFIGS, CUDAGRAPHS, DEFAULT, cell, header, night, passing, write_bundle

SECONDS = st.lists(st.integers(0, 300), min_size=1, max_size=25)


def planned(seconds, device="cpu"):
    """Cells of one model each that take these seconds, and a model that knows it."""
    cells = [cell(f"m{number:03}", device=device) for number in range(len(seconds))]
    items = [passing(which, wall_s=float(took), details={}) for which, took in zip(cells, seconds, strict=True)]
    return cells, CostModel.learn(items)


def names(cells):
    return [int(item.model[1:]) for item in cells]


def test_a_budget_that_is_hardly_met_keeps_the_plans_own_order():
    cells, model = planned([5, 20, 15])
    assert predict(cells, model, 1).total_s == 40
    for budget_s, order in ((47, [0, 1, 2]), (48, [1, 0, 2]), (10, [0, 1, 2])):
        assert names(longest_first(cells, model, 1, budget_s)) == order


@pytest.mark.parametrize(("device", "first"), [("cuda", 1), ("cpu", 0)])
def test_who_tunes_for_others_goes_before_a_longer_cell(device, first):
    cells, model = planned([150, 100, 5], device)
    cells.append(replace(cells[1], config=CUDAGRAPHS))  # it takes the choices of its model's first cell, on a GPU alone
    assert longest_first(cells, model, 1)[0] == cells[first]


@given(SECONDS, st.integers(1, 6), st.randoms())
@settings(max_examples=20, deadline=None)
def test_shares_divide_the_plan_by_groups_in_its_order(seconds, gpus, rng):
    cells, model = planned(seconds)
    cells += [cell(item.model, CUDAGRAPHS, device="cpu") for item in cells]
    rng.shuffle(cells)
    found = shares(cells, model, gpus)
    assert len(found) == gpus
    at = {item.cell_id: gpu for gpu, part in enumerate(found) for item in part}
    assert sum(map(len, found)) == len(at) == len(cells)
    for part in found:
        assert part == [item for item in cells if item in part]
    for item in cells:
        assert at[item.cell_id] == at[cell(item.model, DEFAULT, device="cpu").cell_id]


def test_groups_stay_where_they_were_unless_that_takes_longer():
    cells, model = planned([10, 10, 10, 10])
    kept = {group_of(cells[0]): 1, group_of(cells[1]): 0, group_of(cells[2]): 1}
    assert [names(part) for part in shares(cells, model, 2, kept)] == [[1, 3], [0, 2]]
    crowded = dict.fromkeys(map(group_of, cells), 1)
    assert [len(part) for part in shares(cells, model, 2, crowded)] == [2, 2]
    # GPUs that are gone and a model that is not planned are passed over.
    gone = {group_of(cells[0]): 7, group_of(cells[1]): -1, ("none", "none", "inference"): 0}
    assert shares(cells, model, 2, gone) == shares(cells, model, 2)


MODELS = [f"m{number:02}" for number in range(12)]
PLAN = Plan([cell(model, config) for config in CONFIGS for model in MODELS], ["x: needs timm, not installed"])


#: Every cell of a model takes ten seconds longer than those of the model before.
UNEVEN = CostModel.learn(passing(item, wall_s=10.0 * (1 + MODELS.index(item.model)), details={}) for item in PLAN.cells)


def test_a_night_whose_name_is_no_files_is_refused_and_not_written(tmp_path):
    for name in ("", "a/b", "..", ".hidden", "a\nb", "x" * 300):
        with pytest.raises(ConfigError, match="cannot name a file"):
            write_plans(tmp_path / "plan", name, PLAN, [])
    assert not (tmp_path / "plan").exists()


def call(*words, **environ):
    blank = {"GITHUB_OUTPUT": None, "GITHUB_RUN_ID": None, "GITHUB_RUN_ATTEMPT": None, "INDUCTOR_WATCH_NIGHT": None}
    return CliRunner(env={**blank, **environ}).invoke(app, [str(word) for word in words])


MODEL_WORDS = ("--model", "ViTTinyForImageClassification", "--model", "T5Small")
SMALL = ("plan", "--device", "cpu", *MODEL_WORDS, "--config", "triton")


def test_the_command_line_writes_plans_that_a_night_can_measure(tmp_path):
    output, folder = tmp_path / "output", tmp_path / "plan"
    output.write_text("before=1\n")
    folder.mkdir()
    (folder / "shard-09.json").write_text("of a night with more shards")
    words = (*SMALL, "--config", "freezing", "--shards", 2, "--github-output", "--out", folder)
    done = call(*words, GITHUB_OUTPUT=str(output), GITHUB_RUN_ID="5")
    assert done.exit_code == 0, done.output
    told = dict(line.split("=", 1) for line in output.read_text().splitlines())
    jobs = json.loads(told.pop("matrix"))["include"]
    assert told == {"before": "1", "shards": "2", "cells": "4", "night": "actions-5-1"}
    assert [job["shard"] for job in jobs] == ["01", "02"]
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "shard-01.json", "shard-02.json"]
    whole, *parts = (read_plan(folder / name, "cpu") for name in ("plan.json", *(job["plan"] for job in jobs)))
    assert {plan.night for plan in (whole, *parts)} == {"actions-5-1"}
    assert Counter(item for part in parts for item in part.cells) == Counter(set(whole.cells))
    assert len(whole.cells) == 4


@pytest.fixture
def merge(tmp_path):
    """Merges the bundles that arrived of night n-1; returns how that ended, the night, and the rows of its cells."""
    database = tmp_path / "w.db"

    def ingest():
        done = call("ingest", tmp_path / "runs", "--plan", tmp_path / "plan" / "plan.json", "--db", database)
        store = open_store(database, write=False)
        (found, *_) = list_nights(store)
        return done, found, None if done.exit_code else side_rows(store, resolve_side(store, "n-1"))

    return ingest


def test_a_shard_that_never_arrived_is_missing_until_it_does(tmp_path, merge):
    shards = cut(PLAN, UNEVEN, 3)
    costs = [shard.worker_s for shard in shards]
    assert max(costs) <= 1.05 * min(costs)
    write_plans(tmp_path / "plan", "n-1", PLAN, shards)

    def arrive(number, minutes):
        made = [passing(item, minutes=minutes + 1) for item in shards[number].cells]
        head = header(f"run-{number}", minutes=minutes, night="n-1", trigger="nightly")
        write_bundle(tmp_path / "runs", head, made)

    night(tmp_path / "runs", "another")
    done, _, _ = merge()
    assert (done.exit_code, "no shard of night n-1 arrived" in done.output) == (3, True)
    arrive(0, 0)
    arrive(2, 2)
    done, found, rows = merge()
    lost = len(shards[1].cells)
    assert f"night n-1: 2 runs of 36 planned cells; {lost} cells never arrived and count as missing" in done.output
    assert (len(found.runs), found.missing, found.statuses) == (3, lost, {"pass": 36 - lost})
    assert set(rows[rows["status"].isna()]["model"]) == {item.model for item in shards[1].cells}
    assert found.place == "Synthetic GPU and never arrived"
    absent = tmp_path / "runs" / "n-1-absent.jsonl.gz"
    kept, before = read_bundle(absent), absent.read_bytes()
    assert (kept.header.night, kept.header.commit, kept.measurements) == ("n-1", "a1" * 20, [])
    assert [item.cell_id for item in kept.planned] == [item.cell_id for item in shards[1].cells]
    assert "n-1-absent: 0 new, 0 updated, 0 unchanged" in merge()[0].output
    assert absent.read_bytes() == before
    arrive(1, 90)
    done, found, rows = merge()
    assert "night n-1: 3 runs of 36 planned cells, all of them taken on" in done.output
    assert (len(found.runs), found.missing) == (3, 0)
    assert rows["status"].eq("pass").all()
    assert not absent.exists()


def test_a_plan_without_a_night_and_outputs_without_a_plan_are_refused(tmp_path):
    place = tmp_path / "plan.json"
    place.write_text(json.dumps({"cells": []}))
    words = ("ingest", night(tmp_path / "runs", "one"), "--db", tmp_path / "w.db")
    assert "names no night" in str(call(*words, "--plan", place).exception)
    assert call(*words, "--github-output").exit_code == 2
    assert not (tmp_path / "w.db").exists()


def test_a_nightly_has_the_name_that_it_is_told_or_that_of_its_plan(tmp_path, measured):
    written = call(*SMALL, "--shards", 1, "--night", "planned", "--out", tmp_path)
    assert written.exit_code == 0, written.output
    plan = tmp_path / "shard-01.json"
    shard = ("nightly", "--device", "cpu", "--no-store", "--out", tmp_path / "runs", "--plan", plan)
    for words, environ in [((), {}), (("--night", "told"), {}), ((), {"INDUCTOR_WATCH_NIGHT": "everywhere"})]:
        assert call(*shard, *words, **environ).exit_code == 0
    assert [names.night for _, names, _ in measured] == ["planned", "told", "everywhere"]
    assert isinstance(call(*shard, "--night", "a/b").exception, ConfigError)
    assert len(measured) == 3
