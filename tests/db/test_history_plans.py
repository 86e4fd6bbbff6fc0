"""How SQLite finds a history: what its planner says is held here, since only a large store would show it in time."""

import pytest
from sqlalchemy import event

from db.ingest import ingest_bundle
from db.queries import cells as queries
from db.schema import HISTORY_METRICS
from tests.factories import cell, new_store, night


@pytest.fixture
def two_nights(tmp_path):
    """In a file: PostgreSQL has another index, and judges by how much there is."""
    engine = new_store(tmp_path / "store.db")
    for number in range(2):
        ingest_bundle(engine, night(tmp_path, f"r{number}", minutes=60 * number))
    yield engine
    engine.dispose()


def plan_of(engine, ask, table):
    """The steps that SQLite takes in the statements which `ask` sends and which read a table."""
    sent = []

    def note(conn, cursor, statement, parameters, context, many):
        if f" {table}" in statement:
            sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    ask()
    event.remove(engine, "before_cursor_execute", note)
    with engine.connect() as conn:
        return [row[-1] for item in sent for row in conn.exec_driver_sql("EXPLAIN QUERY PLAN " + item[0], item[1])]


@pytest.mark.parametrize("metrics", [HISTORY_METRICS, ("compile_cold_s",)])
def test_a_models_history_is_read_from_packed_rows_that_lie_side_by_side(two_nights, metrics):
    def ask():
        queries.model_history(two_nights, "huggingface", "bert", metrics=metrics)

    assert plan_of(two_nights, ask, "packed_cells") == ["SEARCH packed_cells USING PRIMARY KEY (model=?)"]
    assert plan_of(two_nights, ask, "measurements") == []


def test_a_suites_history_is_read_from_packed_sums_alone(two_nights):
    assert plan_of(two_nights, lambda: queries.suite_history(two_nights), "packed_sums") == ["SCAN packed_sums"]
    assert plan_of(two_nights, lambda: queries.suite_history(two_nights), "summaries") == []


def test_other_metrics_are_found_by_model_and_by_run(two_nights):
    metrics = (*HISTORY_METRICS, "eager_ms")

    def history():
        queries.model_history(two_nights, "huggingface", "bert", metrics=metrics)

    assert plan_of(two_nights, history, "packed_metrics") == [
        "SEARCH packed_metrics USING INDEX ix_packed_metrics_model (model=?)"
    ]
    assert plan_of(two_nights, history, "measurements") == []
    side = queries.resolve_side(two_nights, "r1")
    steps = plan_of(two_nights, lambda: queries.side_rows(two_nights, side), "packed_metrics")
    assert steps == ["SEARCH packed_metrics USING INDEX sqlite_autoindex_packed_metrics_1 (run=?)"]


def test_both_ways_give_the_same_history(two_nights, tmp_path):
    ingest_bundle(two_nights, night(tmp_path, "late", minutes=300, cells=[cell(), cell("late"), cell(batch_size=2)]))
    short = queries.model_history(two_nights, "huggingface", "bert")
    long = queries.model_history(two_nights, "huggingface", "bert", metrics=(*HISTORY_METRICS, "eager_ms"))
    assert len(short) == 8
    assert short.equals(long[short.columns])


def test_gaps_are_looked_up_by_cell(two_nights):
    steps = plan_of(two_nights, lambda: queries.cell_history(two_nights, cell().cell_id), "planned")
    assert steps == ["SEARCH planned USING COVERING INDEX ix_planned_cell (cell=?)"]


def test_a_side_is_read_through_the_primary_key(two_nights):
    side = queries.resolve_side(two_nights, "r1")
    steps = plan_of(two_nights, lambda: queries.side_rows(two_nights, side), "measurements")
    assert steps == ["SEARCH measurements USING PRIMARY KEY (run=?)"]
