"""The files that PyTorch's own runner wrote on a CPU: every value of each of them is found again in the store.

The check reads the files with the standard library and looks for each number in everything that the store tells of the
model; it shares nothing with the importer.
"""

import csv
import json
from pathlib import Path

import pytest

from db.importing.cells import Given
from db.importing.importer import import_files, store
from db.importing.runs import Provenance
from db.queries import cells as queries
from tests.factories import new_store

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples" / "dynamo_cpu"
FILES = sorted(SAMPLES.glob("*")) if SAMPLES.is_dir() else []
ASKED = Provenance(commit="a1" * 20, branch="main", date="2026-08-01")
pytestmark = pytest.mark.skipif(
    not FILES, reason="PyTorch's sample files (../shared/samples) are not beside the checkout"
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """All leaves that the store holds of each model, as `(name, value)`, and what the import said."""
    folder = tmp_path_factory.mktemp("samples")
    engine = new_store(folder / "s.db")
    report = import_files([SAMPLES], ASKED, Given(), folder / "runs")
    store(engine, report)
    rows = queries.side_rows(engine, queries.resolve_side(engine, "latest"))
    found = {}
    for row in rows.itertuples():
        info = queries.measurement(engine, row.run_id, row.cell_id)
        environment = queries.environment(engine, info.environment_id)
        told = [*info.metrics.items(), *leaves("", info.details), *environment.items(), ("", info.cell.device)]
        found[row.model] = (info, [*told, ("batch_size", info.cell.batch_size), ("suite", info.cell.suite)])
    yield found, report
    engine.dispose()


def leaves(name, value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(key, item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(name, item)
    else:
        yield name, value


def has_number(told, number, tolerance):
    return any(
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value - number) <= tolerance
        for _, value in told
    )


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".csv"], ids=lambda path: path.name[55:])
def test_every_number_of_a_table_is_in_the_store(stored, path):
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert rows
    for row in rows:
        _, told = stored[0][row["name"]]
        for name, text in row.items():
            if name in ("dev", "name", "accuracy"):
                continue
            if "compilation_metrics" in path.name and text == "0":
                continue  # fills up a row that is shorter than the header
            assert has_number(told, float(text), 5.1e-7), (row["name"], name, text)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".json"], ids=lambda path: path.name[55:])
def test_every_value_of_a_record_is_in_the_store_under_its_name_and_to_the_last_digit(stored, path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records
    for record in records:
        info, _ = stored[0][record["model"]["name"]]
        metric = record["metric"]
        (value,) = metric.get("benchmark_values") or metric["extra_info"]["benchmark_values"]
        if "compilation_metrics" in path.name:
            assert info.details["compile_phases_s"][metric["name"]] == float(value)
        else:
            side = "accuracy" if "accuracy" in path.name else "performance"
            assert info.details["imported"][side]["values"][metric["name"]] == value
        assert (info.cell.phase, info.cell.dtype) == (record["benchmark"]["mode"], record["benchmark"]["dtype"])


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".json"], ids=lambda path: path.name[55:])
def test_every_argument_of_the_runner_is_in_the_store(stored, path):
    for line in path.read_text().splitlines():
        record = json.loads(line)
        _, told = stored[0][record["model"]["name"]]
        known = [(name.rpartition(".")[2], json.dumps(value)) for name, value in told]
        listed = {(name.rpartition(".")[2], json.dumps(value)) for name, value in told if isinstance(value, list)}
        for name, value in record["benchmark"]["extra_info"].items():
            assert (name, json.dumps(value)) in known or (name, json.dumps(value)) in listed, (name, value)


def test_the_two_models_are_two_cells_of_one_run(stored):
    found, report = stored
    assert sorted(found) == ["DistilBertForMaskedLM", "ElectraForCausalLM"]
    assert [(run.measurements, run.statuses) for run in report.runs] == [(2, {"pass": 2})]
    assert report.problems == []
    info = found["ElectraForCausalLM"][0]
    assert (info.cell.suite, info.cell.config, info.cell.batch_size) == ("huggingface", "default", 1)
    assert info.metrics["compiled_ms"] == 128.5646430005727
    assert "eager_peak_bytes" not in info.metrics
