"""What is packed of a run says, bit for bit, what its bundle says, and what cannot be read is said in a line."""

from datetime import datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import select, text

from collector.metrics import METRICS
from collector.vocabulary import Config, Phase, Status
from db.errors import DamagedError
from db.ingest import ingest_bundle
from db.maintenance.check import check_store
from db.maintenance.prune import Ages, prune
from db.packing.packed import PACKED, STATUSES
from db.queries import cells as queries
from db.queries.filters import CellFilter
from db.schema import HISTORY_METRICS, PackedCells, PackedSums
from tests.factories import at, cell, failing, header, night, passing, write_bundle

#: Of no use but as values that come back as they went only if all 64 bits do.
ODD = (0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1 / 3, -1.5e-9, 2.0**53 + 2)


def rows_of(engine, table):
    with engine.connect() as conn:
        return conn.execute(select(table.__table__).order_by(*table.__table__.primary_key)).mappings().all()


def bits(values):
    return np.asarray(values, dtype=np.float64).view(np.uint64).tolist()


def both_ways(engine, **asked):
    """A model's history from `packed_cells` alone, and the same columns where `packed_metrics` is read too."""
    metrics = (*HISTORY_METRICS, "cosine")
    packed = queries.model_history(engine, "huggingface", "bert", **asked)
    plain = queries.model_history(engine, "huggingface", "bert", metrics=metrics, **asked)
    assert plain.columns[-1] == "cosine"
    return packed, plain[packed.columns]


def test_every_status_has_its_place():
    assert set(STATUSES) == {str(status) for status in Status}
    assert len(set(STATUSES)) == len(STATUSES)
    assert set(PACKED) >= set(HISTORY_METRICS) <= METRICS.keys()


def test_odd_values_come_back_bit_for_bit_and_what_was_not_measured_does_not(store, tmp_path):
    lines = [
        passing(cell(batch_size=place + 1), metrics={"compiled_ms": value, "speedup": value * 2**-3})
        for place, value in enumerate(ODD)
    ]
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), lines))
    packed, plain = both_ways(store)
    of_size = packed.set_index("batch_size").sort_index()
    assert bits(of_size["compiled_ms"]) == bits(ODD)
    assert bits(of_size["speedup"]) == bits([value * 2**-3 for value in ODD])
    assert of_size["compile_cold_s"].isna().all()
    assert packed.equals(plain)


def test_every_status_comes_back(store, tmp_path):
    lines = [
        failing(cell(batch_size=place + 1), status) if status != Status.PASS else passing(cell(batch_size=place + 1))
        for place, status in enumerate(Status)
    ]
    ingest_bundle(store, write_bundle(tmp_path, header("r1"), lines))
    packed, plain = both_ways(store)
    assert dict(zip(packed["batch_size"], packed["status"], strict=True)) == {
        place + 1: str(status) for place, status in enumerate(Status)
    }
    assert packed.equals(plain)


def test_many_cells_of_a_model_take_several_short_rows(store, tmp_path):
    cells = [cell(batch_size=size) for size in range(1, 61)]
    ingest_bundle(store, night(tmp_path, "r1", cells=cells))
    ingest_bundle(store, night(tmp_path, "r2", cells=cells[:3], minutes=60))
    rows = rows_of(store, PackedCells)
    first = rows[0]["run"]
    assert [(row["run"] - first, row["part"]) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert max(len(row["data"]) for row in rows) < 1_000
    packed, plain = both_ways(store)
    assert len(packed) == 63
    assert packed.equals(plain)
    assert check_store(store) == []


def test_a_replicate_that_fits_into_no_byte_is_packed_wider_and_read_beside_narrow_ones(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "r1"))
    numbers = (0, 255, 256, 2**31 - 1)
    lines = [passing(cell(), replicate=number, minutes=61 + place) for place, number in enumerate(numbers)]
    ingest_bundle(store, write_bundle(tmp_path, header("r2", minutes=60), lines))
    assert {row["data"][0] for row in rows_of(store, PackedCells)} == {1, 2}
    packed, plain = both_ways(store)
    assert packed["replicate"].tolist() == [0, 0, 0, 0, 255, 256, 2**31 - 1]
    assert packed.equals(plain)
    assert check_store(store) == []
    rows = queries.side_rows(store, queries.resolve_side(store, "r2"), metrics=HISTORY_METRICS)
    assert rows["replicate"].tolist() == [2**31 - 1]


