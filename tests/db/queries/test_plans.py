"""How SQLite finds rows: the plan is checked here, since only a large store would show a missing index."""

import pytest
from sqlalchemy import event

from db.ingest import ingest_bundle
from tests.db import reads as queries
from tests.factories import new_store, night


@pytest.fixture(scope="module")
def two_nights(tmp_path_factory):
    """In a file: PostgreSQL plans by how much there is."""
    folder = tmp_path_factory.mktemp("plans")
    engine = new_store(folder / "store.db")
    for number in range(2):
        ingest_bundle(engine, night(folder, f"r{number}", minutes=60 * number))
    yield engine
    engine.dispose()


def plan_of(engine, ask, table):
    """The steps that SQLite takes for a table in the statements that `ask` sends."""
    sent = []

    def note(conn, cursor, statement, parameters, context, many):
        sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    ask()
    event.remove(engine, "before_cursor_execute", note)
    with engine.connect() as conn:
        steps = [row[-1] for item in sent for row in conn.exec_driver_sql("EXPLAIN QUERY PLAN " + item[0], item[1])]
    return [step for step in steps if f" {table} " in step]


def test_a_models_history_is_found_by_cell(two_nights):
    def ask():
        queries.model_history(two_nights, "huggingface", "bert")

    assert plan_of(two_nights, ask, "measurements") == ["SEARCH measurements USING INDEX ix_measurements_cell (cell=?)"]
    assert plan_of(two_nights, ask, "planned") == ["SEARCH planned USING COVERING INDEX ix_planned_cell (cell=?)"]


def test_a_side_is_read_through_the_primary_key(two_nights):
    side = queries.resolve_side(two_nights, "r1")
    steps = plan_of(two_nights, lambda: queries.side_rows(two_nights, side), "measurements")
    assert steps == ["SEARCH measurements USING PRIMARY KEY (run=?)"]


def test_a_suites_history_reads_no_measurements(two_nights):
    assert plan_of(two_nights, lambda: queries.suite_history(two_nights), "measurements") == []
