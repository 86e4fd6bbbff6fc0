"""Tables and bundles: what they hold, and that nothing is half-written or written over."""

import csv
import io

import pandas as pd
import pytest

from collector.bundle import read_bundle
from db.exporter import export_sides, write_stream
from db.ingest import ingest_bundle
from db.store_errors import ExportingError
from tests.db.answers import answers
from tests.factories import cell, failing, header, new_store, passing, write_bundle


def as_rows(engine, *sides):
    buffer = io.BytesIO()
    write_stream(engine, sides, "csv", buffer)
    return list(csv.DictReader(io.StringIO(buffer.getvalue().decode(), newline="")))


def test_a_store_rebuilt_from_exported_bundles_gives_the_same_answers(full, bundles, tmp_path):
    export_sides(full, ["plain", "n"], "bundle", tmp_path / "out", force=False)
    again = new_store(tmp_path / "again.db")
    for path in sorted((tmp_path / "out").iterdir()):
        assert ingest_bundle(again, path).damage == ()
    assert answers(again) == answers(full)
    (before,) = bundles.rglob("plain.jsonl*")
    assert set(read_bundle(tmp_path / "out" / "plain.jsonl.gz").planned) == set(read_bundle(before).planned)
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
