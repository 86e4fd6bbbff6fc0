"""Damaged files: nothing but lines of error. `tests/chaos/test_inputs.py` damages tables and looks for whole rows."""

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.bundle import read_bundle
from db.importing.importer import store
from tests.db.importing.foreign import put, read, record
from tests.db.test_ingest import VALUES, with_value
from tests.factories import new_store

FEW = settings(max_examples=12, deadline=None)
LOG = b"".join(
    b"[Processing] samples/a/m%d\n[Config] device: cuda\n[DataType] float32\n[Result] status: success\n" % n
    for n in range(8)
)


@FEW
@given(at=st.integers(0, len(LOG)), junk=st.binary(max_size=9), dropped=st.integers(0, 40))
def test_a_damaged_log_raises_nothing_and_says_lines(tmp_path_factory, at, junk, dropped):
    folder = tmp_path_factory.mktemp("damaged")
    report = read(folder, put(folder, "run.log", LOG[:at] + junk + LOG[at + dropped :]))
    for line in [*report.problems, *(file.problem for file in report.files)]:
        assert "\n" not in line
    assert report.runs or report.problems or report.files[0].problem
    for run in report.runs:
        assert read_bundle(Path(run.bundle)).damage == []


PLACES = (
    *("benchmark", "model", "metric", "benchmark.name", "benchmark.mode", "benchmark.dtype", "benchmark.extra_info"),
    *("model.name", "model.backend", "model.origins", "metric.name", "metric.benchmark_values", "metric.extra_info"),
    *("timestamp", "head_sha", "head_branch", "repo", "workflow_id", "run_attempt", "runners", "dependencies"),
    *("benchmark.extra_info.device", "benchmark.extra_info.batch_size", "benchmark.extra_info.inductor_config"),
    *("benchmark.extra_info.disable_cudagraphs", "benchmark.extra_info.output", "benchmark.extra_info.quantization"),
)


@FEW
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_any_json_in_any_field_costs_at_most_its_own_record(tmp_path_factory, place, value):
    good, bad = record("speedup", 1.5, model="good"), record("speedup", 1.6, model="bad")
    folder = tmp_path_factory.mktemp("any")
    report = read(folder, put(folder, "x.json", json.dumps(good).encode() + b"\n" + with_value(bad, place, value)))
    engine = new_store(folder / "s.db")
    store(engine, report)
    engine.dispose()
    measured = [item for run in report.runs for item in read_bundle(Path(run.bundle)).measurements]
    assert [item.metrics for item in measured if item.cell.model == "good"] == [{"speedup": 1.5}]
    assert len(measured) == 2 or report.problems
