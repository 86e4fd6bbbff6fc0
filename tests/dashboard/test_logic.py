"""The dashboard's own rules, without a page."""

import math

import pandas as pd
import pytest

from analysis.compare import side_differences, suite_groups
from analysis.elements import wording
from analysis.present import called
from analysis.stats.verdicts import Interval
from dashboard import url
from dashboard.views import compare_page
from dashboard.widgets import markdown
from tests.analysis.compare import cells


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("compiled_ms", 0.66712, "0.667\u202fms"),
        ("compiled_ms", 127.31, "127.3\u202fms"),
        ("speedup", 1.4426, "1.44\N{MULTIPLICATION SIGN}"),
        ("compile_cold_s", 12.24, "12.2\u202fs"),
        ("compiled_peak_bytes", 6.53e9, "6.53\u202fGB"),
        ("graph_breaks", 0.0, "0"),
        ("leak_bytes_per_call", 0.0, "0\u202fB"),
        ("leak_bytes_per_call", 5242.88, "5,243\u202fB"),
        ("compile_instructions", 41_250_000_017.0, "41,250,000,017"),
        ("compiled_ms", None, wording.ABSENT),
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
        ("compression", 1.2, (1.1, 1.3), "better", "higher"),
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


@pytest.mark.parametrize(
    ("verdict", "look"),
    [("regressed", "worse"), ("improved", "better"), ("unchanged", "calm"), ("inconclusive", "calm")],
)
def test_a_judged_change_has_the_verdicts_word_and_its_interval(verdict, look):
    latency = cells.of("compiled_ms", verdict, 0.25, adjusted=0.2, low=0.05, high=0.3)
    values = {"eager_ms": 1.0}, {"eager_ms": 1.04}
    one = cells.compared(verdict, "compiled_ms", [latency], values=values)
    found = wording.judged(one, "compiled_ms")
    assert (found.text, found.interval, found.look) == (
        f"▲ +20.0\u202f% {called(verdict)}",
        "[+5.0, +30.0], measured +25.0, eager +4.0",
        look,
    )
    muted = wording.judged(cells.compared("inconclusive", None, [latency], values=values, moved=True), "compiled_ms")
    assert (muted.look, muted.word, muted.interval) == ("calm", "", found.interval)


LATENCIES = [
    cells.of("compiled_kernel_ms", "inconclusive", 0.1, more_runs=4.0),
    cells.of("compiled_ms", "inconclusive", 0.2),
]


def test_more_runs_are_advised_for_what_is_inconclusive_on_one_machine():
    assert cells.compared("inconclusive", "compiled_ms", LATENCIES).more_runs == 4
    assert cells.compared("unchanged", "compiled_ms", LATENCIES).more_runs is None
    moved = cells.compared("inconclusive", "compiled_ms", LATENCIES, moved=True)
    assert moved.more_runs is None and not moved.is_comparable
    assert wording.said(moved)[0][1] == "measured on another testbed"


def test_a_kernel_on_float32_is_known_by_its_name():
    float32 = (
        "sm90_xmma_gemm_f32f32_tf32f32_f32_tn",
        "ampere_sgemm_128x64_tn",
        "x<4, at::native::CUDAFunctor_add<float> >",
    )
    reduced = (
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwc",
        "vectorized_layer_norm<c10::BFloat16, float, false>",
    )
    assert [side_differences.is_float32(name) for name in (*float32, *reduced)] == [True] * 3 + [False] * 2


def test_a_csv_starts_no_formula():
    written = compare_page.csv(pd.DataFrame({"model": ["=1+1", "bert"], "speedup": [-1.0, None]})).decode()
    assert written.splitlines() == ["model,speedup", "'=1+1,-1.0", "bert,"]


def test_an_address_keeps_every_value_and_escapes_it():
    assert (
        url.address("./compare", {"config": ["a+b=c", "d"], "q": ["x&y"]})
        == "./compare?config=a%2Bb%3Dc&config=d&q=x%26y"
    )


def test_a_name_with_markdown_in_it_stays_a_name():
    assert markdown("a_b*[c](d)$x$") == r"a\_b\*\[c\]\(d\)\$x\$"
