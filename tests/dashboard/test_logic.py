"""The dashboard's own rules, without a page."""

import math

import pandas as pd
import pytest

from dashboard import changes, evidence, formats, outcomes, rows, url
from dashboard.markup import markdown


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("compiled_ms", 0.66712, "0.667\u202fms"),
        ("compiled_ms", 127.31, "127.3\u202fms"),
        ("speedup", 1.4426, "1.44\N{MULTIPLICATION SIGN}"),
        ("compile_cold_s", 12.24, "12.2\u202fs"),
        ("compiled_peak_bytes", 6.53e9, "6.53\u202fGB"),
        ("graph_breaks", 0.0, "0"),
        ("compiled_ms", None, formats.ABSENT),
        ("compiled_ms", math.nan, formats.ABSENT),
    ],
)
def test_numbers_have_units_and_the_unmeasured_is_a_dash(metric, value, shown):
    assert formats.number(metric, value) == shown


def test_a_share_is_never_rounded_up_to_all():
    assert formats.share(1799, 1800) == "99\u202f%"
    assert formats.share(0, 0) == formats.ABSENT


@pytest.mark.parametrize(
    ("value", "shown"), [(3.66, "+3.7\u202f%"), (-0.42, "\N{MINUS SIGN}0.4\u202f%"), (0.01, "±0.0\u202f%")]
)
def test_changes_have_a_sign(value, shown):
    assert formats.signed(value) == shown


@pytest.mark.parametrize(
    ("metric", "base", "new", "band", "look", "word"),
    [
        ("compiled_ms", 1.0, 1.1, 0.02, "worse", "slower"),
        ("compiled_ms", 1.1, 1.0, 0.02, "better", "faster"),
        ("compiled_ms", 1.0, 1.01, 0.02, "calm", ""),
        ("compiled_ms", 1.0, 2.0, None, "calm", ""),
        ("speedup", 1.0, 1.2, 0.02, "better", "higher"),
        ("compiled_peak_bytes", 1.0, 1.2, 0.01, "worse", "larger"),
        ("kernels_generated", 10, 12, 0.0, "calm", ""),
    ],
)
def test_a_change_is_coloured_by_the_metrics_own_sense_beyond_the_band(metric, base, new, band, look, word):
    found = changes.change(metric, base, new, band)

    assert (found.look, found.word) == (look, word)


def test_no_change_where_a_side_was_not_measured():
    assert changes.change("compiled_ms", None, 1.0, 0.1) is None
    assert changes.change("compiled_ms", 1.0, math.nan, 0.1) is None


def test_the_band_adds_the_spreads_and_is_unknown_without_them():
    assert changes.band("compiled_ms", 0.01, 0.02) == pytest.approx(0.03)
    assert changes.band("compiled_ms", 0.01, math.nan) is None
    assert changes.band("compile_cold_s", math.nan, math.nan) == 0.10


def cells(**changes_of):
    row = {"transition": "both_pass", "spread_base": 0.01, "spread_new": 0.01}
    return pd.DataFrame([row | {"compiled_kernel_ms_ratio": math.nan, "compiled_ms_ratio": math.nan} | changes_of])


@pytest.mark.parametrize(
    ("changes_of", "outcome", "metric"),
    [
        ({"compiled_kernel_ms_ratio": 1.05, "compiled_ms_ratio": 0.5}, "slower", "compiled_kernel_ms"),
        ({"compiled_kernel_ms_ratio": 1.01, "compiled_ms_ratio": 9.5}, "slower", "compiled_ms"),
        ({"compiled_kernel_ms_ratio": 1.01, "compiled_ms_ratio": 1.06}, "within", "compiled_kernel_ms"),
        ({"compiled_ms_ratio": 0.9}, "faster", "compiled_ms"),
        ({"compiled_ms_ratio": 0.97}, "faster", "compiled_ms"),
        ({}, "within", None),
        ({"transition": "broke"}, "broke", None),
    ],
)
def test_device_time_decides_and_latency_where_it_says_nothing(changes_of, outcome, metric):
    found = outcomes.with_outcomes(cells(**changes_of)).iloc[0]

    assert found["outcome"] == outcome
    assert (found["outcome_metric"] if metric else None) == metric


def test_kernels_of_one_family_are_added_up_whatever_their_number():
    base = evidence.kernels(
        {"compiled_kernels": [["triton_poi_fused_add_0", 2, 0.5], ["triton_poi_fused_add_7", 1, 0.25]]}, "compiled"
    )
    new = evidence.kernels(
        {"compiled_kernels": [["triton_poi_fused_add_1", 3, 1.0], ["gemm_2", 1, 0.1], ["broken"]]}, "compiled"
    )

    listed = evidence.kernel_changes(base, new)

    assert [(item.name, item.base_launches, item.change_ms) for item in listed] == [
        ("triton_poi_fused_add", 3, 0.25),
        ("gemm_2", None, 0.1),
    ]


def test_reasons_come_as_lists_counts_or_not_at_all():
    assert evidence.reasons({"why": ["a", "b"]}, "why") == ["a", "b"]
    assert evidence.reasons({"why": {"a": 2}}, "why") == ["a: 2"]
    assert evidence.reasons({}, "why") == []


def test_a_csv_starts_no_formula():
    written = rows.csv(pd.DataFrame({"model": ["=1+1", "bert"], "speedup": [-1.0, None]})).decode()

    assert written.splitlines() == ["model,speedup", "'=1+1,-1.0", "bert,"]


def test_an_address_keeps_every_value_and_escapes_it():
    assert (
        url.address("./compare", {"config": ["a+b=c", "d"], "q": ["x&y"]})
        == "./compare?config=a%2Bb%3Dc&config=d&q=x%26y"
    )


def test_a_name_with_markdown_in_it_stays_a_name():
    assert markdown("a_b*[c](d)$x$") == r"a\_b\*\[c\]\(d\)\$x\$"
