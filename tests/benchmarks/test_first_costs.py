"""The table that a first night plans with, made from bundles."""

import json

from benchmarks import first_costs
from collector.bundle import read_bundle
from collector.vocabulary import Status
from jobs.plan.spared_cells import SAME_PROGRAM
from tests.factories import CUDAGRAPHS, cell, failing, header, passing, write_bundle

SIZES = {"load_model": 500, "eager": 800, "correctness": 9000}


def measured(which, wall_s, sizes=SIZES, **details):
    return passing(which, wall_s=wall_s, details={"stage_bytes": sizes, **details})


CHANGED = [measured(cell("a"), 9.0, {"load_model": 1}), measured(cell("b"), 7.0)]


def test_rows_keep_their_memory_where_only_seconds_are_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(first_costs, "TABLE", tmp_path / "table.json")
    (tmp_path / "table.json").write_text("[]")
    for number, (only, items) in enumerate((("new", [measured(cell("a"), 5.0)]), ("seconds", CHANGED))):
        path = write_bundle(tmp_path, header(f"r{number}"), items)
        first_costs.main([str(path), "--only", only], standalone_mode=False)
    (row,) = json.loads((tmp_path / "table.json").read_text())
    assert (row["worker_s"], row["stage_bytes"]) == (9.0, SIZES)


def test_a_cell_is_a_row_with_the_medians_of_its_whole_measurements(tmp_path):
    left_out = [
        measured(cell("code"), 5.0, only="code"),
        measured(cell("copy", CUDAGRAPHS), 5.0, **{SAME_PROGRAM: "another"}),
        failing(cell("broken"), Status.FAIL_TO_RUN, details={"stage_bytes": SIZES}),
        passing(cell("cpu", device="cpu"), wall_s=5.0),
    ]
    nights = (
        [measured(cell("b"), 40.0, waited_s=10.0, kept_bytes=300), measured(cell("a"), 5.0), *left_out],
        [measured(cell("b"), 34.0, {"load_model": 700, "correctness": 4000})],
        [measured(cell("b"), 90.0, {"load_model": 600, "eager": 900}, kept_bytes=200)],
    )
    paths = [write_bundle(tmp_path, header(f"r{number}"), night) for number, night in enumerate(nights)]
    rows = first_costs.rows(map(read_bundle, paths))
    assert [(row["cell"]["model"], row["worker_s"]) for row in rows] == [("a", 5.0), ("b", 34.0)]
    assert [row.get("kept_bytes") for row in rows] == [None, 300]
    assert rows[1]["stage_bytes"] == {"load_model": 600, "eager": 850, "correctness": 9000}
