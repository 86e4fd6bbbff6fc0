"""What a cell costs, and the forecast of `nightly --dry-run`: from synthetic bundles and from the measured ones."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from collector.bundle import BundleContents
from collector.usage_errors import BundleError
from collector.vocabulary import Config
from jobs.commands.measuring import nightly_command
from jobs.plan.cost import NEWEST, Cost, CostModel, Source, learn_from, read_history
from jobs.plan.dry_run import forecast, show
from jobs.plan.planning import Plan
from jobs.requested_options import ExecutionOptions
from tests.factories import CUDAGRAPHS, DEFAULT, MAX_AUTOTUNE, at, cell, header, passing, write_bundle


def took(which, seconds, start_s=0.0, **details):
    return passing(which, started_at=at(start_s / 60), wall_s=seconds, details=details)


def test_a_cell_costs_its_time_less_what_it_waited_and_what_it_held():
    sizes = {"load_model": 3_000_000_000, "eager": 2_000_000_000, "correctness": 9_000_000_000}
    held = {"measure": 2.0, "tune": 10.0, "device": 3.0}
    item = took(cell(), 40.0, waited_s=15.0, stood_s=5.0, held_s=held, stage_bytes=sizes)
    expected = Cost(25.0, 15.0, Source.MEASURED, 12.0, 3_000_000_000, 2_000_000_000, check_bytes=9_000_000_000)
    assert CostModel.learn([item]).estimate(cell()) == expected
    for odd in ("long", True, {"a": 1}):  # details of a foreign bundle
        found = CostModel.learn([took(cell(), 40.0, waited_s=odd, held_s=odd, stage_bytes=odd)]).estimate(cell())
        assert found.worker_s == 40.0
        assert found.device_s in (None, 1.0)


def test_what_no_run_has_told_is_as_it_was_when_this_version_was_made():
    shipped = CostModel.learn([took(cell("a"), 90.0, stage_bytes={"load_model": 500, "eager": 800})])
    model = CostModel.learn([took(cell("b"), 10.0), took(cell("a", CUDAGRAPHS), 20.0)], shipped)
    known = model.estimate(cell("a", CUDAGRAPHS))
    assert (known.worker_s, known.load_bytes, known.eager_bytes) == (20.0, 500, 2_000_000_000)
    other = model.estimate(cell("b"))
    assert (other.worker_s, other.load_bytes) == (10.0, None)
    alone = CostModel.learn([took(cell("b"), 10.0)], shipped).estimate(cell("a"))
    assert (alone.worker_s, alone.source, alone.eager_bytes) == (90.0, Source.MEASURED, 800)
    # Without any history the memory of the largest models is known.
    large = replace(cell("gpt-oss-20b-4layers.decode"), suite="llm", dtype="bfloat16", batch_size=8)
    assert 1e9 < CostModel.of_history([]).estimate(large).load_bytes < 80e9
    assert CostModel.of_history([]).estimate(replace(large, device="cpu")).load_bytes is None


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
    assert read_history(tmp_path / "nowhere") == []
    with pytest.raises(BundleError, match="is not a bundle"):
        learn_from(tmp_path / "broken.jsonl")


def run_of(items, workers=99):
    """A run with so many workers; with 99 it has too few cells to be compared with its prediction."""
    head = header("r", testbed={"device": "cuda", "workers": workers})
    return BundleContents(head, measurements=list(items))


PLAN = Plan([cell("a"), cell("a", MAX_AUTOTUNE), cell("b"), cell("b", MAX_AUTOTUNE)], ["c: needs timm, not installed"])
HISTORY = [run_of([took(cell("a"), 3600.0), took(cell("a", MAX_AUTOTUNE), 7200.0), took(cell("b"), 1800.0)])]


def told(history, hours):
    found, text = forecast(PLAN, history, ExecutionOptions(budget_s=hours * 3600), 1), io.StringIO()
    show(Console(file=text, width=200), found)
    return found.to_json(), text.getvalue()


def test_a_forecast_adds_up_costs_and_is_scaled_by_measured_nights():
    found, text = told(HISTORY, 1)
    assert (found["planned"], found["cells"], found["models"], found["configs"]) == (4, 4, 2, 2)
    assert found["left_out"] == ["c: needs timm, not installed"]
    assert found["hours"] == 1 + 2 + 0.5 + 1  # b tuned: as b untuned, times what tuning does to a
    assert list(found["worker_hours"]["config"].items()) == [(MAX_AUTOTUNE.name, 3.0), (DEFAULT.name, 1.5)]
    assert found["estimates"] == {"measured": 3, "derived": 1, "default": 0}
    assert "--max-hours: 2 of 4 cells would be started within 1.00 h" in text
    assert "lower bound: there is no measured night" in text
    assert told(HISTORY, 3.2)[0]["started"] == 3
    slow = run_of([took(cell(f"m{number}"), 10.0, 30 * number) for number in range(2)], workers=1)
    found, text = told([*HISTORY, slow, slow], 3.2)
    assert (found["hours"], found["started"], found["slack"], found["slack_from_nights"]) == (9.0, 2, 2.0, 2)
    assert "times 2.00, as in 2 measured nights" in text


def test_the_command_line_forecasts_a_gpu_night_where_no_gpu_is(tmp_path):
    names, templates = ("BertForMaskedLM", "T5Small"), ("triton", "max_autotune")
    cells = [cell(name, Config(template=word), batch_size=16) for name in names for word in templates]
    items = [took(which, 50.0, 60 * number, held_s={"measure": 2.0}) for number, which in enumerate(cells)]
    write_bundle(tmp_path / "costs", header("gpu"), items)
    before = sorted(tmp_path.rglob("*"))
    words = ["--dry-run", "--device", "cuda", "--workers", "5", "--costs", "costs", "--json"]
    with contextlib.chdir(tmp_path):
        done = CliRunner().invoke(nightly_command, words, catch_exceptions=False)
    assert sorted(tmp_path.rglob("*")) == before, "a dry run writes nothing"
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["planned"] > found["cells"] == sum(gpu["cells"] for gpu in found["gpus"]) > 100
    assert sum(found["estimates"].values()) == found["cells"]
    assert (found["estimates"]["default"], len(found["longest"])) == (0, 10)
