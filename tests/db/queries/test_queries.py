import math
import re
from pathlib import Path

import pytest
from sqlalchemy import event, func, select, text, update

from collector.metrics import METRICS
from collector.vocabulary import Status
from db.ingest import ingest_bundle
from db.queries.cells import CellFilter, check_filter, expand_patterns
from db.queries.details import configs_of
from db.queries.side_rows import drop_promises, taken_on
from db.schema import ConfigRow, Planned, Run
from db.store_errors import FilterError, StoreError
from tests.db import reads as queries
from tests.factories import COMMIT_A, COMMIT_B, CONFIGS, cell, failing, header, matrix, night, passing, write_bundle


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


@pytest.mark.parametrize("shared", ["sqlite"], indirect=True)
def test_a_pattern_stands_for_its_names_or_the_nearest_is_named(nights):
    for wanted, names in (
        (CellFilter(models=("[bg]*", "bert")), CellFilter(models=("bert", "gpt2"))),
        (CellFilter(suites=("hugging*",), configs=("cuda*",)), CellFilter(("huggingface",), configs=("cudagraphs",))),
        (CellFilter(models=("huggingface/b*",)), CellFilter(("huggingface",), models=("bert",))),
    ):
        assert expand_patterns(nights, wanted) == names
    for wanted in (CellFilter(models=("bert", "brt*")), CellFilter(devices=("cuba\n",))):
        for check in (check_filter, expand_patterns):
            with pytest.raises(FilterError, match=r"; nearest: (bert|cuda)") as caught:
                check(nights, wanted)
            assert "\n" not in str(caught.value)


def test_a_cell_planned_again_and_not_measured_again_keeps_its_measurement(store, tmp_path):
    ingest_bundle(store, write_bundle(tmp_path, header("first"), [passing(cell())]))
    ingest_bundle(store, write_bundle(tmp_path, header("second", minutes=60), [], planned=[cell()]))
    rows = queries.side_rows(store, queries.resolve_side(store, "main"))
    assert rows["status"].tolist() == ["pass"]


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


def test_known_configs_come_back_as_they_were_asked_for(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "one", cells=matrix(["bert"])))
    known = {config.config_id: config for config in CONFIGS}
    many = [f"{number:012x}" for number in range(1200)]  # more than a statement takes
    assert configs_of(store, [*known, *many, *known]) == known
    first = known.pop(CONFIGS[0].config_id)
    with store.begin() as conn:  # a request of another version is left out
        conn.execute(update(ConfigRow).where(ConfigRow.config_id == first.config_id).values(request={"novel": 1}))
    assert configs_of(store, [first.config_id, *known]) == known


# Queries that docs/store.md shows


PAGE = Path(__file__).parents[3] / "docs" / "store.md"
QUERIES = re.findall(r"^```sql\n(.*?);\n```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def answers(store, tmp_path):
    """The rows of the six queries, after two runs: the second is slower, and one of its cells fails."""
    ingest_bundle(store, night(tmp_path, "RUN-A", cells=[cell("T5Small"), cell("bert")]))
    slower = [passing(cell("T5Small"), slower=1.5, minutes=61), failing(cell("bert"), Status.OOM, minutes=61)]
    ingest_bundle(store, write_bundle(tmp_path, header("RUN-B", minutes=60), slower))
    with store.connect() as conn:
        return [conn.execute(text(query)).mappings().all() for query in QUERIES]


def test_the_page_shows_six_queries_that_answer(answers):
    everything, latency, slowed, failures, averages, series = answers
    rows = [(row["run_id"], row["model"], row["sha"]) for row in everything]
    assert rows == [(run, "T5Small", COMMIT_A) for run in ("RUN-A", "RUN-B")]
    assert set(METRICS) < set(everything[0])
    assert [row["speedup"] for row in latency] == [row["speedup"] for row in everything]
    assert [(row["model"], row["change"] > 0.4) for row in slowed] == [("T5Small", True)]
    assert [(row["status"], row["cells"], row["example"]) for row in failures] == [("oom", 1, "bert")]
    rows = [(row["night"], row["suite"], row["name"], row["passed"]) for row in averages]
    assert rows == [(run, "huggingface", "default", passed) for run, passed in (("RUN-A", 2), ("RUN-B", 1))]
    assert [(row["metric"], row["value"]) for row in series] == [("default", row["speedup"]) for row in everything]
    assert series[0]["time"] < series[1]["time"]


# How SQLite finds rows: only a large store would show a missing index


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


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)  # PostgreSQL plans by how much there is
def test_histories_and_sides_are_found_through_an_index(store, tmp_path):
    for number in range(2):
        ingest_bundle(store, night(tmp_path, f"r{number}", minutes=60 * number))
    side = queries.resolve_side(store, "r1")
    history = lambda: queries.model_history(store, "huggingface", "bert")  # noqa: E731
    assert plan_of(store, history, "measurements") == ["SEARCH measurements USING INDEX ix_measurements_cell (cell=?)"]
    assert plan_of(store, history, "planned") == ["SEARCH planned USING COVERING INDEX ix_planned_cell (cell=?)"]
    steps = plan_of(store, lambda: queries.side_rows(store, side), "measurements")
    assert steps == ["SEARCH measurements USING PRIMARY KEY (run=?)"]
    assert plan_of(store, lambda: queries.suite_history(store), "measurements") == []


# What the runs of a night took on, and runs that are nothing but promises


A, B, C = (cell(model) for model in "abc")


def count(store, table):
    with store.connect() as conn:
        return conn.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_night_takes_on_what_its_runs_plan_until_a_promise_is_dropped(store, tmp_path):
    ingest_bundle(store, write_bundle(tmp_path, header("one", night="n"), [passing(A)], planned=[A, B]))
    ingest_bundle(store, night(tmp_path, "other", cells=[C]))
    promised = header("n-absent", night="n")
    ingest_bundle(store, write_bundle(tmp_path, promised, [], planned=[C, B]))
    found = taken_on(store, "n", besides="n-absent")
    assert [run.run_id for run in found.runs] == ["one"]
    assert found.cells == {A.cell_id, B.cell_id}
    assert taken_on(store, "n", besides="").cells == {A.cell_id, B.cell_id, C.cell_id}
    assert taken_on(store, "nowhere", besides="").runs == ()
    # A promise goes with all that hangs on it once it no longer holds; a run with measurements never does.
    assert not drop_promises(store, "n-absent", unless=[B.cell_id, C.cell_id])
    assert (count(store, Run), count(store, Planned)) == (3, 3)
    assert drop_promises(store, "n-absent", unless=[C.cell_id])
    assert (count(store, Run), count(store, Planned)) == (2, 1)
    assert not drop_promises(store, "n-absent", unless=[])
    with pytest.raises(StoreError, match="has measurements"):
        drop_promises(store, "one", unless=[])
    assert count(store, Run) == 2
