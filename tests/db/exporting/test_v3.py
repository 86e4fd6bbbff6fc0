"""Whole runs as benchmark-v3 records and back: nothing lost, and the published shape kept."""

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.metrics import METRICS
from collector.vocabulary import MARKED, Cell, Config, Failure, Measurement, Phase, Stage, Status
from db.exporting.exporter import export_sides, write_stream
from db.exporting.stored_runs import stored_run
from db.importing.cells import Given
from db.importing.importer import import_files, store
from db.importing.runs import Provenance
from db.ingest import ingest_bundle
from db.queries import cells as queries
from tests.db.answers import answers
from tests.factories import at, header, new_store, passing, write_bundle
from tests.factories import cell as make_cell

SIDES = ("plain", "g0", "g1")

#: The published fields and their types: test-infra's table oss_ci_benchmark_v3 (clickhouse_db_schema) and `output_json` in
#: PyTorch's benchmarks/dynamo/common.py. Only benchmark.name, model.name, metric.name and the values are required.
SCHEMA = {
    **dict.fromkeys(("schema_version", "name", "repo", "head_branch", "head_sha"), str),
    **dict.fromkeys(("timestamp", "workflow_id", "run_attempt", "job_id"), int),
    "runners": [
        {
            **dict.fromkeys(("name", "type", "cpu_info", "mem_info", "gpu_info", "gpu_mem_info"), str),
            **dict.fromkeys(("cpu_count", "avail_mem_in_gb", "gpu_count", "avail_gpu_mem_in_gb"), int),
            "extra_info": dict,
        }
    ],
    "benchmark": {"name": str, "mode": str, "dtype": str, "extra_info": dict},
    "model": {"name": str, "type": str, "backend": str, "origins": [str], "extra_info": dict},
    "inputs": dict,
    "dependencies": dict,
    "metric": {"name": str, "benchmark_values": [float], "target_value": float, "extra_info": dict},
}


