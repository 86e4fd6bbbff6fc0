"""The dashboard's own rules, without a page."""

import math

import pandas as pd
import pytest

from analysis.compare import evidence
from analysis.compare.code import pair_kernels
from analysis.compare.verdicts import Outcome
from analysis.reports.words import called
from analysis.stats.bootstrap import Interval
from collector.metrics import MIN_EFFECT
from dashboard import url
from dashboard.components import changes, formats, outcomes
from dashboard.components.markup import markdown
from dashboard.views.compare import rows


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
        ("compiled_ms", None, formats.ABSENT),
        ("compiled_ms", math.nan, formats.ABSENT),
    ],
)
def test_numbers_have_units_and_the_unmeasured_is_a_dash(metric, value, shown):
    assert formats.number(metric, value) == shown


def test_a_share_is_never_rounded_up_to_all_and_a_change_has_a_sign():
    assert (formats.share(1799, 1800), formats.share(0, 0)) == ("99\u202f%", formats.ABSENT)
    assert [formats.signed(value) for value in (3.66, -0.42, 0.01)] == [
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
def test_an_average_is_coloured_by_the_metrics_own_sense_where_the_interval_excludes_none(
    metric, found, ends, look, word
):
    shown = changes.averaged(metric, found, Interval(*ends, models=9), ("better", "worse"))
    assert (shown.look, shown.word) == (look, word)
    assert shown.interval.startswith("[") and changes.averaged(metric, found, None, ()).interval == ""
    for allowed in ((), {"better", "worse"} - {look}):
        assert changes.averaged(metric, found, Interval(*ends, models=9), allowed).look == "calm"


@pytest.mark.parametrize(
    ("verdict", "look"),
    [("regressed", "worse"), ("improved", "better"), ("unchanged", "calm"), ("inconclusive", "calm")],
)
def test_a_judged_change_has_the_verdicts_word_and_its_interval(verdict, look):
    record = {
        "compiled_ms_verdict": verdict,
        "compiled_ms_change": 0.25,
        "compiled_ms_adjusted": 0.2,
        "compiled_ms_low": 0.05,
        "compiled_ms_high": 0.3,
        "eager_ms_ratio": 1.04,
    }
    found = changes.judged("compiled_ms", record)
    assert (found.text, found.interval, found.look) == (
        f"▲ +25.0\u202f% {called(verdict)}",
        "eager +4.0, adjusted +20.0 [+5.0, +30.0]",
        look,
    )
    muted = changes.judged("compiled_ms", record, comparable=False)
    assert (muted.look, muted.word, muted.interval) == ("calm", "", found.interval)


def paired(verdict=None, metric=None, **changes_of):
    """One cell of a comparison and its row of a judgement, as both come out of `analysis`."""
    cell = {"cell_id": "a", "transition": "both_pass", "testbed_changed": False, "rank_metric": "compiled_kernel_ms"}
    told = {f"{name}_{part}": math.nan for name in MIN_EFFECT for part in ("adjusted", "more_runs")}
    told |= {"compiled_kernel_ms_adjusted": 0.1, "compiled_kernel_ms_more_runs": 4.0, "compiled_ms_adjusted": 0.2}
    judged = pd.DataFrame([told | {"verdict": verdict, "verdict_metric": metric}], index=["a"], dtype=object)
    return outcomes.with_outcomes(pd.DataFrame([cell | changes_of]), judged).iloc[0]


@pytest.mark.parametrize(
    ("verdict", "changes_of", "outcome", "shown_by"),
    [
        ("regressed", {}, "regressed", "compiled_ms"),
        ("unchanged", {}, "unchanged", "compiled_kernel_ms"),
        ("inconclusive", {}, "inconclusive", "compiled_kernel_ms"),
        ("environment_changed", {}, "environment_changed", "compiled_kernel_ms"),
        (None, {"rank_metric": None}, "inconclusive", None),
        ("broke", {"transition": "broke"}, "broke", None),
        ("flaky", {"transition": "broke"}, "flaky", None),
        ("missing", {"transition": "missing_in_both"}, "missing_in_both", None),
        (None, {"transition": "entered"}, "entered", None),
    ],
)
def test_an_outcome_is_the_verdict_and_where_there_is_none_what_became_of_the_cell(
    verdict, changes_of, outcome, shown_by
):
    found = paired(verdict, "compiled_ms" if verdict else None, **changes_of)
    assert found["outcome"] == outcome and outcome in outcomes.OUTCOMES
    assert (found["outcome_metric"] if isinstance(found["outcome_metric"], str) else None) == shown_by


def test_more_runs_are_advised_for_what_is_inconclusive_on_one_machine():
    assert paired("inconclusive", "compiled_ms")["more_runs"] == 4
    assert math.isnan(paired("unchanged", "compiled_ms")["more_runs"])
    moved = paired("inconclusive", "compiled_ms", testbed_changed=True)
    assert math.isnan(moved["more_runs"]) and not moved["comparable"]
    sides = {
        f"{name}_{side}": value for name, value in (("status", "pass"), ("expected", True)) for side in ("base", "new")
    }
    assert outcomes.said({**moved, **sides})[1] == "measured on another testbed"


def test_only_what_is_shown_to_have_changed_has_a_colour():
    assert {outcomes.LOOKS.get(name, "calm") for name in ("inconclusive", "missing", "environment_changed")} == {"calm"}
    assert outcomes.LOOKS["regressed"] == outcomes.LOOKS["broke"] == "worse"
    assert outcomes.LOOKS["improved"] == outcomes.LOOKS["fixed"] == "better"
    assert {outcome.value for outcome in Outcome} <= set(outcomes.OUTCOMES)


def test_kernels_of_one_family_are_added_up_whatever_their_number():
    base = [["triton_poi_fused_add_0", 2, 0.5], ["triton_poi_fused_add_7", 1, 0.25]]
    new = [["triton_poi_fused_add_1", 3, 1.0], ["gemm_2", 1, 0.1], ["broken"]]
    listed = pair_kernels(*(evidence.listed_kernels({"eager_kernels": kernels}, "eager") for kernels in (base, new)))
    assert [(item.name, item.base_launches, item.change_ms) for item, _ in listed] == [
        ("triton_poi_fused_add", 3, 0.25),
        ("gemm_2", None, 0.1),
    ]


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
    assert [evidence.is_float32(name) for name in (*float32, *reduced)] == [True] * 3 + [False] * 2


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
