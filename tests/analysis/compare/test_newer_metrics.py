"""Verdicts of what not every bundle tells: warm compile time, instructions, and a leak, which has a rule of its own."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

from analysis.history.regression_record import Timeline, standing
from db.engine import open_store
from db.regression_records import Finding, open_regression
from tests.analysis.compare import judging
from tests.factories import START, cell, new_store, passing

MODELS = [f"model{number:02}" for number in range(12)]
NEWER = ("compile_warm_s", "compile_instructions", "leak_bytes_per_call")


def make_run(store, folder, number, leaks=0.0, changed=None, without=()):
    """A night; `leaks` is what the first model leaks, `changed` multiplies metrics of it. Another commit every night."""
    rng = np.random.default_rng(number)
    made = []
    for place, model in enumerate(MODELS):
        factor = (changed or {}) if place == 0 else {}
        metrics = {
            "compiled_ms": 2.0 * math.exp(rng.normal(0, 0.002)),
            "compile_warm_s": 3.0 * math.exp(rng.normal(0, 0.01)),
            "compile_instructions": round(5e9 * math.exp(rng.normal(0, 0.001))),
            "leak_bytes_per_call": leaks if place == 0 else 0.0,
        }
        metrics = {name: value * factor.get(name, 1) for name, value in metrics.items() if name not in without}
        made.append(passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics))
    judging.put_run(store, folder, f"r{number:02}", made, minutes=60 * number, commit=f"{number:040x}")


def judged(store, base="r11", new="r12"):
    found, rows = judging.judged(store, base, new)
    return found, rows.loc[MODELS[0]]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """Eleven quiet nights."""
    folder = tmp_path_factory.mktemp("quiet")
    store = new_store(folder / "store.db")
    for number in range(11):
        make_run(store, folder, number)
    store.dispose()
    return folder / "store.db"


@pytest.fixture
def nights(quiet, tmp_path):
    """A way to store the quiet nights, one with what is asked for, and the one that is judged."""
    store = open_store(shutil.copy(quiet, tmp_path / "nights.db"), write=True)

    def make(base=None, new=None):
        for number, differs in enumerate((base or {}, new or {}), 11):
            make_run(store, tmp_path, number, **differs)
        return store

    yield make
    store.dispose()


@pytest.mark.parametrize(
    ("metric", "factor", "expected"),
    [
        ("compile_warm_s", 1.10, "regressed"),
        ("compile_warm_s", 0.90, "improved"),
        ("compile_instructions", 1.02, "regressed"),
        ("compile_instructions", 1.01, "unchanged"),  # certain, and within what PyTorch's own check lets pass
    ],
)
def test_warm_compile_time_and_instructions_are_judged_like_other_times(nights, metric, factor, expected):
    found, row = judged(nights(new={"changed": {metric: factor}}))
    assert row[f"{metric}_verdict"] == expected
    assert row[f"{metric}_low"] < factor - 1 < row[f"{metric}_high"]
    assert (row["verdict"], row["verdict_metric"]) == (
        (expected, metric) if expected != "unchanged" else ("unchanged", "compiled_ms")
    )
    assert found.noise["compile_instructions"].typical == pytest.approx(0.001, rel=0.5)


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        (0.0, 0.0, "unchanged"),
        (0.0, 512.0, "regressed"),  # a leak where there was none, the least that there can be
        (0.0, 300.0, "unchanged"),  # less than a block a call: not every call leaks
        (512.0, 0.0, "improved"),
        (1e6, 1.01e6, "unchanged"),  # the same leak
        (1e6, 1.05e6, "regressed"),
        (1e6, 0.9e6, "improved"),
    ],
)
def test_a_leak_is_judged_by_how_much_it_grew(nights, base, new, expected):
    _, row = judged(nights({"leaks": base}, {"leaks": new}))
    assert row["leak_bytes_per_call_verdict"] == expected
    decided = (expected, "leak_bytes_per_call") if expected != "unchanged" else ("unchanged", "compiled_ms")
    assert (row["verdict"], row["verdict_metric"]) == decided
    assert math.isnan(row["leak_bytes_per_call_change"]) == (base == 0)
    assert (row["leak_bytes_per_call_base"], row["leak_bytes_per_call_new"]) == (base, new)


def test_runs_of_a_side_that_disagree_about_a_leak_are_asked_for_once_more(nights, tmp_path):
    store = nights(new={"leaks": 4096.0})
    again = passing(cell(MODELS[0]), metrics={"compiled_ms": 2.0, "leak_bytes_per_call": 0.0}, samples={})
    judging.put_run(store, tmp_path, "again", [again], minutes=800, commit=f"{12:040x}")
    _, row = judged(store, new=f"{12:040x}")
    assert row["leak_bytes_per_call_verdict"] == "inconclusive"
    assert row["leak_bytes_per_call_more_runs"] == 1
    assert row["verdict"] == "unchanged"  # by the time


@pytest.mark.parametrize(
    ("base_s", "new_s", "shared", "expected"),
    [
        (20.0, 24.0, False, "regressed"),
        (20.0, 20.1, False, "unchanged"),
        (0.0, 20.0, False, "regressed"),
        (20.0, 0.3, False, "improved"),
        (0.2, 0.8, False, None),  # nobody waits for it
        (0.0, 20.0, True, None),  # who comes first tunes for all
    ],
)
def test_tuning_is_judged_where_somebody_waits_for_it_and_by_itself(store, tmp_path, base_s, new_s, shared, expected):
    testbed = {"gpu": "H100", **({"tuning": "shared"} if shared else {})}
    for number in range(13):
        rng = np.random.default_rng(number)
        levels = [new_s if number == 12 else base_s, *np.geomspace(0.1, 50.0, len(MODELS) - 1)]
        made = []
        for model, level in zip(MODELS, levels, strict=True):
            metrics = {"compiled_ms": 2.0 * math.exp(rng.normal(0, 0.002)), "tuning_s": level}
            metrics["tuning_s"] *= math.exp(rng.normal(0, 0.01))
            made.append(passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics))
        commit = f"{number:040x}"
        judging.put_run(store, tmp_path, f"r{number:02}", made, minutes=60 * number, commit=commit, testbed=testbed)
    found, rows = judging.judged(store, "r11", "r12")
    assert rows["tuning_s_verdict"].tolist()[0] == expected
    assert set(rows["tuning_s_verdict"][1:]) <= {None, "unchanged"}
    (one,) = [one for one in found.cells if one.cell.model == MODELS[0]]
    told = [finding.verdict for finding in one.findings if finding.dimension == "compile"]
    assert told == ([expected] if expected else [])
    assert one.new.values["tuning_s"] == pytest.approx(new_s, rel=0.1)  # shown as it is


@pytest.mark.parametrize("side", ["base", "new"])
def test_a_metric_that_a_side_does_not_have_is_absent_and_no_zero(nights, side):
    _, row = judged(nights(**{side: {"without": NEWER, "leaks": 4096.0}}))
    for metric in NEWER:
        assert row[f"{metric}_verdict"] is None
        assert math.isnan(row[f"{metric}_change"])
    assert (row["verdict"], row["verdict_metric"]) == ("unchanged", "compiled_ms")


def test_the_json_has_a_leak_that_appeared_without_an_infinite_number(nights):
    found, _ = judged(nights(new={"leaks": 2048.0}))
    (told,) = [one for one in found.to_json()["cells"] if one["model"] == MODELS[0]]
    assert json.loads(json.dumps(told["judged"]["leak_bytes_per_call"], allow_nan=False)) == {
        "verdict": "regressed",
        **dict.fromkeys(("change", "adjusted", "low", "high", "explained", "q", "more_runs")),
    }


@pytest.mark.parametrize(
    ("later", "expected"), [((0.0, 0.0), "back"), ((2048.0, 2048.0), "still_there"), ((0.0, 2048.0), "open")]
)
def test_a_recorded_leak_is_fixed_once_two_runs_leak_nothing(nights, tmp_path, later, expected):
    store = nights(new={"leaks": 2048.0})
    for number, leaks in enumerate(later, 13):
        make_run(store, tmp_path, number, leaks=leaks)
    leak = "leak_bytes_per_call"
    finding = Finding(cell(MODELS[0]).cell_id, "r11", "r12", "leaks", leak, 0.0, 2048.0)
    record = open_regression(store, finding, at=START, author="ann")
    with store.connect() as conn:
        assert standing(record, Timeline(conn, [leak])).value == expected