def test_gaps_filters_and_branches_are_the_same_both_ways(store, tmp_path):
    ingest_bundle(store, night(tmp_path, "r1"))
    ingest_bundle(
        store, write_bundle(tmp_path, header("r2", minutes=60), [passing(cell())], planned=[cell(), cell(batch_size=2)])
    )
    ingest_bundle(store, night(tmp_path, "r3", minutes=120, branch="slow", cells=[cell(phase=Phase.TRAINING)]))
    for asked in ({}, {"branch": "slow"}, {"filters": CellFilter(phases=("inference",), configs=("default",))}):
        packed, plain = both_ways(store, **asked)
        assert packed.equals(plain)
        assert len(packed)
    gap = both_ways(store)[0].set_index(["run_id", "batch_size"]).loc[("r2", 2)]
    assert gap[["status", "program_id", "replicate", "speedup"]].isna().all(axis=None)


def test_a_measurement_that_is_replaced_is_replaced_in_what_is_packed(store, tmp_path):
    ingest_bundle(store, night(tmp_path / "1", "r1"))
    again = write_bundle(tmp_path / "2", header("r1", attempt=2), [failing(cell(), Status.OOM)])
    assert ingest_bundle(store, again).updated == 1
    packed, plain = both_ways(store)
    assert "oom" in packed["status"].tolist()
    assert packed.equals(plain)
    assert check_store(store) == []


def test_more_groups_than_a_row_of_sums_holds(store, tmp_path):
    cells = [
        cell(config=Config(overrides={"max_fusion_size": size}), phase=phase) for size in range(14) for phase in Phase
    ]
    ingest_bundle(store, night(tmp_path, "r1", cells=cells))
    assert [row["part"] for row in rows_of(store, PackedSums)] == list(range(-(-len(cells) // 20)))
    history = queries.suite_history(store)
    assert len(history) == len(cells)
    assert history["passed"].tolist() == [1] * len(cells)
    assert history["config"].tolist() == sorted(history["config"])
    assert check_store(store) == []


@pytest.mark.parametrize(
    ("table", "data"),
    [
        ("packed_cells", b""),
        ("packed_cells", b"\x63"),
        ("packed_cells", b"\x01" + bytes(39)),
        ("packed_cells", b"\x01" + bytes(7) + b"\xff" + bytes(32)),
        ("packed_metrics", b""),
        ("packed_metrics", b"\x02\x03\x00"),
        ("packed_metrics", b"\x01\x04\x00"),
        ("packed_metrics", b"\x01\x03\x01\x07" + bytes(23)),
        ("packed_sums", b"\x02" + bytes(96)),
        ("packed_sums", b"\x01" + bytes(95)),
    ],
)
def test_bytes_of_no_format_are_said_in_a_line(store, tmp_path, table, data):
    ingest_bundle(store, night(tmp_path, "r1"))
    with store.begin() as conn:
        conn.execute(text(f"UPDATE {table} SET data = :data"), {"data": data})  # noqa: S608 -- our own words
    ask = {
        "packed_cells": lambda: queries.model_history(store, "huggingface", "bert"),
        "packed_metrics": lambda: queries.model_history(store, "huggingface", "bert", metrics=("eager_ms",)),
        "packed_sums": lambda: queries.suite_history(store),
    }
    with pytest.raises(DamagedError) as caught:
        ask[table]()
    assert "\n" not in str(caught.value)
    assert "rebuild" in str(caught.value)
    assert any("packed" in item.text for item in check_store(store))


def test_a_program_that_is_not_committed_yet_is_named_to_its_writer_alone(store, tmp_path):
    ingest_bundle(store, night(tmp_path / "1", "r1"))
    before = both_ways(store)[0]  # the names of programs are remembered now
    again = write_bundle(tmp_path / "2", header("r1", attempt=2), [passing(cell(), program_id="newer")])
    with store.connect() as conn, conn.begin() as transaction:
        ingest_bundle(conn, again)
        assert "newer" in both_ways(conn)[0]["program_id"].tolist()
        transaction.rollback()
    assert both_ways(store)[0].equals(before)
    ingest_bundle(store, again)
    assert "newer" in both_ways(store)[0]["program_id"].tolist()


def test_a_run_that_is_dropped_leaves_nothing_packed(store, tmp_path):
    for number in range(3):
        ingest_bundle(store, night(tmp_path, f"r{number}", minutes=60 * number))
    ages = Ages(samples=None, evidence=None, runs=timedelta(minutes=90))
    assert prune(store, ages, datetime.fromisoformat(at(150))).runs == ("r0",)
    assert set(both_ways(store)[0]["run_id"]) == {"r1", "r2"}
    assert len({row["run"] for row in rows_of(store, PackedCells)}) == len(rows_of(store, PackedSums)) == 2
    assert check_store(store) == []
    ingest_bundle(store, tmp_path / "r0.jsonl.gz")
    assert set(both_ways(store)[0]["run_id"]) == {"r0", "r1", "r2"}
    assert check_store(store) == []
