"""Two sides by cell: transitions, paired averages, groups and what their environments differ in."""

import json

import pytest

from analysis.compare.cell_comparison import Transition
from analysis.compare.cell_verdicts import decide
from analysis.compare.compare_sides import compare as compare_sides
from analysis.compare.compare_sides import summarise
from collector.vocabulary import Config, Status
from db.queries.cells import EVERYTHING, CellFilter, check_filter
from db.queries.sides import resolve_side
from db.store_errors import FilterError
from tests.analysis.compare.judging import put_run
from tests.factories import COMMIT_A, COMMIT_B, ENVIRONMENT, TESTBED, cell, failing, passing


def compare(store, base, new, filters=EVERYTHING, configs=None):
    """Two sides, as far as a filter leaves their cells."""
    check_filter(store, filters)
    return compare_sides(store, base, new, configs).only(filters)


@pytest.fixture
def put(store, tmp_path):
    """Stores a run of these measurements and returns its side."""
    count = iter(range(1000))

    def make(measurements, **changes):
        number = next(count)
        put_run(store, tmp_path, f"run-{number}", measurements, minutes=60 * number, **changes)
        return resolve_side(store, f"run-{number}")

    return make


def by_model(comparison):
    return {one.cell.model: one for one in comparison.cells}


#: Planned and not measured.
PLANNED = "planned"
#: How each model ended in base and in new (None where it was not planned), and what that is called.
OUTCOMES = {
    "both": (Status.PASS, Status.PASS, "both_pass"),
    "broke": (Status.PASS, Status.FAIL_ACCURACY, "broke"),
    "fixed": (Status.FAIL_TO_COMPILE, Status.PASS, "fixed"),
    "failing": (Status.OOM, Status.TIMEOUT, "still_failing"),
    "gone": (Status.PASS, PLANNED, "missing"),
    "never": (PLANNED, PLANNED, "missing_in_both"),
    "late": (PLANNED, Status.PASS, "missing_in_base"),
    "left": (Status.PASS, None, "left"),
    "entered": (None, Status.PASS, "entered"),
    "new-and-missing": (None, PLANNED, "entered"),
    "unavailable": (Status.PASS, Status.UNAVAILABLE, "not_applicable"),
    "skipped": (Status.SKIPPED, Status.SKIPPED, "not_applicable"),
}


def test_every_pair_of_outcomes_has_its_transition(store, put):
    sides = []
    for side in (0, 1):
        ends = {cell(model): of_model[side] for model, of_model in OUTCOMES.items() if of_model[side]}
        made = [
            passing(which) if end is Status.PASS else failing(which, end)
            for which, end in ends.items()
            if end != PLANNED
        ]
        sides.append(put(made, planned=list(ends), commit=(COMMIT_A, COMMIT_B)[side]))
    found = compare(store, *sides)
    words = {model: one.transition.value for model, one in by_model(found).items()}
    assert words == {model: word for model, (*_, word) in OUTCOMES.items()}
    told = found.to_json()["transitions"]
    assert (sum(told.values()), told["missing"]) == (12, 1)
    assert any("1 cells that pass in base are unavailable" in note for note in found.notes)
    change = found.suites[0]
    assert (change.listed[Transition.MISSING], change.listed[Transition.LEFT]) == (("gone",), ("left",))
    assert Transition.BOTH_PASS not in change.listed
    assert (change.base.planned, change.base.missing) == (10, 2)
    assert (change.new.planned, change.new.measured, change.new.failed) == (11, 8, 2)


def test_geomeans_are_paired_over_cells_that_pass_on_both_sides(store, put):
    def speed(model, value):
        return passing(cell(model), metrics={"speedup": value, "compile_cold_s": value})

    wrong = failing(cell("d"), Status.FAIL_ACCURACY, metrics={"speedup": 50.0, "compile_cold_s": 50.0})
    base = [speed("a", 2.0), speed("b", 8.0), speed("c", 100.0), wrong, speed("zero", 0.0)]
    new = [speed("a", 4.0), speed("b", 4.0), failing(cell("c")), speed("d", 1.0)]
    suite = compare(store, put(base), put(new, commit=COMMIT_B)).suites[0]
    figure = suite.figures["speedup"]
    assert (figure.n, figure.base, figure.new, figure.ratio) == (2, *map(pytest.approx, (4.0, 4.0, 1.0)))
    assert (figure.base_all.n, figure.base_all.value) == (3, pytest.approx(1600 ** (1 / 3)))
    assert (figure.new_all.n, figure.new_all.value) == (3, pytest.approx(16 ** (1 / 3)))
    assert figure.ratio_all == pytest.approx(0.01 ** (1 / 3))  # all of it is the set of models
    compile_time = suite.figures["compile_cold_s"]
    assert (compile_time.base, compile_time.new, compile_time.to_json()["direction"]) == (5.0, 4.0, "better")


def test_a_config_name_that_two_requests_share_must_be_said_by_id(store, put):
    plain, named, tuned = Config(), Config(template="default"), Config(mode="max-autotune")
    side = put([passing(cell(config=config)) for config in (plain, named, tuned)])
    with pytest.raises(FilterError, match=named.config_id):
        compare(store, side, side, configs=("default", "max-autotune"))
    assert len(compare(store, side, side, configs=(plain.config_id, named.config_id)).cells) == 1


