"""`nightly --dry-run` through the real command line, and the forecast it prints, from synthetic bundles."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from collector.vocabulary import Config, Phase
from jobs.commands.nightly import command
from jobs.plan.backtest import Night, backtests
from jobs.plan.cost import CostModel, read_history
from jobs.plan.dry_run import forecast, show
from jobs.plan.planning import Plan
from jobs.pool.requested_options import ExecutionOptions
from tests.factories import CUDAGRAPHS, DEFAULT, MAX_AUTOTUNE, at, cell, header, night, passing, write_bundle


def took(which, seconds, **details):
    return passing(which, wall_s=seconds, details=details)


def call(*words, folder):
    before = sorted(folder.rglob("*"))
    with contextlib.chdir(folder):
        done = CliRunner().invoke(command, ["--dry-run", *map(str, words)], catch_exceptions=False)
    assert sorted(folder.rglob("*")) == before, "a dry run writes nothing"
    return done


def printed(found):
    text = io.StringIO()
    show(Console(file=text, width=200), found)
    return text.getvalue()


PLAN = Plan([cell("a"), cell("a", MAX_AUTOTUNE), cell("b"), cell("b", MAX_AUTOTUNE)], ["c: needs timm, not installed"])
MODEL = CostModel.learn([took(cell("a"), 3600.0), took(cell("a", MAX_AUTOTUNE), 7200.0), took(cell("b"), 1800.0)])


def test_a_forecast_adds_up_what_the_cells_cost():
    found = forecast(PLAN, MODEL, ExecutionOptions(workers=1)).to_json()
    assert (found["planned"], found["cells"], found["models"], found["configs"]) == (4, 4, 2, 2)
    assert found["left_out"] == ["c: needs timm, not installed"]
    assert found["hours"] == 1 + 2 + 0.5 + 1  # b tuned: as b untuned, times what tuning does to a
    assert found["worker_hours"]["config"] == {MAX_AUTOTUNE.name: 3.0, DEFAULT.name: 1.5}
    assert list(found["worker_hours"]["config"]) == [MAX_AUTOTUNE.name, DEFAULT.name]  # the largest first
    assert found["worker_hours"]["phase"] == {"inference": 4.5}
    assert found["worker_hours"]["suite"] == {"huggingface": 4.5}
    assert found["estimates"] == {"measured": 3, "derived": 1, "default": 0}
    assert [(row["worker_s"], row["source"]) for row in found["longest"]][:2] == [
        (7200, "measured"),
        (3600, "measured"),
    ]


def test_a_program_under_two_names_is_counted_once():
    found = forecast(PLAN, MODEL, ExecutionOptions(workers=1), identify=lambda config, device: "one")
    assert found.to_json()["hours"] == 1.5
    assert (found.to_json()["planned"], found.to_json()["cells"], found.sources()["measured"]) == (4, 2, 2)
    assert "4 cells, 2 models, 2 configs; 2 have the same program as another" in printed(found)


def test_measured_slack_makes_hours_longer_and_budgets_shorter():
    execution = ExecutionOptions(workers=1, budget_s=3.2 * 3600)
    assert forecast(PLAN, MODEL, execution).to_json()["started"] == 3
    found = forecast(PLAN, MODEL, execution, nights=[Night("r", 4, 1, 20.0, 10.0)] * 2).to_json()
    assert (found["hours"], found["started"], found["slack_from_nights"]) == (9.0, 2, 2)


def test_several_gpus_divide_the_models_and_the_longest_is_the_night():
    found = forecast(PLAN, MODEL, ExecutionOptions(workers=1), gpus=2).to_json()
    assert [(gpu["cells"], gpu["hours"]) for gpu in found["gpus"]] == [(2, 3.0), (2, 1.5)]
    assert found["hours"] == 3.0


def test_an_exclusive_night_takes_as_long_as_one_worker():
    alone, exclusive, shared = (
        forecast(PLAN, MODEL, execution).to_json()["gpus"][0]["hours"]
        for execution in (
            ExecutionOptions(workers=1),
            ExecutionOptions(workers=4, exclusive=True),
            ExecutionOptions(workers=4),
        )
    )
    assert alone == exclusive > shared


def test_what_limits_is_named_and_an_unknown_device_is_said_to_be_unknown():
    assert forecast(PLAN, MODEL, ExecutionOptions()).to_json()["gpus"][0]["device_limited_h"] is None
    text = printed(forecast(PLAN, MODEL, ExecutionOptions(workers=4)))
    assert "limited by the CPU (CPU 2.00 h, device not known)" in text
    held = CostModel.learn([took(item, 3600.0, held_s={"tune": 3000.0}) for item in PLAN.cells])
    text = printed(forecast(PLAN, held, ExecutionOptions(workers=4)))
    assert "GPU 0: 4 cells, 3.33 h with 4 workers, limited by the device (CPU 1.00 h, device 3.33 h)" in text
    together = printed(forecast(PLAN, held, ExecutionOptions(workers=4, tune_together=True)))
    assert "limited by the CPU (CPU 1.00 h, device 0.0 min)" in together


def test_people_read_what_dominates_in_order():
    text = printed(forecast(PLAN, MODEL, ExecutionOptions(workers=1, budget_s=3600)))
    assert "4 cells, 2 models, 2 configs" in text
    assert "left out: c: needs timm, not installed" in text
    assert "--max-hours: 2 of 4 cells would be started within 1.00 h" in text
    assert "lower bound: there is no measured night" in text
    assert text.index(f"\n {MAX_AUTOTUNE.name} ") < text.index(f"\n {DEFAULT.name} ")
    assert text.index("huggingface/a inference bfloat16 cuda bs8 max-autotune") < text.index("huggingface/b")


def test_names_with_brackets_are_no_markup():
    odd = replace(cell("m[red]"), config=Config(backend="[bold]"))
    text = printed(forecast(Plan([odd]), CostModel.learn([]), ExecutionOptions()))
    assert "m[red]" in text
    assert "backend=[bold]" in text


def test_the_history_gives_costs_and_slack(tmp_path):
    items = [took(cell(f"m{n}"), 10.0) for n in range(4)]
    sexecutiond = [replace(item, started_at=f"2026-08-01T00:0{n}:00+00:00") for n, item in enumerate(items)]
    write_bundle(tmp_path, header("r"), sexecutiond)
    nights = backtests(read_history(tmp_path))
    found = forecast(
        Plan([cell("m0"), cell("new", CUDAGRAPHS)]), CostModel.learn(items), ExecutionOptions(), nights=nights
    )
    assert (found.nights, found.slack) == (1, pytest.approx(190 / 40))
    assert found.sources() == {"measured": 1, "derived": 1, "default": 0}


def gpu_night(folder):
    """A night of one worker on a GPU: two models of the zoo, plain and tuned, ten seconds of gap after each cell."""
    cells = [
        cell(name, config, dtype="bfloat16", batch_size=16)
        for name in ("BertForMaskedLM", "T5Small")
        for config in (Config(template="triton"), Config(template="max_autotune"))
    ]
    items = [replace(took(which, 50.0, held_s={"measure": 2.0}), started_at=at(n)) for n, which in enumerate(cells)]
    write_bundle(folder, header("gpu"), items)


def test_the_command_line_forecasts_a_gpu_night_where_no_gpu_is(tmp_path):
    gpu_night(tmp_path / "costs")
    done = call("--device", "cuda", "--workers", "5", "--costs", "costs", "--json", folder=tmp_path)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["planned"] > found["cells"] == sum(gpu["cells"] for gpu in found["gpus"]) > 100
    assert found["hours"] > 0.1
    assert found["slack"] > 0.9
    assert found["slack_from_nights"] > 0
    assert sum(found["estimates"].values()) == found["cells"]
    assert found["estimates"]["measured"] > 0
    assert found["estimates"]["default"] == 0
    assert len(found["longest"]) == 10
    for axis in ("config", "phase", "suite"):
        hours = list(found["worker_hours"][axis].values())
        assert hours == sorted(hours, reverse=True)
        assert sum(hours) == pytest.approx(sum(found["worker_hours"]["config"].values()), abs=0.01)


def test_without_bundles_every_cell_costs_the_default(tmp_path):
    words = ("--device", "cpu", "--model", "ViTTinyForImageClassification", "--config", "triton", "--max-hours", "1")
    done = call(*words, folder=tmp_path)
    assert done.exit_code == 0, done.output
    assert "1 cells, 1 models, 1 configs" in done.output
    assert "1 by default (25 s)" in done.output
    assert "--max-hours: 1 of 1 cells" in done.output
    assert "CPU 0: 1 cells" in done.output


def test_it_learns_from_the_folder_for_bundles_and_keeps_to_a_plan_in_a_file(tmp_path):
    planned = replace(cell("ViTTinyForImageClassification", Config(template="triton")), device="cpu", dtype="float32")
    out = tmp_path / "runs"
    night(out, "one", cells=[planned], make=lambda which: took(which, 77.0))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"cells": [planned.to_json()], "left_out": []}))
    done = call("--plan", path, "--out", "runs", "--device", "cpu", "--json", folder=tmp_path)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert (found["cells"], found["longest"][0]["worker_s"]) == (1, 77.0)
    assert planned.phase is Phase.INFERENCE


def test_json_without_a_dry_run_is_refused():
    done = CliRunner().invoke(command, ["--json"])
    assert done.exit_code == 2
    assert "--dry-run" in done.output


def test_costs_that_are_no_bundles_are_refused_in_one_line(tmp_path):
    from collector.bundle import BundleError

    (tmp_path / "words.txt").write_text("words")
    (tmp_path / "empty").mkdir()
    words = ["--dry-run", "--device", "cpu", "--model", "ViTTiny*", "--config", "triton", "--costs"]
    for place, said in (("words.txt", "is not a bundle"), ("empty", "no bundle below")):
        with pytest.raises(BundleError, match=said) as caught:
            CliRunner().invoke(command, [*words, str(tmp_path / place)], catch_exceptions=False)
        assert "\n" not in str(caught.value)
    assert CliRunner().invoke(command, [*words, str(tmp_path / "nowhere")]).exit_code == 2
