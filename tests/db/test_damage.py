"""A bundle cut or scratched anywhere: what was whole is stored, what was not is reported, nothing else happens."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.bundle import BundleError
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.queries import cells as queries
from tests.factories import cell, header, passing, write_bundle

REUSED = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


#: What a server would make of it is asked in test_postgres.py, where it costs less.
IN_FILES = pytest.mark.parametrize("fresh", ["sqlite"], indirect=True)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("status", "started_at", "wall_s", "metrics", "samples", "details", "failure", "log_tail", "replicate")
NAMES = ("program_id", "environment_id", "cell", "cell.suite", "cell.model", "cell.phase", "cell.batch_size")
DEEPER = ("cell.config", "cell.config.template", "cell.config.overrides", "metrics.speedup", "samples.eager_ms")
PLACES = st.sampled_from([*FIELDS, *NAMES, *DEEPER])


@IN_FILES
@REUSED
@given(place=PLACES, value=VALUES)
def test_any_json_in_any_field_costs_at_most_its_own_line(fresh, tmp_path, place, value):
    good, bad = passing(cell("good")), passing(cell("bad")).to_json() | {"record": "measurement", "failure": {}}
    target = bad
    *path_in, last = place.split(".")
    for step in path_in:
        target = target[step]
    target[last] = value
    (tmp_path / "r1.jsonl").unlink(missing_ok=True)
    path = write_bundle(tmp_path, header("r1"), [good], closed=False)
    path.write_bytes(path.read_bytes() + json.dumps(bad).encode() + b"\n")
    store = fresh()
    report = ingest_bundle(store, path)
    assert report.new == 2 or (report.new == 1 and report.damage)
    assert queries.measurement(store, "r1", good.cell.cell_id).metrics == good.metrics
    again = ingest_bundle(store, path)
    assert (again.new, again.updated, again.changed) == (0, 0, False)
    assert len(queries.side_rows(store, queries.resolve_side(store, "r1"))) >= report.new
    store.dispose()


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"null\n", b"[]\n", b"\x1f\x8b", b"\x1f\x8bgarbage", b"\xff" * 50]
)
def test_what_is_no_bundle_is_refused_in_one_line(store, tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises((BundleError, StoreError)) as caught:
        ingest_bundle(store, path)
    assert "\n" not in str(caught.value)
