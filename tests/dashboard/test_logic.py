"""The dashboard's own rules, without a page."""

import math

import pandas as pd
import pytest

from analysis.compare import suite_groups
from analysis.elements import wording
from analysis.stats.verdicts import Interval
from dashboard import url
from dashboard.views import compare_page
from dashboard.widgets import markdown
from tests.analysis.compare import cells


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("compiled_ms", 0.66712, "0.667\u202fms"),
        ("speedup", 1.4426, "1.44\N{MULTIPLICATION SIGN}"),
        ("compiled_peak_bytes", 6.53e9, "6.53\u202fGB"),
        ("graph_breaks", 0.0, "0"),
        ("leak_bytes_per_call", 5242.88, "5,243\u202fB"),
        ("compiled_ms", math.nan, wording.ABSENT),
    ],
)
def test_numbers_have_units_and_the_unmeasured_is_a_dash(metric, value, shown):
    assert wording.number(metric, value) == shown


def test_a_share_is_never_rounded_up_to_all_and_a_change_has_a_sign():
    assert (wording.share(1799, 1800), wording.share(0, 0)) == ("99\u202f%", wording.ABSENT)
    assert [wording.signed(value) for value in (3.66, -0.42, 0.01)] == [
        "+3.7\u202f%",
        "\N{MINUS SIGN}0.4\u202f%",
        "±0.0\u202f%",
    ]


@pytest.mark.parametrize(
    ("metric", "found", "ends", "look", "word"),
    [
        ("speedup", 1.1, (1.05, 1.15), "better", "higher"),
        ("speedup", 0.9, (0.85, 0.95), "worse", "lower"),
        ("speedup", 1.1, (0.99, 1.2), "calm", ""),
        ("compile_cold_s", 1.1, (1.05, 1.15), "worse", "slower"),
        ("kernels_generated", 1.2, (1.1, 1.3), "calm", ""),
        ("speedup", 1.0004, (1.0001, 1.0007), "calm", ""),  # shown as 0.0 %
    ],
)
def test_an_average_is_coloured_where_its_interval_excludes_no_change(monkeypatch, metric, found, ends, look, word):
    def change(verdict):
        values = ({metric: 1.0}, {metric: found})
        decides = {"speedup": "compiled_ms", "compression": "compiled_peak_bytes"}.get(metric, metric)
        (one,) = [cells.compared(values=values, judged=[cells.of(decides, verdict, 0.1)])]
        within = Interval(*ends, models=9)
        monkeypatch.setattr(suite_groups, "geomean_interval", lambda *_: within)
        monkeypatch.setattr(suite_groups, "sums_interval", lambda *_: within)
        return suite_groups.average_change(metric, [one])

    likewise = {"better": "improved", "worse": "regressed", "calm": "regressed"}[look]
    shown = wording.averaged(change(likewise))
    assert (shown.look, shown.word) == (look, word) and shown.interval.startswith("[")
    for other in {"improved", "regressed", "unchanged"} - {likewise}:
        assert wording.averaged(change(other)).look == "calm"


def test_a_csv_starts_no_formula():
    written = compare_page.csv(pd.DataFrame({"model": ["=1+1", "bert"], "speedup": [-1.0, None]})).decode()
    assert written.splitlines() == ["model,speedup", "'=1+1,-1.0", "bert,"]


def test_an_address_and_markdown_escape_what_is_in_a_name():
    address = url.address("./compare", {"config": ["a+b=c", "d"], "q": ["x&y"]})
    assert address == "./compare?config=a%2Bb%3Dc&config=d&q=x%26y"
    assert markdown("a_b*[c](d)$x$") == r"a\_b\*\[c\]\(d\)\$x\$"
