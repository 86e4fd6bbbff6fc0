"""Leaks, warm compile times and instructions on the pages: shown where some cell has them, judged, never a made-up zero."""

from analysis.elements.wording import THIN
from dashboard.views import compare_page
from tests.analysis.compare import cells

LEAK, WARM = "leak_bytes_per_call", "compile_warm_s"


def table_of(*compared):
    return compare_page.compared(compared, compared, [LEAK, WARM], lambda _: "")


def leaking(before, after, verdict):
    values = {LEAK: before}, {LEAK: after}
    return cells.compared(verdict, LEAK, [cells.of(LEAK, verdict)], values=values)


def test_a_leak_shows_as_bytes_with_the_look_of_its_verdict():
    shown = table_of(leaking(0.0, 2048.0, "regressed"), leaking(0.0, 0.0, "unchanged"))
    assert [field.css for field in shown["leak per call"]] == ["n worse", "n"]
    assert shown["leak per call"][0].content.endswith("<br>+2,048")
    assert "regressed<br>" in shown["outcome"][0].content and "leak per call" in shown["outcome"][0].content
    assert shown["outcome"][1].content == "= unchanged"
    assert not [name for name in shown if "warm" in name]


def test_mixed_changes_are_all_named_and_open_ones_say_what_is_ruled_out():
    changed = [cells.of(WARM, "regressed", 2.63), cells.of("compiled_ms", "improved", -0.88)]
    open_one = cells.of("compiled_ms", "inconclusive", 0.02, low=-0.01, high=0.04, more_runs=3.0)
    table = table_of(
        cells.compared("regressed", WARM, changed), cells.compared("inconclusive", "compiled_ms", [open_one])
    )
    mixed, unclear = (field.content.replace(THIN, " ") for field in table["outcome"])
    assert "warm compile +263 %" in mixed and "compiled latency \N{MINUS SIGN}88 %" in mixed
    assert "? no clear change" in unclear and "more than 4 % ruled out, 3 more runs of each side" in unclear
