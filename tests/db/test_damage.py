"""A bundle cut or scratched anywhere: what was whole is stored, what was not is reported, nothing else happens."""

import gzip
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.bundle import BundleError
from db.errors import StoreError
from db.ingest import ingest_bundle
from db.queries import cells as queries
from tests.factories import cell, failing, header, matrix, passing, write_bundle

REUSED = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


#: What a server would make of it is asked in test_postgres.py, where it costs less.
IN_FILES = pytest.mark.parametrize("fresh", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    lines = [passing(item) if item.model != "t5" else failing(item) for item in matrix()]
    return write_bundle(tmp_path_factory.mktemp("whole"), header("r1"), lines, closed=False).read_bytes()


def whole_measurements(data):
    """Cells of the measurement lines that end before the cut."""
    lines = [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
    return {json.dumps(line["cell"], sort_keys=True) for line in lines if line["record"] == "measurement"}


@IN_FILES
@REUSED
@given(at=st.integers(min_value=0, max_value=10**6))
def test_a_plain_bundle_cut_anywhere_keeps_its_whole_lines(whole, fresh, tmp_path, at):
    cut = whole[: at % (len(whole) + 1)]
    path = tmp_path / "cut.jsonl"
    path.write_bytes(cut)
    store = fresh()
    try:
        report = ingest_bundle(store, path)
    except BundleError as error:
        assert cut.count(b"\n") == 0
        assert "\n" not in str(error)
        return
    assert report.new == len(whole_measurements(cut))
    assert bool(report.damage) == (not cut.endswith(b"\n"))
    store.dispose()


@IN_FILES
@REUSED
@given(at=st.integers(min_value=0, max_value=10**6))
def test_a_compressed_bundle_cut_anywhere_gives_a_beginning_of_it(whole, fresh, tmp_path, at):
    packed = gzip.compress(whole, mtime=0)
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(packed[: at % len(packed)])
    store = fresh()
    try:
        report = ingest_bundle(store, path)
    except BundleError:
        assert queries.list_runs(store) == []
        return
    assert report.damage
    expected = [item.cell_id for item in matrix()][: report.new]
    assert [item for item in expected if queries.measurement(store, "r1", item) is None] == []
    store.dispose()


@IN_FILES
@REUSED
@given(seed=st.integers(min_value=0, max_value=10**9))
def test_scratched_bytes_never_raise_anything_unforeseen(whole, fresh, tmp_path, seed):
    rng = random.Random(seed)
    data = bytearray(whole)
    for _ in range(rng.randint(1, 30)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path = tmp_path / "scratched.jsonl"
    path.write_bytes(bytes(data))
    store = fresh()
    try:
        report = ingest_bundle(store, path)
    except BundleError as error:
        assert "\n" not in str(error)
        return
    stored = queries.side_rows(store, queries.resolve_side(store, report.run_id))
    assert stored["status"].notna().sum() == report.new
    store.dispose()


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
