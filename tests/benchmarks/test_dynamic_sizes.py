"""The table of dynamic programs, from a bundle of synthetic cells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from collector.vocabulary import MARKED, Config, Status
from tests.factories import cell, failing, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[2]
SIZES = [
    {"batch_size": 8, "length": 64, "eager_ms": 4.0, "compiled_ms": 2.2, "static_ms": 2.0, "recompiles": 0},
    {
        "batch_size": 4,
        "length": 32,
        "eager_ms": 2.0,
        "compiled_ms": 1.0,
        "static_ms": 1.0,
        "recompiles": 1,
        "status": "pass",
    },
]


def test_the_table_has_a_row_for_each_size_and_one_for_what_has_no_second_size(tmp_path):
    marked, static, everything = (Config(template="triton", dynamic=how) for how in (MARKED, None, True))
    measured = [
        passing(cell("bert", marked), details={"sizes": SIZES}),
        failing(cell("gpt2", marked), Status.UNAVAILABLE),
        passing(cell("bert", static), metrics={"compiled_ms": 2.0}),
        passing(cell("bert", everything), metrics={"compiled_ms": 2.5}),
    ]
    path = write_bundle(tmp_path, header("r1"), measured)
    command = [sys.executable, "-m", "benchmarks", "dynamic_sizes", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = done.stdout.splitlines()[2:]
    assert rows[0] == "| bert | inference | batch 8, length 64 | 4.000 | 2.000 | 2.200 | 1.100 | 0 | pass | 1.250 |"
    assert rows[1] == "| bert | inference | batch 4, length 32 | 2.000 | 1.000 | 1.000 | 1.000 | 1 | pass |  |"
    assert rows[2].startswith("| gpt2 | inference | unavailable: no kernel fits |") and len(rows) == 3
