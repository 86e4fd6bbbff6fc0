"""A bundle cut or scratched anywhere: what was whole is stored, what was not is reported, nothing else happens."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from db.ingest import ingest_bundle
from tests.db import reads as queries
from tests.factories import cell, header, passing, write_bundle

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


@pytest.mark.parametrize("fresh", ["sqlite"], indirect=True)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(odd=st.lists(st.tuples(st.sampled_from([*FIELDS, *NAMES, *DEEPER]), VALUES), min_size=1, max_size=12))
def test_any_json_in_any_field_costs_at_most_its_own_line(fresh, tmp_path, odd):
    (tmp_path / "r1.jsonl").unlink(missing_ok=True)
    path = write_bundle(tmp_path, header("r1"), [good := passing(cell("good"))], closed=False)
    line = {"record": "measurement", "failure": {}}
    bad = [passing(cell(f"bad{number}")).to_json() | line for number in range(len(odd))]
    lines = [with_value(line, place, value) for line, (place, value) in zip(bad, odd, strict=True)]
    path.write_bytes(path.read_bytes() + b"".join(lines))
    store = fresh()
    report = ingest_bundle(store, path)
    assert 1 <= report.new <= 1 + len(odd)
    assert report.new == 1 + len(odd) or report.damage or "cell" in str(odd)  # two may have become one cell
    assert queries.measurement(store, "r1", good.cell.cell_id).metrics == good.metrics
    again = ingest_bundle(store, path)
    assert (again.new, again.updated, again.changed) == (0, 0, False)
    assert len(queries.side_rows(store, queries.resolve_side(store, "r1"))) >= report.new
    store.dispose()
