"""What several GPUs gain over one, from bundles whose times are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.gpu_scaling import read, seconds_to
from tests.factories import at, cell, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[2]


def gpu(folder, index, seconds):
    """The bundle of a GPU that measured cells of these seconds one after the other."""
    items, start = [], 0.0
    for number, wall_s in enumerate(seconds):
        details = {"stage_s": {"compile": wall_s / 2}, "waited_s": 1.0, "cpu_s": 3.0}
        items.append(passing(cell(f"g{index}m{number}"), started_at=at(start / 60), wall_s=wall_s, details=details))
        start += wall_s
    testbed = {"device": "cuda", "gpu_index": index}
    return write_bundle(folder, header(f"20261122-000000-000{index}", testbed=testbed), items)


def test_seconds_count_from_the_first_start_to_the_last_end_of_so_many(tmp_path):
    items, gpus = read([gpu(tmp_path, 0, [10.0, 20.0, 30.0])])
    assert (gpus, seconds_to(items, 2), seconds_to(items, 3)) == (1, 30.0, 60.0)


def test_the_gain_is_taken_where_each_gpu_has_done_as_many(tmp_path):
    one = gpu(tmp_path, 0, [10.0, 10.0])
    many = [gpu(tmp_path, 1, [10.0, 15.0, 90.0]), gpu(tmp_path, 2, [10.0, 15.0, 90.0])]
    command = [sys.executable, "scripts/gpu_scaling.py", "--one", one, "--many", *many]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "1 GPU: 2 cells in 20 s" in told
    assert "2 GPUs: 4 cells in 25 s" in told
    assert "2 GPUs are 1.60 times as fast, 80% of the pace each" in told
    assert "compile              5.00    19.17" in told