def test_environment_differences_are_listed_key_by_key(store, put):
    newer = {**ENVIRONMENT, "triton": "3.7.0", "torch": {"version": "2.13.0", "git": "b" * 40}, "driver": 590}
    base = put([passing(cell())])
    new = put([passing(cell(), environment_id="newer")], environment=newer, commit=COMMIT_B)
    found = {item.key: (item.base, item.new) for item in compare(store, base, new).environment}
    assert found == {
        "driver": ((), ("590",)),
        "torch.git": (("a" * 40,), ("b" * 40,)),
        "triton": (("3.6.0",), ("3.7.0",)),
    }
    assert compare(store, base, base).environment == ()
    assert compare(store, base, new, CellFilter(models=("bert",))).environment
    # The machine of a cell that one side alone has does not matter.
    for which, environment, name in ((cell(), ENVIRONMENT, "e1"), (cell("alone"), newer, "newer")):
        put([passing(which, environment_id=name)], environment=environment, night="both")
    assert compare(store, base, resolve_side(store, "both")).environment == ()


def test_a_model_that_changed_itself_is_no_regression(store, put):
    def environments(version):
        told = {"target": "m:f", "version": version}
        return {**ENVIRONMENT, "model": {"own": told, "other": {"target": "m:g", "version": "content 1"}}}

    names = [cell(name, suite="user") for name in ("own", "other")]
    base = put([passing(one) for one in names], environment=environments("content 1"))
    slow = [passing(one, slower=2.0, environment_id="later") for one in names]
    new = put(slow, environment=environments("content 2"), commit=COMMIT_B)
    found = compare(store, base, new)
    assert {model: one.model_changed for model, one in by_model(found).items()} == {"own": True, "other": False}
    assert by_model(found)["own"].code == "model changed"
    assert any("1 of 2 cells are of a model that itself changed (own)" in note for note in found.notes)
    outcomes = {model: one.outcome for model, one in by_model(found).items()}
    assert outcomes["own"] == "environment_changed" != outcomes["other"]
    alone = compare(store, base, new, CellFilter(models=("own",)))
    assert alone.obstacle == "the model itself changed in 1 cell: to compare torch, both sides must have the same"
    assert compare(store, base, base).obstacle == ""  # more runs tell more
    assert decide(alone.counts(), frozenset(), obstacle=alone.obstacle) == (
        3,
        f"nothing could be concluded: {alone.obstacle}",
    )


def test_cells_of_a_night_that_moved_to_another_gpu_are_counted(store, put):
    gpus = [{**TESTBED, "gpu_index": index} for index in range(2)]
    for name, commit, first in (("old", COMMIT_A, "ab"), ("next", COMMIT_B, "ac")):
        second = [model for model in "abcd" if model not in first]
        for models, gpu in ((first, gpus[0]), (second, gpus[1])):
            put([passing(cell(model)) for model in models], testbed=gpu, night=name, commit=commit)
    base, new = resolve_side(store, "old"), resolve_side(store, "next")
    found = compare(store, base, new)
    assert found.notes == (
        "2 of 4 cuda cells measured on both sides were measured on different testbeds, where latencies do not compare: "
        "gpu_index in 2 cells (each on another of 0 and 1)",
    )
    assert [row["testbed_changed"] for row in found.to_json()["cells"]] == [False, True, True, False]
    assert {one.transition.value for one in found.cells} == {"both_pass"}  # none of them is hidden
    assert compare(store, base, base).notes == ("base and new are the same runs",)


def test_open_runs_are_one_note_and_a_run_without_cells_does_not_fail(store, put):
    for index in range(3):
        put([passing(cell(f"m{index}"))], night="n", closed=index == 1)
    (note,) = summarise(store, resolve_side(store, "n")).notes
    assert note == "2 of 3 runs of night n have no end record: they were cut short or are still going"
    empty, full = put([]), put([passing(cell())], commit=COMMIT_B)
    for pair in ((empty, full), (full, empty), (empty, empty)):
        found = compare(store, *pair)
        json.dumps(found.to_json(), allow_nan=False)
        assert not any(one.passes for one in found.cells)
    assert summarise(store, empty).suites == ()


def test_a_side_is_the_mean_of_its_runs_and_a_change_is_of_two_means(store, tmp_path):
    """Two runs a night, one of them with a replicate: 2 and 8 ms (4 and 16 there), so 4 ms."""
    for number, latencies in enumerate([(2.0,), (4.0, 16.0), (3.0,), (12.0,)]):
        lines = []
        for at, ms in enumerate(latencies):
            metrics = {"compiled_ms": ms, "graph_breaks": float(number)}
            lines.append(passing(cell(), minutes=60 * number + at, metrics=metrics, replicate=at))
        lines.append(failing(cell("flaky")) if number == 1 else passing(cell("flaky"), metrics={"compiled_ms": 7.0}))
        head = {"minutes": 60 * number, "commit": COMMIT_A if number < 2 else COMMIT_B}
        put_run(store, tmp_path, f"r{number}", lines, **head)
    sides = resolve_side(store, f"main@{COMMIT_A}"), resolve_side(store, f"main@{COMMIT_B}")
    found = by_model(compare(store, *sides))
    base, new = found["bert"].base.values, found["bert"].new.values
    assert (base["compiled_ms"], new["compiled_ms"]) == (pytest.approx(4.0), pytest.approx(6.0))
    assert found["bert"].ratio("compiled_ms") == pytest.approx(1.5)
    assert (base["graph_breaks"], new["graph_breaks"]) == (1.0, 3.0)  # counts of the newest measurement
    assert found["flaky"].base.status == "fail_to_compile"
    assert found["flaky"].new.values["compiled_ms"] == pytest.approx(7.0)
    assert found["bert"].judged["compiled_ms"].change == pytest.approx(0.5)
    summary = {state.cell.model: state for state in summarise(store, sides[0]).cells}
    assert summary["bert"].values["compiled_ms"] == pytest.approx(4.0)
