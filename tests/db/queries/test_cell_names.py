from db.ingest import ingest_bundle
from db.queries.cell_names import cell_names
from db.queries.filters import CellFilter
from tests.factories import header, matrix, passing, write_bundle


def test_cells_are_in_the_order_of_their_names_and_a_filter_chooses(store, tmp_path):
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), [passing(item) for item in reversed(matrix())]))
    names = cell_names(store)
    assert names["cell"].tolist() == sorted(str(item) for item in matrix())
    assert cell_names(store, CellFilter(models=("t5",), configs=("default",)))["model"].tolist() == ["t5"]


def test_the_cells_of_a_model_get_numbers_side_by_side(store, tmp_path):
    by_config = sorted(matrix(), key=lambda item: (item.config.name, item.model))
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), [passing(item) for item in by_config]))
    keys = cell_names(store, CellFilter(models=("gpt2",))).index
    assert keys.max() - keys.min() == len(keys) - 1 == 2
