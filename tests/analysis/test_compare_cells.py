import pandas as pd
import pytest

from analysis.compare.tables import compare, compare_cells
from collector.metrics import METRICS
from collector.vocabulary import Status
from db.errors import FilterError
from db.ingest import ingest_bundle
from db.queries.filters import CellFilter
from db.queries.sides import resolve_side
from db.schema import HISTORY_METRICS
from tests.factories import COMMIT_B, cell, failing, header, matrix, night, passing, write_bundle


@pytest.fixture
def sides(store, tmp_path):
    """All pass; then one model fails, one goes missing, one is new and one is slower."""
    ingest_bundle(store, night(tmp_path, "old"))
    cells = [*matrix(["t5", "late"]), cell("bert"), cell("bert")]
    lines = [failing(item, Status.OOM) if item.model == "t5" else passing(item, slower=1.5) for item in cells]
    lines[-1].replicate = 1
    lines[-1].started_at = "2026-08-01T05:00:00+00:00"
    plan = [*matrix(), *matrix(["late"])]
    ingest_bundle(store, write_bundle(tmp_path, header("new", minutes=60, commit=COMMIT_B), lines, planned=plan))
    return resolve_side(store, "old"), resolve_side(store, "new")


@pytest.mark.parametrize("metrics", [HISTORY_METRICS, ("cosine", "compiled_kernel_ms", "compiled_ms"), tuple(METRICS)])
def test_cells_alone_are_those_of_the_whole_comparison(store, sides, metrics):
    whole = compare(store, *sides).cells
    found = compare_cells(store, *sides, metrics=metrics)
    pd.testing.assert_frame_equal(found, whole[found.columns])
    assert {f"{name}{ending}" for name in metrics for ending in ("_base", "_new", "_ratio")} <= set(found.columns)
    assert set(found["transition"]) == {"both_pass", "broke", "missing", "entered"}


def test_cells_alone_by_filter(store, sides):
    wanted = CellFilter(models=("bert", "t5"), configs=("default",))
    found = compare_cells(store, *sides, wanted)
    pd.testing.assert_frame_equal(found, compare(store, *sides, wanted).cells[found.columns])
    assert found["model"].tolist() == ["bert", "t5"]


def test_cells_alone_refuse_names_that_do_not_exist(store, sides):
    with pytest.raises(FilterError):
        compare_cells(store, *sides, CellFilter(models=("brt",)))
    with pytest.raises(KeyError):
        compare_cells(store, *sides, metrics=["1; DROP TABLE runs"])


def test_environments_of_cells_that_the_filter_leaves_out_do_not_differ(store, tmp_path):
    lines = [passing(item) for item in matrix(["bert", "t5"])]
    ingest_bundle(store, write_bundle(tmp_path, header("old"), lines))
    others = [passing(cell("bert")), passing(cell("t5"), environment_id="another")]
    ingest_bundle(store, write_bundle(tmp_path, header("new", minutes=9), others))
    old, new = resolve_side(store, "old"), resolve_side(store, "new")
    # More cells than are asked for by number, and fewer: the answer is that of the filter either way.
    assert compare(store, old, new, CellFilter(models=("bert",))).environment == ()