def check(value, schema, place=""):
    """Raises `AssertionError` where a record leaves the schema."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), place
        assert set(value) <= set(schema), (place, set(value) - set(schema))
        for name, item in value.items():
            check(item, schema[name], f"{place}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list), place
        for item in value:
            check(item, schema[0], place)
    elif schema is float:
        assert isinstance(value, int | float) and not isinstance(value, bool), place
    else:
        assert isinstance(value, schema) and not (schema is int and isinstance(value, bool)), place


def exported(engine, *sides):
    buffer = io.BytesIO()
    write_stream(engine, sides, "v3", buffer)
    return buffer.getvalue()


def imported(folder, data):
    """A new store that holds what these records tell, and the report."""
    folder.mkdir(exist_ok=True)
    (folder / "x.json").write_bytes(data)
    report = import_files([folder / "x.json"], Provenance(), Given(), folder / "runs")
    engine = new_store(folder / "again.db")
    store(engine, report)
    return engine, report


@pytest.mark.parametrize("is_array", [False, True])
def test_a_store_rebuilt_from_its_export_gives_the_same_answers(full, tmp_path, is_array):
    lines = exported(full, *SIDES).splitlines()
    data = b"[" + b",".join(reversed(lines)) + b"]" if is_array else b"\n".join(lines)
    again, report = imported(tmp_path / "again", data)
    assert report.problems == []
    assert answers(again) == answers(full)
    environment = next(iter(queries.side_environments(full, queries.resolve_side(full, "g0"))))
    assert queries.environment(again, environment) == queries.environment(full, environment)
    program = queries.measurement(full, "plain", make_cell("bert").cell_id).program_id
    assert queries.program(again, program) == queries.program(full, program)
    again.dispose()


def test_every_record_follows_the_published_schema(full):
    records = [json.loads(line) for line in exported(full, *SIDES).splitlines()]
    assert len(records) > 100
    for record in records:
        check(record, SCHEMA)
        assert record["benchmark"]["name"] and record["model"]["name"] and record["metric"]["name"]
        texts = record["metric"].get("extra_info", {}).get("benchmark_values")
        assert record["metric"].get("benchmark_values") or texts
        for item in record["dependencies"].values():
            assert set(item) <= {"repo", "branch", "sha", "version", "extra_info"}


def test_latency_and_ratio_have_the_names_that_pytorch_gives_them(full):
    records = [json.loads(line) for line in exported(full, "plain").splitlines()]
    names = {record["metric"]["name"] for record in records}
    assert {"accuracy", "speedup", "abs_latency", "compression_ratio", "unique_graphs", "graph_breaks"} <= names
    assert "compilation_latency" not in names  # PyTorch means another quantity


def test_samples_are_the_values_of_their_metric(full):
    which = make_cell("bert").cell_id
    wanted = list(queries.samples(full, "plain", which)["compiled_ms"])
    records = [json.loads(line) for line in exported(full, "plain").splitlines()]
    assert wanted in [record["metric"].get("benchmark_values") for record in records]


def test_records_without_the_one_of_their_run_are_read_as_anybodys(full, tmp_path):
    kept = [line for line in exported(full, "plain").splitlines() if b"cells_planned" not in line]
    again, report = imported(tmp_path / "again", b"\n".join(kept))
    assert "without its own record" in report.problems[0]
    rows = queries.side_rows(again, queries.resolve_side(again, "latest"))
    assert sorted(rows["compiled_ms"]) == sorted(
        queries.side_rows(full, queries.resolve_side(full, "plain"))["compiled_ms"]
    )
    again.dispose()


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "x" * 300, "nul\x00"])
def test_a_run_whose_name_is_no_files_name_is_refused(full, tmp_path, name):
    data = exported(full, "plain").replace(b'\\"plain\\"', json.dumps(json.dumps(name))[1:-1].encode())
    (tmp_path / "x.json").write_bytes(data)
    report = import_files([tmp_path / "x.json"], Provenance(), Given(), tmp_path / "runs")
    assert report.is_empty
    assert "not fit for a file" in report.problems[0]
    assert not (tmp_path / "runs").exists()


def test_a_file_that_lost_lines_says_so(full, tmp_path):
    lines = exported(full, "plain").splitlines()
    _, report = imported(tmp_path / "a", b"\n".join(line for line in lines if b'"speedup"' not in line))
    assert len(report.problems) == 9
    assert "1 metrics of measurement 0 are missing" in report.problems[0]


def test_a_bundle_that_is_there_stays_and_is_what_the_store_gets(full, bundles, tmp_path):
    before = (bundles / "plain.jsonl.gz").read_bytes()
    (tmp_path / "x.json").write_bytes(exported(full, "plain"))
    report = import_files([tmp_path / "x.json"], Provenance(), Given(), bundles)
    assert [run.is_new for run in report.runs] == [False]
    assert (bundles / "plain.jsonl.gz").read_bytes() == before


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
OPTIONS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | NUMBERS | TEXTS
CONFIGS = st.builds(
    Config,
    template=st.none() | TEXTS,
    mode=st.none() | TEXTS,
    overrides=st.dictionaries(TEXTS, OPTIONS, max_size=3),
    freezing=st.none() | st.booleans(),
    dynamic=st.none() | st.booleans() | st.just(MARKED),
    fullgraph=st.booleans(),
    backend=TEXTS,
)
CELLS = st.builds(Cell, TEXTS, TEXTS, st.sampled_from(Phase), TEXTS, TEXTS, st.integers(0, 2**31 - 1), CONFIGS)
DETAILS = st.recursive(OPTIONS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
MEASUREMENTS = st.builds(
    Measurement,
    cell=CELLS,
    status=st.sampled_from(Status),
    started_at=st.integers(0, 10**6).map(at),
    wall_s=NUMBERS,
    metrics=st.dictionaries(st.sampled_from(sorted(METRICS)), NUMBERS, max_size=5),
    samples=st.dictionaries(TEXTS | st.sampled_from(sorted(METRICS)), st.lists(st.floats(), max_size=4), max_size=3),
    details=st.dictionaries(TEXTS, DETAILS, max_size=3),
    program_id=st.none() | TEXTS,
    environment_id=st.none() | TEXTS,
    failure=st.none() | st.builds(Failure, st.sampled_from(Stage), TEXTS, TEXTS, st.none() | TEXTS),
    log_tail=st.none() | TEXTS,
    replicate=st.integers(0, 5),
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(found=st.lists(MEASUREMENTS, min_size=1, max_size=3), label=TEXTS, branch=TEXTS.filter(len))
def test_whatever_a_run_holds_comes_back(tmp_path_factory, found, label, branch):
    folder = tmp_path_factory.mktemp("any")
    first = new_store(folder / "first.db")
    finite = [passing(make_cell()), *found]
    for item in finite:
        # A bundle's writer takes no infinite number; the reader takes its text.
        item.samples = {
            name: [v if abs(v) < 1e300 else str(v) for v in values] for name, values in item.samples.items()
        }
    ingest_bundle(first, write_bundle(folder, header("r1", label=label, branch=branch), finite))
    again, report = imported(folder / "again", exported(first, "r1"))
    assert report.problems == []
    # As texts: a sample that is no number equals nothing, not even itself.
    assert repr(stored_run(again, "r1")) == repr(stored_run(first, "r1"))
    assert queries.list_runs(again) == queries.list_runs(first)
    for engine in (first, again):
        engine.dispose()


def test_a_file_gets_what_a_stream_gets(full, tmp_path):
    (written,) = export_sides(full, ["n"], "v3", tmp_path / "n.json", force=False)
    assert (tmp_path / "n.json").read_bytes() == exported(full, "n")
    assert written.rows == len((tmp_path / "n.json").read_bytes().splitlines())
    assert set(written.run_ids) == {"g0", "g1"}
