"""What a run tells while it goes on."""

from __future__ import annotations

import io
from unittest.mock import Mock

import pytest
from rich.console import Console

from collector.settings import Settings
from collector.vocabulary import Config, Failure, Stage, Status
from jobs.plan.planning import Plan
from jobs.pool.resuming import find_night
from jobs.pool.session import RunProgress, describe, measure_and_store
from jobs.requested_options import ExecutionOptions, RunNames
from tests.factories import cell, failing, passing


def test_an_error_is_no_markup_and_cannot_steer_the_terminal():
    console = Console(file=io.StringIO(), width=60)
    line = failing(cell("bert\x1b[2J"))
    line.failure.message = "\x1b]0;title\x07 shape [bold]x[/bold] at [0] \x9b31m"
    RunProgress(console, total=1).took(line)
    printed = console.file.getvalue()
    assert "shape [bold]x[/bold] at [0]" in printed
    assert not {"\x1b", "\x07", "\x9b"} & set(printed)
    line.failure.message = "word " * 40
    assert describe(line).endswith("word wo...")


def test_a_run_whose_output_nothing_reads_can_be_resumed(measured, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("jobs.pool.session.say", Mock(side_effect=BrokenPipeError))
    (testbed,) = measured.find_testbeds("cpu", ExecutionOptions(), serve=False)
    testbed.environment.update(cpu="x", cores=1)
    with pytest.raises(BrokenPipeError):
        measure_and_store(Plan([cell()]), [testbed], RunNames("main"), Settings(), tmp_path, None)
    assert "`inductor-watch resume` measures the rest" in capsys.readouterr().err
    assert [run.path.suffix for run in find_night(tmp_path, None)] == [".jsonl"]


def test_the_time_left_comes_from_the_estimates_at_the_beginning():
    cells = [cell(model) for model in ("a", "b", "c")]
    worker_s = dict(zip([one.cell_id for one in cells], [10.0, 60.0, 30.0], strict=True))
    progress, left = RunProgress(Console(quiet=True), 3, worker_s, 600.0), []
    assert progress.left_s() is None
    for one in cells:
        progress.took(passing(one))
        left.append(progress.left_s())
    # 600 s by 0.9 and by 0.3, squared: hardly any time has passed.
    assert left == [pytest.approx(486, abs=3), pytest.approx(54, abs=3), 0]


def test_a_config_that_is_unavailable_is_told_once():
    console = Console(file=io.StringIO(), width=200)
    progress = RunProgress(console, total=4)
    why = "no CUTLASS checkout found"
    for model in ("a", "b", "c"):
        failure = Failure(Stage.RESOLVE_CONFIG, "UnavailableError", why)
        progress.took(failing(cell(model, Config(template="cutlass")), Status.UNAVAILABLE, failure=failure))
    progress.took(passing(cell("a")))
    assert console.file.getvalue().count(why) == 1
    assert progress.unavailable_words() == [f"3 cells of cutlass not measured: {why}"]
    assert (progress.done, progress.failing) == (4, 0)
