import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlalchemy.event import listen

from collector.usage_errors import BundleError
from db.ingest import ingest_bundle
from db.queries.details import throttled_by
from db.queries.series import repeats
from db.schema import measurements, results
from db.store_errors import StoreError
from db.stored_values import pack, to_epoch, unpack
from tests.db import reads as queries
from tests.factories import at, cell, failing, header, matrix, new_store, night, passing, write_bundle


def test_every_value_of_a_measurement_comes_back(store, tmp_path):
    sent = passing(cell(), details={"kernels": [{"name": "triton_poi", "us": 1.5}]}, log_tail="two\nlines")
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), [sent]))
    found = queries.measurement(store, "r1", sent.cell.cell_id)
    assert (found.cell.as_cell(), found.metrics) == (sent.cell, sent.metrics)
    assert (found.status, found.wall_s, found.replicate) == ("pass", sent.wall_s, 0)
    assert found.started_at.timestamp() == to_epoch(sent.started_at)
    assert (found.details, found.log_tail) == (sent.details, "two\nlines")
    assert (found.program_id, found.environment_id) == (sent.program_id, sent.environment_id)
    samples = queries.samples(store, "r1", sent.cell.cell_id)
    assert {name: list(values) for name, values in samples.items()} == sent.samples
    # What a failure has not measured is NULL.
    broken = failing(cell("t5"), metrics={"graph_breaks": 0.0})
    ingest_bundle(store, write_bundle(tmp_path, header("r2"), [broken]))
    info = queries.measurement(store, "r2", broken.cell.cell_id)
    assert info.metrics == {"graph_breaks": 0.0}
    with store.connect() as conn:
        query = text("SELECT compiled_ms, speedup, cosine FROM results WHERE run_id = 'r2'")
        assert tuple(conn.execute(query).one()) == (None, None, None)


def test_unknown_and_infinite_metrics_do_not_pose_as_measured(store, tmp_path):
    sent = passing(cell(), metrics={"compiled_ms": 2.0, "a_later_one": 0.5, "speedup": 123456.0})
    path = write_bundle(tmp_path, header("r1"), [sent], closed=False)
    path.write_bytes(path.read_bytes().replace(b"123456.0", b"Infinity"))
    ingest_bundle(store, path)
    found = queries.measurement(store, "r1", cell().cell_id)
    assert found.metrics == {"compiled_ms": 2.0}
    assert found.details["other_metrics"] == {"a_later_one": 0.5, "speedup": "inf"}


@pytest.mark.parametrize(("value", "damaged"), [(1e308, 1), (-5.0, 1), (1e-300, 1), (0.0, 0)])
def test_a_value_that_nobody_measures_is_damage(store, tmp_path, value, damaged):
    sent = passing(cell(), metrics={"compiled_ms": value, "cosine": -0.5, "error_margin": 1e40})
    report = ingest_bundle(store, write_bundle(tmp_path, header("r1"), [sent, passing(cell("t5"))]))
    assert (report.new, len(report.damage)) == (2 - damaged, damaged)
    assert all(f"compiled_ms {value:g} is neither 0 nor" in line for line in report.damage)


def test_replicates_are_rows_of_their_own_and_one_cell(store, tmp_path):
    lines = [passing(cell(), minutes=number, seed=number, replicate=number) for number in range(3)]
    report = ingest_bundle(store, write_bundle(tmp_path, header("r1"), lines))
    run = queries.list_runs(store)[0]
    assert (report.new, run.planned, run.measured, run.statuses) == (3, 1, 1, {"pass": 1})
    with store.connect() as conn:
        found = conn.execute(select(measurements.c.compiled_ms).order_by(measurements.c.replicate)).scalars().all()
    assert found == [line.metrics["compiled_ms"] for line in lines]
    assert queries.measurement(store, "r1", cell().cell_id).replicate == 2


def test_an_ingest_that_fails_half_way_leaves_nothing(store, tmp_path):
    with store.begin() as conn:
        conn.execute(text("DROP TABLE summaries"))  # the last table that ingest writes to
    with pytest.raises(StoreError) as caught:
        ingest_bundle(store, night(tmp_path, "r1"))
    assert "\n" not in str(caught.value)
    with store.connect() as conn:
        query = "SELECT id FROM runs UNION ALL SELECT id FROM cells UNION ALL SELECT run FROM samples"
        assert conn.execute(text(query)).all() == []


def test_a_refused_bundle_in_a_transaction_leaves_the_others_of_it(store, tmp_path):
    with store.begin() as conn:
        ingest_bundle(conn, night(tmp_path / "a", "r1"))
        with pytest.raises(StoreError):
            ingest_bundle(conn, night(tmp_path / "b", "r1", branch="other"))
    with store.connect() as conn, conn.begin() as transaction:
        assert ingest_bundle(conn, night(tmp_path, "r2")).new == 9
        transaction.rollback()
    with store.connect() as conn:
        ingest_bundle(conn, night(tmp_path, "r3"))
    assert sorted((run.run_id, run.branch) for run in queries.list_runs(store)) == [("r1", "main"), ("r3", "main")]


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
@pytest.mark.parametrize("change", [{"started_at": "0001-01-01T00:00:00+14:00"}, {"run_id": ""}, {"attempt": 2**40}])
def test_an_unusable_first_line_is_one_line_of_error(store, tmp_path, change):
    path = write_bundle(tmp_path, header("r1"), [passing(cell())], closed=False)
    first, *rest = path.read_bytes().splitlines(True)
    path.write_bytes(json.dumps(json.loads(first) | change).encode() + b"\n" + b"".join(rest))
    with pytest.raises(BundleError) as caught:
        ingest_bundle(store, path)
    assert "\n" not in str(caught.value)
    assert queries.list_runs(store) == []


