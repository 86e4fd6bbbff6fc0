"""Tables that fit the terminal, and a comparison in them."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from analysis.compare.compare_sides import compare_named
from analysis.present import ruled_out
from collector.vocabulary import Status
from db.engine import open_store
from jobs.output.comparison_tables import show_comparison
from jobs.output.tables import FittingTable
from tests.dashboard import stores
from tests.factories import COMMIT_A, COMMIT_B, cell, failing, header, passing, write_bundle

NAME = "huggingface/ResNet18ForImageClassification inference float32 cpu bs1 triton"


@pytest.mark.parametrize("width", [60, 100])
def test_no_line_is_longer_than_the_terminal_and_nothing_is_cut(width):
    out = Console(file=io.StringIO(), width=width)
    table = FittingTable(("cell", "verdict", "base", "new", "change %", "speedup x"), spare=("base", "new"))
    table.add_row(NAME, "inconclusive", "112.3 ms", "120.4 ms", "-1.0%", "1.04 -> 1.04")
    out.print(table)
    lines = out.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = "".join(lines)
    assert "…" not in text
    assert "inconclusive" in text
    assert "".join(line[:30].strip() for line in lines[3:]).replace(" ", "")[:20] == NAME[:20]


@pytest.mark.parametrize(("width", "is_shown"), [(60, True), (40, False)])
def test_a_table_without_room_for_its_figure_is_left_out(width, is_shown):
    out = Console(file=io.StringIO(), width=width)
    table = FittingTable(("suite", "phase", "config", "speedup x"), folded=("phase", "config"), needed="speedup x")
    table.add_row("huggingface", "inference bfloat16", "default+dynamic", "1.87 -> 1.49 -19.8 %")
    out.print(table)
    shown = " ".join(out.file.getvalue().split())
    assert ("1.87 -> 1.49 -19.8 %" in shown, "room: the table by suite" in shown) == (is_shown, not is_shown)


CELLS = [cell(model) for model in ("bert", "gpt2", "t5", "vit")]


def measured(which, slower=1.0, **metrics):
    samples = {"eager_ms": [4.0] * 5, "compiled_ms": [2.0 * slower] * 5}
    found = {"eager_ms": 4.0, "compiled_ms": 2.0 * slower, "speedup": 2.0 / slower, "compile_cold_s": 10.0, **metrics}
    return passing(which, metrics=found, samples=samples, details={})


@pytest.fixture
def shown(tmp_path):
    """The lines that compare these measurements of base and new."""

    def show(base, new, limit=20, planned=None, commit=COMMIT_B):
        console, later = Console(file=io.StringIO(), width=240), header("new", minutes=60, commit=commit)
        runs = [write_bundle(tmp_path, header("base"), base), write_bundle(tmp_path, later, new, planned=planned)]
        with open_store(stores.store(tmp_path / "store.db", runs), write=False).connect() as connection:
            show_comparison(console, compare_named(connection, "base", "new"), limit)
        return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip(" ─")]

    return show


def test_each_status_that_changed_is_told_and_what_is_open_has_its_values(shown):
    """One model is slower, one broke, one was fixed, and one is not measured any more."""
    base = [measured(CELLS[0]), measured(CELLS[1]), failing(CELLS[2]), measured(CELLS[3])]
    new = [measured(CELLS[0], 1.25), failing(CELLS[1], Status.OOM), measured(CELLS[2])]
    lines = shown(base, new, planned=CELLS)
    sentence = "New is worse than base: 1 model broke (gpt2). Better: 1 model fixed (t5). Undecided: 1 of 4"
    assert lines[2].startswith(sentence)
    assert [line for line in lines if line.startswith(("broke", "fixed", "missing"))] == [
        "broke huggingface/gpt2 inference bfloat16 cuda bs8 default: pass -> oom",
        "fixed huggingface/t5 inference bfloat16 cuda bs8 default: fail_to_compile -> pass",
        "missing huggingface/vit inference bfloat16 cuda bs8 default: pass -> missing",
    ]
    assert lines[-1] == "huggingface/bert inference bfloat16 bs8 compiled latency 2.000 ms 2.500 ms +25.0 % - -"


def test_a_cell_that_was_not_timed_since_its_code_is_known_says_so(shown):
    coded = [replace(measured(which), code_id="one") for which in CELLS[:3]]
    known = replace(coded[0], metrics={"compile_cold_s": 10.0}, samples={}, details={"same_code_as": "base"})
    changed = replace(measured(CELLS[2]), code_id="text that no bundle has")
    lines = shown(coded, [known, coded[1], changed])
    assert "note: 1 of 3 cells of new were not timed again: same code as base (1)" in lines
    assert "Nothing is known to have got worse. Undecided: 2 of 3 models." in lines
    assert "huggingface/bert inference bfloat16 bs8 - - - - - - same code as base" in lines
    for model, code in (("gpt2", "same code"), ("t5", "code changed")):
        (line,) = (line for line in lines if line.startswith(f"huggingface/{model} inference bfloat16 bs8 "))
        assert "compiled latency" in line and line.endswith(code)


def test_a_limit_keeps_the_largest_changes_and_brackets_are_no_markup(shown):
    factors = dict(zip([*CELLS[:3], cell("[red]vit[/red]")], (1.0, 1.1, 0.5, 1.3), strict=True))
    slower = [measured(which, factor) for which, factor in factors.items()]
    lines = shown([measured(which) for which in factors], slower, limit=2, commit=COMMIT_A)  # so that noise is known
    ranked = [line.split()[0] for line in lines if " compiled latency " in line]
    assert ranked == ["huggingface/t5", "huggingface/[red]vit[/red]"]


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(-0.034, 0.055, "more than 6 % ruled out"), (-0.04, 0.01, "more than 4 % ruled out"), (np.nan, 1, "")],
)
def test_what_is_ruled_out_is_never_less_than_the_interval(low, high, text):
    assert ruled_out(low, high) == text


def test_a_change_that_eager_made_too_stands_beside_the_measured_one(shown):
    faster = [measured(which, 0.84, eager_ms=4.0 * 0.84) for which in CELLS]
    lines = shown([measured(which) for which in CELLS], faster, commit=COMMIT_A)  # so that noise is known
    (line,) = (line for line in lines if line.startswith("huggingface/bert ") and "compiled latency" in line)
    assert "measured -16.0 %, eager -16.0 %" in line and "2.000 ms 1.680 ms -16.0 %" not in line
    assert any(line.startswith("cell by base new adjusted") for line in lines)
