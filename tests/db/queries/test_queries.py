import math

import pytest
from sqlalchemy import update

from db.ingest import ingest_bundle
from db.queries.cells import CellFilter, check_filter, expand_patterns
from db.queries.details import configs_of
from db.schema import ConfigRow
from db.store_errors import FilterError, SideError
from tests.db import reads as queries
from tests.factories import (
    COMMIT_B,
    CONFIGS,
    LABEL,
    TESTBED,
    cell,
    failing,
    header,
    matrix,
    night,
    passing,
    write_bundle,
)


@pytest.fixture(scope="module")
def nights(shared, tmp_path_factory):
    """Three nights of main: all pass; t5 fails and gpt2 goes missing; all pass again, half as fast."""
    store, tmp_path = shared, tmp_path_factory.mktemp("nights")
    ingest_bundle(store, night(tmp_path, "n1", minutes=0))
    lines = [failing(item, minutes=61) if item.model == "t5" else passing(item, minutes=61) for item in matrix()]
    kept = [line for line in lines if line.cell.model != "gpt2"]
    ingest_bundle(store, write_bundle(tmp_path, header("n2", minutes=60, commit=COMMIT_B), kept, planned=matrix()))
    slow = [passing(item, minutes=121, slower=2.0) for item in matrix()]
    ingest_bundle(store, write_bundle(tmp_path, header("n3", minutes=120, commit="c" * 40, branch="slow"), slow))
    return store


def test_runs_are_listed_newest_first_with_their_counts(nights):
    runs = queries.list_runs(nights)
    assert [run.run_id for run in runs] == ["n3", "n2", "n1"]
    assert [(run.planned, run.measured, run.missing) for run in runs] == [(9, 9, 0), (9, 6, 3), (9, 9, 0)]
    assert runs[1].statuses == {"pass": 3, "fail_to_compile": 3}
    assert (runs[0].label, runs[0].testbed, runs[0].bundle) == (LABEL, TESTBED, "n3.jsonl.gz")
    assert queries.branches(nights) == ["slow", "main"]
    gone = cell("gpt2").cell_id
    assert (queries.measurement(nights, "n2", gone), queries.evidence(nights, "n2", gone)) == (None, ({}, None))


@pytest.mark.parametrize("shared", ["sqlite"], indirect=True)
@pytest.mark.parametrize("check", [check_filter, expand_patterns])
def test_an_unknown_name_in_a_filter_names_the_nearest(nights, check):
    for wanted in (CellFilter(models=("bert", "brt*")), CellFilter(devices=("cuba\n",))):
        with pytest.raises(FilterError, match=r"; nearest: (bert|cuda)") as caught:
            check(nights, wanted)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shared", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (CellFilter(models=("[bg]*", "bert")), CellFilter(models=("bert", "gpt2"))),
        (CellFilter(suites=("hugging*",), configs=("cuda*",)), CellFilter(("huggingface",), configs=("cudagraphs",))),
        (CellFilter(models=("huggingface/b*",)), CellFilter(("huggingface",), models=("bert",))),
    ],
)
def test_a_pattern_stands_for_the_names_that_it_matches(nights, wanted, names):
    assert expand_patterns(nights, wanted) == names


def test_a_cell_planned_again_and_not_measured_again_keeps_its_measurement(store, tmp_path):
    ingest_bundle(store, write_bundle(tmp_path, header("first"), [passing(cell())]))
    ingest_bundle(store, write_bundle(tmp_path, header("second", minutes=60), [], planned=[cell()]))
    rows = queries.side_rows(store, queries.resolve_side(store, "main"))
    assert rows["status"].tolist() == ["pass"]


def history_of(nights, model="bert", **asked):
    history = queries.model_history(nights, "huggingface", model, **asked)
    return history[history["config"] == "default"].reset_index(drop=True)


def test_history_of_a_model_goes_through_all_runs_and_shows_gaps(nights):
    history = history_of(nights, "gpt2")
    assert history["run_id"].tolist() == ["n1", "n2", "n3"]
    assert history["status"].fillna("missing").tolist() == ["pass", "missing", "pass"]
    assert history["compiled_ms"].isna().tolist() == [False, True, False]
    assert history["compiled_kernel_ms"][2] == pytest.approx(2 * history["compiled_kernel_ms"][0])
    assert history_of(nights, "nonsense").empty


def test_history_of_a_suite_agrees_with_the_rows(nights):
    history = queries.suite_history(nights).set_index(["run_id", "config"]).sort_index()
    counts = ["planned", "measured", "missing", "passed", "failed"]
    assert history.loc[("n2", "default"), counts].tolist() == [3, 2, 1, 1, 1]
    assert history.loc[("n2", "default"), "pass_rate"] == 1 / 2
    rows = queries.side_rows(nights, queries.resolve_side(nights, "n1"))
    own = rows[rows["config"] == "default"]
    for metric in ("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "compression"):
        expected = math.exp(sum(map(math.log, own[metric])) / 3)
        assert history.loc[("n1", "default"), metric] == pytest.approx(expected)
    assert history.loc[("n1", "default"), "compile_cold_s"] == pytest.approx(own["compile_cold_s"].mean())


def test_an_empty_store_answers_everything(store):
    assert queries.list_runs(store) == []
    assert queries.branches(store) == []
    for text in ("latest", "main"):
        with pytest.raises(SideError, match="inductor-watch nightly"):
            queries.resolve_side(store, text)
    assert queries.axes(store).suites == ()
    assert queries.revision(store) == 0
    assert queries.suite_history(store).empty
    assert queries.model_history(store, "huggingface", "bert").empty


def test_known_configs_come_back_as_they_were_asked_for(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "one", cells=matrix(["bert"])))
    known = {config.config_id: config for config in CONFIGS}
    many = [f"{number:012x}" for number in range(1200)]  # more than a statement takes
    assert configs_of(store, [*known, *many, *known]) == known
    first = known.pop(CONFIGS[0].config_id)
    with store.begin() as conn:  # a request of another version is left out
        conn.execute(update(ConfigRow).where(ConfigRow.config_id == first.config_id).values(request={"novel": 1}))
    assert configs_of(store, [first.config_id, *known]) == known
