"""Whole runs as benchmark-v3 records, in the published shape."""

import io
import json
from pathlib import Path

from collector.bundle import read_bundle
from collector.hud_configs import HUD_CONFIGS
from db.exporter import stored_run, write_stream
from db.importing.importer import Provenance, import_files
from db.importing.pytorch_names import Given
from db.importing.result_files import parse_name

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
    outputs = [record["benchmark"]["extra_info"].get("output", "") for record in records]
    named = {parse_name(output.removesuffix(".csv")).config for output in outputs if output}
    assert named and named <= {one.words for one in HUD_CONFIGS.values()}
    names = {record["metric"]["name"] for record in records}
    assert {"accuracy", "speedup", "abs_latency", "compression_ratio", "unique_graphs", "graph_breaks"} <= names
    assert "compilation_latency" not in names  # PyTorch means another quantity


def test_what_was_exported_is_imported_like_pytorchs_own_files(full, tmp_path):
    (tmp_path / "x.json").write_bytes(exported(full, "plain"))
    report = import_files([tmp_path / "x.json"], Provenance(), Given(), tmp_path / "runs")
    assert report.problems == []
    (run,) = report.runs
    measured = {item.cell: item for item in read_bundle(Path(run.bundle)).measurements}
    for before in stored_run(full, "plain").measurements:
        after = measured[before.cell]
        assert (after.status, after.samples) == (before.status, before.samples)
        assert after.metrics["compiled_ms"] == before.metrics["compiled_ms"]
