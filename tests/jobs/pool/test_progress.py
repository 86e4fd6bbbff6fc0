"""What a run tells while it goes on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from collector.vocabulary import Config, Failure, Stage, Status
from jobs.pool.session import RunProgress, describe
from tests.factories import cell, failing, passing

SIZE = {"batch_size": 8, "length": 64, "compiled_ms": 2.2, "static_ms": 2.0}


def test_every_cell_is_one_line_with_counts_and_time_left():
    console = Console(file=io.StringIO(), width=60)
    progress = RunProgress(console, total=2)
    progress.took(passing(cell("bert")))
    progress.took(failing(cell("gpt2")))
    first, second = console.file.getvalue().strip().splitlines()
    assert first.startswith("[1/2] huggingface/bert inference bfloat16 cuda bs8 default  pass")
    assert "0 failing" in first
    assert second.startswith("[2/2] huggingface/gpt2")
    assert "fail_to_compile: no kernel fits" in second
    assert second.endswith("1 failing, 0 s left)")


@pytest.mark.parametrize(
    ("metrics", "details", "text"),
    [
        (
            {"speedup": 1.5, "device_speedup": 1.25, "compiled_ms": 0.12345, "compile_cold_s": 9.87},
            {"repeated": "why"},
            "pass  1.50x  device 1.25x  0.123 ms  compile 9.9 s  repeated (why)",
        ),
        ({"compile_cold_s": 3.21}, {"only": "code", "same_code_as": "n1"}, "pass  compile 3.2 s  same code as n1"),
        ({"speedup": 1.5}, {"checked_by": "cosine"}, "pass (checked by cosine)  1.50x"),
        ({"recompiles": 1.0}, {"sizes": [SIZE]}, "pass  batch 8, length 64: 1.10x static  1 recompile"),
    ],
)
def test_a_pass_is_told_by_the_figures_that_were_measured(metrics, details, text):
    assert describe(passing(cell(), metrics=metrics, details=details)) == text


def test_an_error_is_no_markup_and_cannot_steer_the_terminal():
    console = Console(file=io.StringIO(), width=60)
    line = failing(cell("bert\x1b[2J"))
    line.failure.message = "\x1b]0;title\x07 shape [bold]x[/bold] at [0] \x9b31m"
    RunProgress(console, total=1).took(line)
    printed = console.file.getvalue()
    assert "shape [bold]x[/bold] at [0]" in printed
    assert not {"\x1b", "\x07", "\x9b"} & set(printed)


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
