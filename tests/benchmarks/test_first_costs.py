"""The table that a first night plans with, made from bundles."""

from __future__ import annotations

import json

from click.testing import CliRunner

from benchmarks import first_costs
from collector.bundle import read_bundle
from collector.vocabulary import Status
from jobs.plan.spared_cells import SAME_PROGRAM
from tests.factories import CUDAGRAPHS, cell, failing, header, passing, write_bundle

SIZES = {"load_model": 500, "eager": 800, "correctness": 9000}


def measured(which, wall_s, sizes=SIZES, **details):
    return passing(which, wall_s=wall_s, details={"stage_bytes": sizes, **details})


def rows_of(folder, *nights):
    paths = [write_bundle(folder, header(f"r{number}"), list(night)) for number, night in enumerate(nights)]
    return paths, first_costs.rows(map(read_bundle, paths))


def test_a_cell_is_a_row_with_the_medians_of_its_measurements(tmp_path):
    _, rows = rows_of(
        tmp_path,
        [measured(cell("b"), 40.0, waited_s=10.0, kept_bytes=300), measured(cell("a"), 5.0)],
        [measured(cell("b"), 34.0, {"load_model": 700, "correctness": 4000})],
        [measured(cell("b"), 90.0, {"load_model": 600, "eager": 900}, kept_bytes=200)],
    )
    assert [(row["cell"]["model"], row["worker_s"]) for row in rows] == [("a", 5.0), ("b", 34.0)]
    assert [row.get("kept_bytes") for row in rows] == [None, 300]
    assert rows[1]["stage_bytes"] == {"load_model": 600, "eager": 850, "correctness": 9000}


def test_what_was_not_measured_whole_is_left_out(tmp_path):
    _, rows = rows_of(
        tmp_path,
        [
            measured(cell("code"), 5.0, only="code"),
            measured(cell("copy", CUDAGRAPHS), 5.0, **{SAME_PROGRAM: "another"}),
            failing(cell("broken"), Status.FAIL_TO_RUN, details={"stage_bytes": SIZES}),
            passing(cell("cpu", device="cpu"), wall_s=5.0),
            measured(cell("whole"), 5.0),
        ],
    )
    assert [row["cell"]["model"] for row in rows] == ["whole"]


def test_the_command_keeps_other_cells_and_gives_configs_as_much_memory(tmp_path, monkeypatch):
    table = tmp_path / "table.json"
    monkeypatch.setattr(first_costs, "TABLE", table)
    (tmp_path / "before").mkdir()
    other = measured(cell("a", CUDAGRAPHS), 50.0, {"correctness": 90000}, kept_bytes=11)
    _, known = rows_of(tmp_path / "before", [measured(cell("a"), 60.0), other, measured(cell("c"), 7.0)])
    less = {"load_model": 500, "eager": 800, "correctness": 43}
    paths, rows = rows_of(tmp_path, [measured(cell("a"), 5.0, less, kept_bytes=70), measured(cell("b"), 6.0)])

    def renewed(*options):
        table.write_text(json.dumps(known))
        done = CliRunner().invoke(first_costs.main, [*map(str, paths), *options])
        return json.loads(table.read_text()), done.output.splitlines()[-1]

    assert renewed("--only-new")[0] == sorted([*known, rows[1]], key=lambda row: str(row["cell"]))
    new, said = renewed()
    assert said == "table.json: 4 cells, 2 of them from these bundles"
    found = {(row["cell"]["model"], row["worker_s"]): row for row in new}
    assert [found["a", 5.0], found["b", 6.0], found["c", 7.0]] == [*rows, known[-1]]
    assert (found["a", 50.0]["stage_bytes"], found["a", 50.0]["kept_bytes"]) == (less, 70)
    # Memory alone is renewed where the seconds are of another host.
    memory = sorted((row["worker_s"], row.get("kept_bytes")) for row in renewed("--only-memory")[0])
    assert memory[1:] == [(50.0, 11), (60.0, 70)] and memory[0][0] == 7.0
    assert renewed("--only-memory", "--only-new")[1] == "Error: name --only-new or --only-memory"