def test_what_no_database_can_hold_is_reported_and_the_rest_kept(store, tmp_path):
    twice = {"x\x00": [1.0], "x\N{REPLACEMENT CHARACTER}": [2.0]}  # one name, once a database can keep it
    lines = [passing(cell("huge", batch_size=2**70)), passing(cell("odd"), replicate=-1)]
    lines += [passing(cell("good"), samples=twice), passing(cell("soon"), started_at="soon", details={})]
    head = header("r1", started_at="2026-08-01T04:30:00+02:30")
    report = ingest_bundle(store, write_bundle(tmp_path, head, lines))
    assert (report.new, len(report.damage)) == (2, 4)  # the huge cell was planned as well
    assert sum("left out" in line for line in report.damage) == 3
    assert queries.evidence(store, "r1", cell("soon").cell_id) == ({}, None)
    (run,) = queries.list_runs(store)
    assert queries.measurement(store, "r1", cell("soon").cell_id).started_at == run.started_at
    assert run.started_at.isoformat() == at(0)


def test_a_night_of_120_cells_is_stored_by_few_statements(store, tmp_path):
    path = night(tmp_path, "r1", cells=matrix([f"m{number}" for number in range(40)]))
    asked = []
    listen(store, "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    assert ingest_bundle(store, path).new == 120
    assert len(asked) < 60  # rows go in by the thousand (`benchmarks/store.py` has the seconds)


# What held the clocks back


def after(held_by):
    return {"surroundings": {"before": {"clocks_held_by": ["power_cap"]}, "after": {"clocks_held_by": held_by}}}


def test_the_reasons_right_after_the_rounds_are_a_column_like_a_metric(store, tmp_path):
    assert throttled_by(after([])) == ()  # held back by what ran before it, and not any more
    assert throttled_by(after(["power_cap", "hardware_thermal"])) == ("hardware_thermal", "power_cap")
    for untold in ({}, {"surroundings": {"after": {"load1": 1.0}}}, after("x")):
        assert throttled_by(untold) is None
    details = {"a": after(["power_cap", "software_thermal"]), "b": after(["idle"]), "c": {}}
    lines = [passing(cell(model), details=found) for model, found in details.items()]
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), lines))
    with store.connect() as conn:
        query = select(results.c.model, results.c.throttled).order_by(results.c.model)
        assert conn.execute(query).all() == [("a", "power_cap,software_thermal"), ("b", ""), ("c", None)]
    rows = repeats(store, [queries.resolve_side(store, "r1")], ["throttled"]).rows
    assert rows["throttled"].fillna(-1).sort_values().tolist() == [-1, 0, 1]


# Samples as they are packed for the store


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40))
def test_samples_come_back_bit_for_bit(values):
    assert np.array_equal(unpack(*pack(values)), np.array(values, dtype=float), equal_nan=True)


def test_the_formats_of_older_rows_are_read():
    millionths = np.array([1_500_000, 0, 250], "<u4").view(np.uint8).reshape(-1, 4).T
    for number_format, data, values in (
        ("<f4", np.array([0.5, 3.0], "<f4"), [0.5, 3.0]),
        ("<f8", np.array([0.1]), [0.1]),
        ("<u4e-6", millionths, [1.5, 1.50025]),
    ):
        assert unpack(number_format, zlib.compress(data.tobytes())).tolist() == values


# A bundle cut or scratched anywhere


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("status", "started_at", "wall_s", "metrics", "samples", "details", "failure", "log_tail", "replicate")
NAMES = ("program_id", "environment_id", "cell", "cell.suite", "cell.model", "cell.phase", "cell.batch_size")
DEEPER = ("cell.config", "cell.config.template", "cell.config.overrides", "metrics.speedup", "samples.eager_ms")


def with_value(line, place, value):
    """The line with a value in a field; `place` is the way to it."""
    *way, last = place.split(".")
    target = line
    for step in way:
        target = target[step]
    target[last] = value
    return json.dumps(line).encode() + b"\n"


@settings(max_examples=8, deadline=None)
@given(odd=st.lists(st.tuples(st.sampled_from([*FIELDS, *NAMES, *DEEPER]), VALUES), min_size=1, max_size=12))
def test_any_json_in_any_field_costs_at_most_its_own_line(tmp_path_factory, odd):
    folder = tmp_path_factory.mktemp("damaged")
    path = write_bundle(folder, header("r1"), [good := passing(cell("good"))], closed=False)
    line = {"record": "measurement", "failure": {}}
    bad = [passing(cell(f"bad{number}")).to_json() | line for number in range(len(odd))]
    lines = [with_value(line, place, value) for line, (place, value) in zip(bad, odd, strict=True)]
    path.write_bytes(path.read_bytes() + b"".join(lines))
    store = new_store(folder / "store.db")
    report = ingest_bundle(store, path)
    assert 1 <= report.new <= 1 + len(odd)
    assert report.new == 1 + len(odd) or report.damage or "cell" in str(odd)  # two may have become one cell
    assert queries.measurement(store, "r1", good.cell.cell_id).metrics == good.metrics
    again = ingest_bundle(store, path)
    assert (again.new, again.updated, again.changed) == (0, 0, False)
    assert len(queries.side_rows(store, queries.resolve_side(store, "r1"))) >= report.new
    store.dispose()
