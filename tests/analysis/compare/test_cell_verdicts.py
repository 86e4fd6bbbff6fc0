"""Two sides judged, end to end from bundles: what is said of each cell and why."""

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from analysis.present import drift_lines, noise_line
from collector.vocabulary import Status
from db.engine import open_store
from tests.analysis.compare.judging import cell_of, judged, put_run
from tests.factories import cell, failing, new_store, passing

MODELS = [f"model{number:02}" for number in range(24)]
OTHER_TESTBED = {"accelerator": "another synthetic GPU"}


def make_run(store, folder, number, *, slower=None, sd=0.002, commit=None, code=None, beside=None, **changes):
    """A run of 24 models; `slower` multiplies metrics of single models, or gives another measurement altogether."""
    rng = np.random.default_rng(number)
    made = []
    for level, model in enumerate(MODELS, 1):
        change = (slower or {}).get(model, {})
        if callable(change):
            made.append(change(cell(model)))
            continue
        wall, kernel, compiling = (math.exp(rng.normal(0, sd)) for _ in range(3))
        metrics = {"eager_ms": 4.0 * level, "compiled_ms": 2.0 * level * wall, "compile_cold_s": 10.0 * compiling}
        metrics |= {"eager_kernel_ms": 3.0 * level, "compiled_kernel_ms": 1.5 * level * kernel}
        metrics["compiled_peak_bytes"] = 1e9
        metrics = {name: value * change.get(name, 1.0) for name, value in metrics.items() if change.get(name, 1)}
        metrics |= beside or {}
        found = passing(cell(model), minutes=60 * number + 1, samples={}, metrics=metrics)
        made.append(replace(found, code_id=code))
    head = {"minutes": 60 * number, "commit": commit or f"{number:040x}"}
    put_run(store, folder, f"r{number:02}", made, **head, **changes)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The path of a store of twelve nights, from which the noise is known."""
    folder = tmp_path_factory.mktemp("quiet")
    store = new_store(folder / "store.db")
    for number in range(12):
        make_run(store, folder, number)
    store.dispose()
    return folder / "store.db"


@pytest.fixture
def history(quiet, tmp_path):
    """A copy of the quiet nights."""
    store = open_store(shutil.copy(quiet, tmp_path / "copy.db"), write=True)
    yield store
    store.dispose()


def test_a_branch_run_is_judged_by_the_nights_of_main_on_its_testbed(history, tmp_path):
    slower = {MODELS[3]: {"compiled_ms": 1.05, "compiled_kernel_ms": 1.05}}
    for number, changes in ((12, {}), (13, {"testbed": OTHER_TESTBED})):
        branch = {"commit": f"{number:x}" * 40, "branch": f"mine-{number}", "branch_start": f"{11:040x}"}
        make_run(history, tmp_path, number, slower=slower, **branch, **changes)
    make_run(history, tmp_path, 14, testbed=OTHER_TESTBED)
    found, cells = judged(history, f"main@{11:040x}", "r12")
    assert found.counts() == {"regressed": 1, "unchanged": 23}
    row = cells.loc[MODELS[3]]
    assert (row["verdict"], row["verdict_metric"]) == ("regressed", "compiled_ms")
    assert row["compiled_ms_low"] < 0.05 < row["compiled_ms_high"]
    assert row["compiled_ms_q"] < 0.001
    assert found.noise["compiled_ms"].repeats > 100  # of which the branch itself has none
    elsewhere = judged(history, "r14", "r13")[0]
    assert (elsewhere.noise["compiled_ms"].repeats, elsewhere.counts()) == (0, {"inconclusive": 24})


#: By what metrics of a model are multiplied (0: not measured), its verdict and the metric that decides it.
NAMED = [
    ({"compiled_ms": 0.9, "compiled_kernel_ms": 0.9}, "improved", "compiled_ms"),
    ({"compiled_peak_bytes": 1.01}, "unchanged", "compiled_ms"),  # certain, and too little to matter
    ({"compiled_ms": 0.9, "compile_cold_s": 1.3}, "regressed", "compile_cold_s"),  # the worse is said first
    ({"compiled_kernel_ms": 1.1}, "unchanged", "compiled_ms"),  # hidden behind the launches: no user waits for it
    ({"compiled_ms": 0, "compiled_kernel_ms": 1.1}, "regressed", "compiled_kernel_ms"),
]


def test_what_changed_is_named(history, tmp_path):
    make_run(history, tmp_path, 12, slower={model: case[0] for model, case in zip(MODELS, NAMED, strict=False)})
    _, cells = judged(history)
    found = cells[["verdict", "verdict_metric"]].head(len(NAMED)).to_numpy().tolist()
    assert found == [[verdict, metric] for _, verdict, metric in NAMED]


ALL_TIMES = ("eager_ms", "compiled_ms", "eager_kernel_ms", "compiled_kernel_ms")


def test_a_device_that_was_a_little_slower_all_night_slows_no_cell(history, tmp_path):
    make_run(history, tmp_path, 12, slower=dict.fromkeys(MODELS, dict.fromkeys(ALL_TIMES, 1.008)))
    found, cells = judged(history)
    assert cells["compiled_ms_explained"].tolist() == pytest.approx([0.008] * 24)
    assert found.counts() == {"unchanged": 24}
    told = {name: metric["drift"] for name, metric in found.verdicts_json()["metrics"].items() if metric["drift"]}
    assert told == pytest.approx({"compiled_ms": 0.008, "compiled_kernel_ms": 0.008})
    assert found.control_notes == ()


@pytest.mark.parametrize(
    ("times", "word", "notes"),
    [
        # Below the cap: no proof that nothing changed.
        (dict.fromkeys(ALL_TIMES, 1.025), "inconclusive", []),
        (dict.fromkeys(ALL_TIMES, 1.1), "regressed", ["eager changed in 24 of 24 models, by +10.0 %"]),
        # A faster eager makes no compiled program slower.
        ({"eager_ms": 0.95, "eager_kernel_ms": 0.95}, "unchanged", ["eager changed in 24 of 24 models, by -5.0 %"]),
    ],
)
def test_more_than_a_machine_drifts_is_not_taken_for_its_drift(history, tmp_path, times, word, notes):
    make_run(history, tmp_path, 12, slower=dict.fromkeys(MODELS, times))
    found, _ = judged(history)
    assert found.counts() == {word: 24}
    assert [note.partition(" (")[0] for note in found.control_notes] == notes


def launch_bound(store, folder, number, slowed):
    """A night in which half of the models wait for a host whose pace changes from process to process, and one is slowed."""
    rng = np.random.default_rng(500 + number)
    pace = {model: math.exp(rng.normal(0, 0.15)) if place % 2 else 1.0 for place, model in enumerate(MODELS)}
    both = {model: {"eager_ms": value, "compiled_ms": value**0.9} for model, value in pace.items()}
    if slowed:
        both[slowed]["compiled_ms"] *= 1.08
    make_run(store, folder, number, slower=both, sd=0.004)


def test_what_the_eager_run_beside_it_explains_is_no_change(store, tmp_path):
    for number in range(13):
        launch_bound(store, tmp_path, number, slowed=MODELS[3] if number == 12 else None)
    found, cells = judged(store)
    # Of launch-bound cells 15 % of noise are left a few per cent, and a slow-down of 8 % is seen through it.
    assert found.noise["compiled_ms"].typical < 0.01
    assert (cells.loc[MODELS[3], "verdict"], cells.loc[MODELS[3], "verdict_metric"]) == ("regressed", "compiled_ms")
    assert found.counts() == {"regressed": 1, "unchanged": 23}
    explained = cells["compiled_ms_explained"]
    assert explained[MODELS[1::2]].abs().max() > 0.05
    assert explained[MODELS[0::2]].abs().max() < 0.005


@pytest.mark.parametrize(
    ("change", "code", "runs", "expected"),
    [
        ({"compiled_ms": 1.08}, "one", 1, ("inconclusive", 1.0)),
        ({"compiled_ms": 1.08}, "one", 2, ("regressed", 0.0)),
        ({"compiled_ms": 1.08}, "other", 1, ("regressed", 0.0)),
        ({"compiled_ms": 1.08, "compiled_kernel_ms": 1.08}, "one", 1, ("regressed", 0.0)),
    ],
)
def test_a_latency_that_changed_without_the_program_must_be_seen_twice(history, tmp_path, change, code, runs, expected):
    for number in range(runs):
        make_run(history, tmp_path, 12 + number, commit="a" * 40, code="one")
        make_run(history, tmp_path, 14 + number, commit="b" * 40, code=code, slower={MODELS[5]: change})
    row = judged(history, "a" * 40, "b" * 40)[1].loc[MODELS[5]]
    assert tuple(row[["compiled_ms_verdict", "compiled_ms_more_runs"]]) == expected
    assert (row["verdict"], row["verdict_metric"]) == (expected[0], "compiled_ms")


def test_without_any_repeat_only_what_doubled_or_halved_is_concluded(store, tmp_path):
    slower = {"compiled_ms": 8.4}, {"compiled_ms": 0.3}, {"compiled_ms": 1.8}, {"compiled_ms": 8.4, "eager_ms": 8.4}
    make_run(store, tmp_path, 0)
    make_run(store, tmp_path, 1, slower=dict(zip(MODELS, slower, strict=False)))
    found, cells = judged(store)
    assert found.counts() == {"regressed": 1, "improved": 1, "inconclusive": 22}
    assert cells["compiled_ms_verdict"].tolist()[:4] == ["regressed", "improved", "inconclusive", "inconclusive"]
    assert {one.typical for one in found.noise.values()} == {None}
    assert cells["compiled_ms_more_runs"].isna().all() and cells["compiled_ms_low"].isna().all()


def test_a_cell_that_comes_and_goes_is_flaky_until_it_ends_alike_twice(history, tmp_path):
    broken = {MODELS[0]: lambda which: failing(which, minutes=900)}
    never = {MODELS[1]: lambda which: failing(which, Status.MODEL_FAIL_TO_LOAD, minutes=900)}
    for number, slower, verdict in ((12, broken, "broke"), (13, {}, "fixed"), (14, broken, "flaky")):
        make_run(history, tmp_path, number, slower=slower | never)
        assert judged(history)[1].loc[MODELS[0], "verdict"] == verdict
    make_run(history, tmp_path, 15, slower=broken | never)
    verdicts = judged(history, "latest~2", "latest")[1]["verdict"].tolist()
    assert verdicts[:3] == ["broke", "still_failing", "unchanged"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"commit": f"{11:040x}"}, "environment_changed"),
        ({"slower": {MODELS[0]: {"compiled_ms": 2.0}}}, "inconclusive"),
    ],
)
def test_another_testbed_settles_nothing_and_explains_the_same_code(history, tmp_path, changes, word):
    make_run(history, tmp_path, 12, testbed=OTHER_TESTBED, **changes)
    assert judged(history, "r11")[0].counts() == {word: 24}


def test_changed_code_is_compared_with_the_night_that_timed_its_base(history, tmp_path):
    """Run 12 timed all, 13 none, and in 14 one cell has other code, 20 % slower; the others are carried over again."""

    def coded(number, level, timed, code, slower=1.0):
        times = {"compiled_ms": 2.0 * level * slower, "compiled_kernel_ms": 1.5 * level * slower}
        times = times | {"eager_ms": 4.0 * level} if timed else {}
        how = {"metrics": {"compile_cold_s": 10.0} | times, "samples": {}, "code_id": code}
        details = {} if timed else {"only": "code", "same_code_as": "r12"}
        return lambda which: passing(which, minutes=60 * number + 1, details=details, **how)

    for number in (12, 13, 14):
        made = {model: coded(number, level, number == 12, model) for level, model in enumerate(MODELS, 1)}
        if number == 14:
            made[MODELS[3]] = coded(number, 4, True, "other", 1.2)
        make_run(history, tmp_path, number, slower=made)
    judgement, cells = judged(history, "r13", "r14")
    assert judgement.counts() == {"regressed": 1, "unchanged": 23}
    changed, stayed = cells.loc[MODELS[3]], cells.loc[MODELS[4]]
    assert (changed["verdict"], changed["verdict_metric"]) == ("regressed", "compiled_ms")
    assert changed["compiled_ms_base"] == pytest.approx(8.0)
    assert changed["compiled_ms_ratio"] == pytest.approx(1.2)
    assert changed["compiled_ms_change"] == pytest.approx(0.2)
    assert math.isnan(stayed["compiled_ms_base"]) and stayed["code"] == "same code as r12"
    # And the other way round: the carried side is the newer one.
    assert judged(history, "r14", "r13")[1].loc[MODELS[3], "verdict"] == "improved"


def test_yardsticks_tell_a_slower_machine_from_slower_programs(store, tmp_path):
    for number, machine, slower in [*((number, 1.0, 1.0) for number in range(12)), (12, 1.0, 1.025), (13, 1.08, 1.08)]:
        yardsticks = {"yardstick_gpu_ms": 1.7 * machine, "yardstick_copy_ms": 0.8 * machine, "yardstick_host_ms": 3.0}
        times = dict.fromkeys(MODELS, dict.fromkeys(ALL_TIMES, slower))
        make_run(store, tmp_path, number, beside=yardsticks, slower=times)
    found, _ = judged(store, "r11", "r12")  # eager is slower, too, but the machine is not
    assert found.counts() == {"regressed": 24}
    assert found.control_notes[0].startswith("eager changed in 24 of 24 models, by +2.5 %")
    found, _ = judged(store, "r11", "r13")
    assert found.noise["compiled_ms"].drift == pytest.approx(0.08)
    assert found.counts() == {"inconclusive": 24}  # a cell feels more or less of it
    assert found.control_notes == ()
    assert drift_lines(found)[0].startswith("Corrected for machine drift by the yardsticks: ")


def test_a_value_that_other_runs_had_is_no_change_and_is_told_as_a_mode(store, tmp_path):
    fast = {"compiled_ms": 0.96, "compiled_kernel_ms": 0.96}
    for number in range(13):
        make_run(store, tmp_path, number, slower={MODELS[3]: fast} if number in (2, 5, 9, 12) else {})
    found, cells = judged(store)
    assert cells.loc[MODELS[3], "verdict"] == "inconclusive"
    assert cells.loc[MODELS[3], "compiled_kernel_ms_low"] < 0 < cells.loc[MODELS[3], "compiled_kernel_ms_high"]
    (note,) = found.control_notes
    assert MODELS[3] in note and "(0.96 and 1.00)" in note
    assert cell_of(found, MODELS[3]).modes == pytest.approx((0.96, 1.0), abs=0.01)


def test_a_change_that_a_check_measures_in_turn_is_no_mode(store, tmp_path):
    slow = {MODELS[3]: {"compiled_ms": 1.5, "compiled_kernel_ms": 1.5}}
    for number, side in enumerate(["base", "new", "new", "base", "base", "new", "new", "base"]):
        how = {"commit": side.ljust(40, "0"), "night": side}
        make_run(store, tmp_path, number, slower=slow if side == "new" else {}, **how)
    found, cells = judged(store, "base", "new")
    assert (found.counts(), found.control_notes) == ({"regressed": 1, "unchanged": 23}, ())
    assert cells.loc[MODELS[3], "verdict"] == "regressed"


def test_a_host_that_slowed_both_turns_of_a_side_is_no_slower_model(store, tmp_path):
    on_cpu, words = {"eager_kernel_ms": 0, "compiled_kernel_ms": 0}, []
    for number, side in enumerate(["base", "new", "new", "base"] * 2):
        slow = {"eager_ms": 2.5, "compiled_ms": 2.7} if side == "new" else {}
        slower = dict.fromkeys(MODELS, on_cpu) | {MODELS[3]: on_cpu | slow}
        make_run(store, tmp_path, number, slower=slower, commit=side.ljust(40, "0"), night=side, trigger="check")
        if number % 4 == 3:
            words.append(judged(store, "base", "new")[1].loc[MODELS[3], "verdict"])
    assert words == ["inconclusive", "regressed"]  # four turns of each side tell


@pytest.mark.parametrize(("trigger", "word"), [("check", "regressed"), ("adhoc", "inconclusive")])
def test_a_check_assumes_the_noise_of_device_times_and_memory_until_it_has_repeats(store, tmp_path, trigger, word):
    slower = {
        MODELS[1]: {"compiled_kernel_ms": 1.1},
        MODELS[2]: {"compiled_kernel_ms": 1.01},
        MODELS[3]: {"compiled_ms": 1.1},
    }
    slower[MODELS[4]] = {"compiled_peak_bytes": 1.1}
    for number, side in enumerate(("base", "new")):
        head = {"commit": side.ljust(40, "0"), "night": side, "trigger": trigger}
        make_run(store, tmp_path, number, slower=slower if number else {}, **head)
    comparison, cells = judged(store, "base", "new")
    words = [cells.loc[model, "compiled_kernel_ms_verdict"] for model in MODELS[:3]]
    assert words == (["unchanged", "regressed", "inconclusive"] if word == "regressed" else ["inconclusive"] * 3)
    assert cells.loc[MODELS[4], "compiled_peak_bytes_verdict"] == word
    assert cells.loc[MODELS[3], "compiled_ms_verdict"] == "inconclusive", "the noise of latencies depends on the host"
    assert ("assumed, since nothing was measured twice" in noise_line(comparison)) == (trigger == "check")
    without = replace(
        comparison, noise={name: of for name, of in comparison.noise.items() if name != "compiled_kernel_ms"}
    )
    assert noise_line(without).startswith("The noise from run to run is not known yet"), "of the memory alone"


def test_a_cell_is_not_unchanged_while_its_compile_time_may_be_much_worse(store, tmp_path):
    for number in range(13):
        random = np.random.default_rng(number)
        noise = {model: {"compile_cold_s": math.exp(random.normal(0, 0.2))} for model in MODELS}
        if number >= 11:
            noise[MODELS[3]] = {"compile_cold_s": 1.3 if number == 12 else 1.0}
        make_run(store, tmp_path, number, slower=noise)
    _, cells = judged(store)
    row = cells.loc[MODELS[3]]
    assert (row["compiled_ms_verdict"], row["compile_cold_s_verdict"]) == ("unchanged", "inconclusive")
    assert row["compile_cold_s_adjusted"] > 0.25
    assert tuple(row[["verdict", "verdict_metric"]]) == ("inconclusive", "compile_cold_s")
