"""A kernel's share of a cell's device time, by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.kernels_like import share_of
from tests.factories import cell, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[2]
KERNELS = [["gemm_f32f32_tile", 2, 1.0], ["softmax", 1, 3.0]]


def item(model):
    return passing(cell(model), metrics={"compiled_kernel_ms": 4.0}, details={"compiled_kernels": KERNELS})


def test_the_share_is_that_of_the_matching_kernels():
    assert share_of(item("m"), "f32f32") == 0.25
    assert share_of(item("m"), "nothing") == 0
    assert share_of(passing(cell("m"), metrics={}, details={}), "f32f32") == 0


def test_the_script_names_the_cells(tmp_path):
    write_bundle(tmp_path, header("r1"), [item("m")])
    (bundle,) = tmp_path.glob("*.gz")
    command = [sys.executable, "scripts/kernels_like.py", "f32f32", item("m").cell.config.name, str(bundle)]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == "1 of 1 cells"
    assert lines[1].split()[0] == "25%"
    assert "/m " in lines[1]
