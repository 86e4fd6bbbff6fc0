"""Generated code in bundles and in the store: every text once, and gone with the last measurement that has it."""

from datetime import timedelta

from sqlalchemy import text

from collector.bundle import BundleWriter
from collector.code import Code, Graph, Kernel
from db.ingest import ingest_bundle
from db.maintenance.upkeep import Ages, prune, remove_run
from db.queries.details import code_of, codes, texts_of
from db.stored_values import from_epoch
from tests.factories import at, cell, header, new_store, passing

CODE = Code.of(
    (Graph("w" * 16, (Kernel("triton_poi_fused_0", "a" * 16, "aten.add"), Kernel("triton_red_1", "b" * 16))),)
)
OTHER = Code.of((Graph("w" * 16, (Kernel("triton_poi_fused_0", "c" * 16),)),))
TEXTS = {letter * 16: f"text {letter}" for letter in "wabc"}


def write(folder, run_id, code, minutes=0):
    writer = BundleWriter(folder, header(run_id, minutes=minutes), [cell()])
    kernels = {kernel.text_id for kernel in code.kernels} | {"w" * 16}
    writer.code(code.to_json(), {name: value for name, value in TEXTS.items() if name in kernels})
    writer.measurement(passing(cell(), minutes=minutes + 1, code_id=code.code_id))
    return writer.close(at(minutes + 2))


def test_code_is_stored_once_and_goes_with_the_last_run_that_has_it(tmp_path):
    engine = new_store(tmp_path / "watch.db")
    for bundle in (write(tmp_path, "one", CODE), write(tmp_path, "two", OTHER, 10)):
        ingest_bundle(engine, bundle)
        assert not ingest_bundle(engine, bundle).changed
    assert code_of(engine, "one", cell().cell_id) == CODE
    assert code_of(engine, "no such run", cell().cell_id) is None
    assert codes(engine, [CODE.code_id, OTHER.code_id, "nothing"]) == {CODE.code_id: CODE, OTHER.code_id: OTHER}
    assert texts_of(engine, ["a" * 16, "c" * 16]) == {"a" * 16: "text a", "c" * 16: "text c"}
    with engine.connect() as conn:
        query = "SELECT code_id FROM results ORDER BY run_id"
        assert conn.execute(text(query)).scalars().all() == [CODE.code_id, OTHER.code_id]
    remove_run(engine, "one")
    assert codes(engine, [CODE.code_id, OTHER.code_id]) == {OTHER.code_id: OTHER}
    assert set(texts_of(engine, TEXTS)) == {"w" * 16, "c" * 16}
    prune(engine, Ages(None, None, timedelta(days=1)), from_epoch(4e9))
    assert texts_of(engine, TEXTS) == {}


def test_a_database_reads_a_code_from_a_bundle_beside_the_stored_one(tmp_path):
    write(tmp_path, "one", CODE)
    engine = new_store(tmp_path / "watch.db")
    ingest_bundle(engine, write(tmp_path, "two", CODE, 10))
    assert code_of(engine, "two", cell().cell_id) == CODE
    assert set(texts_of(engine, TEXTS)) == {"w" * 16, "a" * 16, "b" * 16}
    remove_run(engine, "two")
    assert texts_of(engine, TEXTS) == {}
    with (tmp_path / "known_code").open("ab") as stream:  # as after a kill, and what is no text
        stream.write(b"dddd\n\xff .. \nhalf")
    ingest_bundle(engine, write(tmp_path, "three", CODE, 20))
    assert set(texts_of(engine, TEXTS)) == {"w" * 16, "a" * 16, "b" * 16}


def test_a_text_that_cannot_be_read_is_damage_and_the_rest_is_stored(tmp_path):
    writer = BundleWriter(tmp_path, header("one"), [cell()])
    writer.code(CODE.to_json(), {})
    writer._write({"record": "text", "text_id": "a" * 16, "zlib": "!"})
    writer.measurement(passing(cell(), code_id=CODE.code_id))
    engine = new_store(tmp_path / "watch.db")
    report = ingest_bundle(engine, writer.close(at(2)))
    assert report.new == 1
    assert "text aaaaaaaaaaaaaaaa cannot be stored" in report.damage[0]
