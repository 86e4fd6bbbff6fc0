"""Tables in little room: no line longer than the terminal, nothing cut in the middle, and what is left out is named."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from jobs.output.tables import FittingTable, console

NAME = "huggingface/ResNet18ForImageClassification inference float32 cpu bs1 triton"


def drawn(width):
    out = Console(file=io.StringIO(), width=width)
    table = FittingTable(("cell", "verdict", "base", "new", "change %", "speedup x"), spare=("base", "new"))
    table.add_row(NAME, "inconclusive", "112.3 ms", "120.4 ms", "-1.0%", "1.04 -> 1.04")
    out.print(table)
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_no_line_is_longer_than_the_terminal_and_nothing_is_cut(width):
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    text = "".join(lines)
    assert "…" not in text
    assert "inconclusive" in text
    assert "".join(line[:30].strip() for line in lines[3:]).replace(" ", "")[:20] == NAME[:20]


def test_spare_columns_go_first_and_all_that_went_are_named():
    assert "left out" not in "".join(drawn(160))
    heading, note = drawn(58)[1], " ".join(drawn(58)[-2:])
    assert heading.split() == ["cell", "verdict", "change", "%", "speedup", "x"]
    assert "left out for want of room: base, new (" in note
    assert drawn(50)[1].split() == ["cell", "verdict", "change", "%"]


@pytest.mark.parametrize(("columns", "width"), [("90", 90), ("", 400), ("wide", 400)])
def test_what_goes_to_a_pipe_is_as_wide_as_columns_says(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert console().width == width
