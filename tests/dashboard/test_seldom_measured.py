"""Leaks, warm compile times and instructions on the pages: shown where some cell has them, judged, never a made-up zero."""

import math

import pandas as pd
import pytest

from dashboard.components import changes, markup
from dashboard.components.formats import THIN
from dashboard.views.compare import rows

NAN = float("nan")
METRICS = ["compile_warm_s", "leak_bytes_per_call"]


def compared(**columns):
    """Two cells that pass on both sides; a column is the values of both."""
    names = {"suite": "s", "model": ["a", "b"], "config": "c", "phase": "inference", "dtype": "x", "device": "cuda"}
    told = {
        "batch_size": 1,
        "cell": ["a", "b"],
        "transition": "both_pass",
        "comparable": True,
        "more_runs": NAN,
        "code": None,
    }
    sides = {
        f"{name}_{side}": value for side in ("base", "new") for name, value in (("expected", True), ("status", "pass"))
    }
    seldom = ("leak_bytes_per_call", "compile_warm_s", "compile_instructions")
    parts = {
        f"{metric}_{part}": NAN for metric in seldom for part in ("base", "new", "change", "adjusted", "low", "high")
    }
    said = {"outcome": ["regressed", "unchanged"], "outcome_metric": "leak_bytes_per_call", "outcome_change": NAN}
    verdicts = {f"{metric}_verdict": None for metric in seldom}
    return pd.DataFrame(names | told | sides | parts | verdicts | said | columns)


def compared_table(cells):
    return rows.compared(cells, cells, ["leak_bytes_per_call", "compile_warm_s"], lambda _: "")


def test_columns_of_what_no_cell_has_are_left_out():
    cells = compared()
    shown = compared_table(cells)
    assert not [name for name in shown if "leak" in name or "warm" in name]


def test_a_leak_shows_as_bytes_with_the_look_of_its_verdict():
    cells = compared(
        leak_bytes_per_call_base=[0.0, 0.0],
        leak_bytes_per_call_new=[2048.0, 0.0],
        leak_bytes_per_call_verdict=["regressed", "unchanged"],
    )
    shown = compared_table(cells)
    assert [field.css for field in shown["leak per call"]] == ["n worse", "n"]
    assert shown["leak per call"][0].content.endswith("<br>+2,048")
    assert "regressed<br>" in shown["outcome"][0].content and "leak per call" in shown["outcome"][0].content
    assert shown["outcome"][1].content == "= unchanged"
    assert not [name for name in shown if "warm" in name]


def test_warm_compile_time_shows_its_change_in_percent():
    cells = compared(
        compile_warm_s_base=[2.0, NAN],
        compile_warm_s_new=[3.0, 4.0],
        compile_warm_s_change=[0.5, NAN],
        compile_warm_s_verdict=["regressed", None],
    )
    shown = compared_table(cells)
    assert "+50.0" in shown["warm compile"][0].content and "%" not in shown["warm compile"][1].content
    assert [field.css for field in shown["warm compile"]] == ["n worse", "n"]


def test_an_outcome_of_mixed_changes_names_them_and_one_without_a_change_says_what_is_ruled_out():
    told = {"regressed": 2.63, "improved": -0.88}
    columns = {
        f"{metric}_{part}": [value, NAN]
        for metric, (word, change) in zip(("compile_warm_s", "compile_instructions"), told.items(), strict=True)
        for part, value in (("verdict", word), ("change", change), ("adjusted", change))
    }
    quiet = {"leak_bytes_per_call_low": [NAN, -0.01], "leak_bytes_per_call_high": [NAN, 0.04], "more_runs": [NAN, 3.0]}
    cells = compared(**columns, **quiet).assign(outcome=["regressed", "inconclusive"], outcome_metric=METRICS)
    mixed, unclear = (field.content.replace(THIN, " ") for field in compared_table(cells)["outcome"])
    assert "warm compile +263 %, compile instructions \N{MINUS SIGN}88 %" in mixed
    assert "? no clear change" in unclear and "more than 4 % ruled out, 3 more runs of each side" in unclear


@pytest.mark.parametrize("change", [NAN, 1.0])
def test_a_leak_that_appeared_has_a_word_and_no_percentage(change):
    told = {f"leak_bytes_per_call_{name}": NAN for name in ("low", "high", "adjusted")}
    record = {"leak_bytes_per_call_verdict": "regressed", "leak_bytes_per_call_change": change, **told}
    found = changes.judged("leak_bytes_per_call", record)
    assert (found.look, found.word) == ("worse", "regressed")
    assert "nan" not in "".join(markup.change_cells(found))
    assert found.text.endswith("regressed") and (found.size == "") == math.isnan(change)
