"""Exported tables, bundles and records: what they hold, and that nothing is half-written or written over."""

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest

from collector.bundle import read_bundle
from collector.code import Code, Graph, Kernel, unpack_text
from collector.hud_configs import HUD_CONFIGS
from collector.vocabulary import Config, Phase, Status
from db.exporter import export_sides, stored_run, write_stream
from db.importing.importer import Provenance, import_files
from db.importing.pytorch_names import Given
from db.importing.result_files import parse_name
from db.ingest import ingest_bundle
from db.store_errors import ExportingError
from tests.db.answers import answers
from tests.factories import COMMIT_B, CUDAGRAPHS, cell, failing, header, matrix, new_store, passing, write_bundle

#: Code of one kernel, and its texts.
CODE = Code.of((Graph("a" * 16, (Kernel("triton_poi_0", "b" * 16, "add"),)),))
TEXTS = {"a" * 16: "def call(args): ...\n", "b" * 16: "@triton.jit\n"}


@pytest.fixture(scope="module")
def full(shared, tmp_path_factory):
    """Two nights: one plain, and one with failures, a missing cell, replicates, odd names, two GPUs; one run is open."""
    bundles = tmp_path_factory.mktemp("bundles")
    measured = [passing(item, code_id=CODE.code_id) for item in matrix()]
    ingest_bundle(shared, write_bundle(bundles, header("plain"), measured, codes=[(CODE, TEXTS)]))
    odd = cell("<b>=naïve \N{ROCKET}\n", Config(template="cudagraphs", overrides={"a.b": "x+y", "c": 1.5, "d": None}))
    lines = [
        failing(cell("t5"), Status.TIMEOUT),
        failing(cell("gpt2"), Status.NONDETERMINISTIC, log_tail="two\nlines"),
        passing(cell("bert"), seed=1),
        passing(cell("bert"), seed=2, minutes=3, replicate=1),
        passing(odd, details={"other_metrics": {"brand_new": 2.5}, "nested": {"a": [1, None, "x"]}}),
        passing(cell("bert", CUDAGRAPHS, phase=Phase.TRAINING, dtype="amp", batch_size=1), rounds=1),
        passing(cell("no-samples"), samples={}, program_id=None, environment_id=None),
    ]
    head = header("g0", minutes=60, night="n", commit=COMMIT_B, ci_url="https://example.org/1", attempt=2)
    ingest_bundle(shared, write_bundle(bundles, head, lines, planned=[*(item.cell for item in lines), cell("missing")]))
    second = header("g1", minutes=61, night="n", commit=COMMIT_B, branch_start="a0" * 20, commit_title=None)
    ingest_bundle(shared, write_bundle(bundles, second, [passing(item) for item in matrix(["opt"])], closed=False))
    return shared


def exported(engine, form, *sides):
    buffer = io.BytesIO()
    write_stream(engine, sides, form, buffer)
    return buffer.getvalue()


def as_rows(engine, *sides):
    return list(csv.DictReader(io.StringIO(exported(engine, "csv", *sides).decode(), newline="")))


def test_a_store_rebuilt_from_exported_bundles_gives_the_same_answers(full, tmp_path):
    export_sides(full, ["plain", "n"], "bundle", tmp_path / "out", force=False)
    again = new_store(tmp_path / "again.db")
    for path in sorted((tmp_path / "out").iterdir()):
        assert ingest_bundle(again, path).damage == ()
    assert answers(again) == answers(full)
    plain = read_bundle(tmp_path / "out" / "plain.jsonl.gz")
    assert set(plain.planned) == set(matrix())
    assert (plain.codes, {key: unpack_text(text) for key, text in plain.texts.items()}) == (
        {CODE.code_id: CODE.to_json()},
        TEXTS,
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["g0.jsonl.gz", "g1.jsonl", "plain.jsonl.gz"]
    again.dispose()


def test_no_text_is_a_formula_to_a_spreadsheet(tmp_path):
    names = ["=1+1", "+SUM(A1)", "-2", "@x", "\t=1", " =1"]
    lines = [failing(cell(name)) for name in names]
    for line, name in zip(lines, names, strict=True):
        line.failure.message = name
    lines.append(passing(cell("fine"), metrics={"cosine": -0.5}))
    store = new_store(tmp_path / "store.db")
    ingest_bundle(store, write_bundle(tmp_path, header("r1", label="=1"), lines))
    rows = {row["model"]: row for row in as_rows(store, "r1")}
    assert {name: rows[f"'{name}"]["message"] for name in names} == {name: f"'{name}" for name in names}
    assert (rows["fine"]["label"], rows["fine"]["cosine"]) == ("'=1", "-0.5")


def test_parquet_holds_the_same_table_with_types(full, tmp_path):
    export_sides(full, ["n"], "parquet", tmp_path / "n.parquet", force=False)
    table = pd.read_parquet(tmp_path / "n.parquet")
    assert len(table) == len(as_rows(full, "n"))
    assert table["compiled_ms"].dtype == float
    assert str(table["started_at"].dtype).startswith("datetime64")
    assert table["status"].isna().sum() == 1


def test_nothing_is_written_over_unless_forced(full, tmp_path):
    target = tmp_path / "x.csv"
    target.write_text("precious")
    with pytest.raises(ExportingError, match="--force"):
        export_sides(full, ["plain"], "csv", target, force=False)
    assert target.read_text() == "precious"
    export_sides(full, ["plain"], "csv", target, force=True)
    assert target.read_text().startswith('"side",')
    out = tmp_path / "out"
    out.mkdir()
    (out / "plain.jsonl").write_text("precious")
    with pytest.raises(ExportingError, match="--force"):
        export_sides(full, ["plain"], "bundle", out, force=False)
    assert [path.name for path in out.iterdir()] == ["plain.jsonl"]
    export_sides(full, ["plain"], "bundle", out, force=True)
    assert [path.name for path in out.iterdir()] == ["plain.jsonl.gz"]
    assert len(read_bundle(out / "plain.jsonl.gz").measurements) == 9


def test_a_place_that_cannot_be_written_is_one_line(full, tmp_path):
    for target in ("no/such/folder/x.csv", "."):
        with pytest.raises(ExportingError) as caught:
            export_sides(full, ["plain"], "csv", tmp_path / target, force=True)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.rglob("*.csv*")) == []


# Whole runs as benchmark-v3 records


def test_what_was_exported_is_imported_like_pytorchs_own_files(full, tmp_path):
    written = exported(full, "v3", "plain")
    outputs = {json.loads(line)["benchmark"]["extra_info"].get("output", "") for line in written.splitlines()} - {""}
    assert outputs, "PyTorch's dashboard names a config by its file"
    assert {parse_name(name.removesuffix(".csv")).config for name in outputs} <= {
        one.words for one in HUD_CONFIGS.values()
    }
    (tmp_path / "x.json").write_bytes(written)
    report = import_files([tmp_path / "x.json"], Provenance(), Given(), tmp_path / "runs")
    assert report.problems == []
    (run,) = report.runs
    measured = {item.cell: item for item in read_bundle(Path(run.bundle)).measurements}
    for before in stored_run(full, "plain").measurements:
        after = measured[before.cell]
        assert (after.status, after.samples) == (before.status, before.samples)
        assert after.metrics["compiled_ms"] == before.metrics["compiled_ms"]
