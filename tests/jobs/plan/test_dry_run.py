"""`nightly --dry-run` through the real command line, and the forecast it prints, from synthetic bundles."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from collector.bundle import BundleContents
from collector.vocabulary import Config
from jobs.commands.measuring import nightly_command
from jobs.plan.cost import read_history
from jobs.plan.dry_run import backtest, forecast, show
from jobs.plan.planning import Plan
from jobs.requested_options import ExecutionOptions
from tests.factories import DEFAULT, MAX_AUTOTUNE, at, cell, header, passing, write_bundle

MEASURED = Path(__file__).resolve().parents[3] / "data" / "releases"


def took(which, seconds, start_s=0.0, **details):
    return passing(which, started_at=at(start_s / 60), wall_s=seconds, details=details)


def run_of(items, workers=99):
    """A run with so many workers; with 99 it has too few cells to be compared with its prediction."""
    head = header("r", testbed={"device": "cuda", "workers": workers})
    return BundleContents(head, measurements=list(items))


def test_a_prediction_of_the_measured_nights_is_not_far_off():
    nights = [night for run in read_history(MEASURED) if (night := backtest(run))]
    assert nights
    # They are lower bounds: no night is faster, and none of these took much longer.
    assert all(0.95 <= took_s / predicted_s < 1.2 for took_s, predicted_s in nights)


PLAN = Plan([cell("a"), cell("a", MAX_AUTOTUNE), cell("b"), cell("b", MAX_AUTOTUNE)], ["c: needs timm, not installed"])
HISTORY = [run_of([took(cell("a"), 3600.0), took(cell("a", MAX_AUTOTUNE), 7200.0), took(cell("b"), 1800.0)])]


def told(*, history=HISTORY, gpus=1, **execution):
    found, text = forecast(PLAN, history, ExecutionOptions(**execution), gpus), io.StringIO()
    show(Console(file=text, width=200), found)
    return found.to_json(), text.getvalue()


def test_a_forecast_adds_up_what_the_cells_cost():
    found, text = told(budget_s=3600)
    assert (found["planned"], found["cells"], found["models"], found["configs"]) == (4, 4, 2, 2)
    assert found["left_out"] == ["c: needs timm, not installed"]
    assert found["hours"] == 1 + 2 + 0.5 + 1  # b tuned: as b untuned, times what tuning does to a
    assert list(found["worker_hours"]["config"].items()) == [(MAX_AUTOTUNE.name, 3.0), (DEFAULT.name, 1.5)]
    assert found["estimates"] == {"measured": 3, "derived": 1, "default": 0}
    assert "--max-hours: 2 of 4 cells would be started within 1.00 h" in text
    assert "lower bound: there is no measured night" in text


def test_measured_slack_makes_hours_longer_and_budgets_shorter():
    assert told(budget_s=3.2 * 3600)[0]["started"] == 3
    slow = run_of([took(cell(f"m{number}"), 10.0, 30 * number) for number in range(2)], workers=1)
    found, text = told(history=[*HISTORY, slow, slow], budget_s=3.2 * 3600)
    assert (found["hours"], found["started"], found["slack"], found["slack_from_nights"]) == (9.0, 2, 2.0, 2)
    assert "times 2.00, as in 2 measured nights" in text


def call(*words, folder):
    before = sorted(folder.rglob("*"))
    with contextlib.chdir(folder):
        done = CliRunner().invoke(nightly_command, ["--dry-run", *map(str, words)], catch_exceptions=False)
    assert sorted(folder.rglob("*")) == before, "a dry run writes nothing"
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_line_forecasts_a_gpu_night_where_no_gpu_is(tmp_path):
    cells = [
        cell(name, config, dtype="bfloat16", batch_size=16)
        for name in ("BertForMaskedLM", "T5Small")
        for config in (Config(template="triton"), Config(template="max_autotune"))
    ]
    items = [took(which, 50.0, 60 * number, held_s={"measure": 2.0}) for number, which in enumerate(cells)]
    write_bundle(tmp_path / "costs", header("gpu"), items)
    found = json.loads(call("--device", "cuda", "--workers", "5", "--costs", "costs", "--json", folder=tmp_path))
    assert found["planned"] > found["cells"] == sum(gpu["cells"] for gpu in found["gpus"]) > 100
    assert sum(found["estimates"].values()) == found["cells"]
    assert (found["estimates"]["default"], len(found["longest"])) == (0, 10)
