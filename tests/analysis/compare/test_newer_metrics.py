"""Verdicts of what not every bundle tells: warm compile time, instructions, and a leak, which has a rule of its own."""

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
LEAK = "leak_bytes_per_call"


def make_run(store, folder, number, leaks=None, changed=None):
    """A night of another commit; `leaks` is what models leak, `changed` multiplies a metric of some."""
    rng = np.random.default_rng(number)
    made = []
    for model in MODELS:
        wall, warm, count = (math.exp(rng.normal(0, sd)) for sd in (0.002, 0.01, 0.001))
        metrics = {"compiled_ms": 2.0 * wall, "compile_warm_s": 3.0 * warm, "compile_instructions": round(5e9 * count)}
        metrics[LEAK] = (leaks or {}).get(model, 0.0)
        metric, factor, _ = (changed or {}).get(model, ("compiled_ms", 1, ""))
        metrics[metric] *= factor
        made.append(passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics))
    judging.put_run(store, folder, f"r{number:02}", made, minutes=60 * number, commit=f"{number:040x}")


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

    def make(base=None, new=None):
        store = open_store(shutil.copy(quiet, tmp_path / "nights.db"), write=True)
        for number, differs in enumerate((base or {}, new or {}), 11):
            make_run(store, tmp_path, number, **differs)
        return store

    return make


#: A change of a metric, and what it is called.
TIMES = [
    ("compile_warm_s", 1.10, "regressed"),
    ("compile_warm_s", 0.90, "improved"),
    ("compile_instructions", 1.02, "regressed"),
    ("compile_instructions", 1.01, "unchanged"),  # certain, and within what PyTorch's own check lets pass
]


def test_warm_compile_time_and_instructions_are_judged_like_other_times(nights):
    found, rows = judging.judged(nights(new={"changed": dict(zip(MODELS, TIMES, strict=False))}), "r11", "r12")
    for model, (metric, factor, expected) in zip(MODELS, TIMES, strict=False):
        row = rows.loc[model]
        assert row[f"{metric}_verdict"] == expected
        assert row[f"{metric}_low"] < factor - 1 < row[f"{metric}_high"]
        decided = (expected, metric) if expected != "unchanged" else ("unchanged", "compiled_ms")
        assert (row["verdict"], row["verdict_metric"]) == decided
    assert found.noise["compile_instructions"].typical == pytest.approx(0.001, rel=0.5)


#: Leaks of base and new, and what became of them.
LEAKS = [
    (0.0, 0.0, "unchanged"),
    (0.0, 512.0, "regressed"),  # a leak where there was none, the least that there can be
    (0.0, 300.0, "unchanged"),  # less than a block a call: not every call leaks
    (512.0, 0.0, "improved"),
    (1e6, 1.01e6, "unchanged"),  # the same leak
    (1e6, 1.05e6, "regressed"),
]


def test_a_leak_is_judged_by_how_much_it_grew(nights):
    sides = ({"leaks": {model: case[side] for model, case in zip(MODELS, LEAKS, strict=False)}} for side in (0, 1))
    found, rows = judging.judged(nights(*sides), "r11", "r12")
    for model, (base, new, expected) in zip(MODELS, LEAKS, strict=False):
        row = rows.loc[model]
        assert row[f"{LEAK}_verdict"] == expected
        decided = (expected, LEAK) if expected != "unchanged" else ("unchanged", "compiled_ms")
        assert (row["verdict"], row["verdict_metric"]) == decided
        assert math.isnan(row[f"{LEAK}_change"]) == (base == 0)
        assert (row[f"{LEAK}_base"], row[f"{LEAK}_new"]) == (base, new)
    told = next(one for one in found.to_json()["cells"] if one["model"] == MODELS[1])
    unknown = ("change", "adjusted", "low", "high", "explained", "q", "more_runs")
    assert told["judged"][LEAK] == {"verdict": "regressed", **dict.fromkeys(unknown)}  # and no NaN


def test_runs_of_a_side_that_disagree_about_a_leak_are_asked_for_once_more(nights, tmp_path):
    store = nights(new={"leaks": {MODELS[0]: 4096.0}})
    again = passing(cell(MODELS[0]), metrics={"compiled_ms": 2.0, LEAK: 0.0}, samples={})
    judging.put_run(store, tmp_path, "again", [again], minutes=800, commit=f"{12:040x}")
    row = judging.judged(store, "r11", f"{12:040x}")[1].loc[MODELS[0]]
    assert (row[f"{LEAK}_verdict"], row[f"{LEAK}_more_runs"]) == ("inconclusive", 1)
    assert row["verdict"] == "unchanged"  # by the time


#: Seconds of tuning in base and new, and the verdict where nothing is shared.
TUNED = [
    (20.0, 24.0, "regressed"),
    (20.0, 20.1, "unchanged"),
    (0.0, 20.0, "regressed"),
    (20.0, 0.3, "improved"),
    (0.2, 0.8, None),  # nobody waits for it
]


@pytest.mark.parametrize("is_shared", [False, True])  # who comes first tunes for all
def test_tuning_is_judged_where_somebody_waits_for_it_and_by_itself(store, tmp_path, is_shared):
    testbed = {"gpu": "H100", **({"tuning": "shared"} if is_shared else {})}
    rest = np.geomspace(0.1, 50.0, len(MODELS) - len(TUNED))
    for number in range(13):
        rng = np.random.default_rng(number)
        made = []
        for model, level in zip(MODELS, [*(case[number == 12] for case in TUNED), *rest], strict=True):
            metrics = {"compiled_ms": 2.0 * math.exp(rng.normal(0, 0.002)), "tuning_s": level}
            metrics["tuning_s"] *= math.exp(rng.normal(0, 0.01))
            made.append(passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics))
        commit = f"{number:040x}"
        judging.put_run(store, tmp_path, f"r{number:02}", made, minutes=60 * number, commit=commit, testbed=testbed)
    found, rows = judging.judged(store, "r11", "r12")
    expected = [None if is_shared else verdict for *_, verdict in TUNED]
    assert rows["tuning_s_verdict"].tolist()[: len(TUNED)] == expected
    assert set(rows["tuning_s_verdict"][len(TUNED) :]) <= {None, "unchanged"}
    for one, verdict, case in zip(found.cells, expected, TUNED, strict=False):
        told = [finding.verdict for finding in one.findings if finding.dimension == "compile"]
        assert told == ([verdict] if verdict else [])
        assert one.new.values["tuning_s"] == pytest.approx(case[1], rel=0.1)  # shown as it is


def test_a_recorded_leak_is_fixed_once_two_runs_leak_nothing(nights, tmp_path):
    back, there, open_one = MODELS[:3]
    leaking = dict.fromkeys((back, there, open_one), 2048.0)
    store = nights(new={"leaks": leaking})
    make_run(store, tmp_path, 13, leaks={there: 2048.0})
    make_run(store, tmp_path, 14, leaks={there: 2048.0, open_one: 2048.0})
    for model, expected in ((back, "back"), (there, "still_there"), (open_one, "open")):
        finding = Finding(cell(model).cell_id, "r11", "r12", "leaks", LEAK, 0.0, 2048.0)
        record = open_regression(store, finding, at=START, author="ann")
        with store.connect() as conn:
            assert standing(record, Timeline(conn, [LEAK])).value == expected
