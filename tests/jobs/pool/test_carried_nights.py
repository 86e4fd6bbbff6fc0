"""Nights that carry unchanged cells over, with real cells of a model of one line on a CPU."""

from __future__ import annotations

import json

import pytest

from collector.bundle import read_bundle
from jobs.plan.spared_cells import SAME_CODE_AS
from tests.command_line import call, tell

MODEL = """
import torch
from torch import nn

def small():
    return nn.Linear(64, 64), (torch.randn(1, 64),)  # no kernel that a compiler would take seconds for
"""
NIGHT = ["nightly", "--model", "own:small", "--config", "triton", "--device", "cpu", "--samples", "5"]
SKIP = [*NIGHT, "--branch", "main", "--replicates", "1", "--unchanged-code", "skip"]
#: What a cell measures that ends once it is compiled.
TIMES = {"eager_ms", "compiled_ms", "speedup"}


def bundles(folder):
    return [read_bundle(path) for path in sorted((folder / "runs").glob("*.gz"), key=lambda path: path.stat().st_mtime)]


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """The folder of a night that measured and of one with the same files."""
    folder = tmp_path_factory.mktemp("nights")
    (folder / "own.py").write_text(MODEL)
    return folder, [watch(folder, *SKIP) for _ in range(2)]


def watch(folder, *words):
    done = call(*words, folder=folder)
    assert done.returncode == 0, tell(done)
    return done


@pytest.mark.slow
def test_an_unchanged_cell_is_compiled_and_not_timed(nights):
    folder, done = nights
    late, resumed = watch(folder, *SKIP, "--max-hours", "0"), watch(folder, "resume", "--model", "own:small")
    first, _, second = bundles(folder)
    (whole,), (carried,) = first.measurements, second.measurements
    assert whole.metrics.keys() >= TIMES
    assert not carried.metrics.keys() & TIMES
    assert "compile_cold_s" in carried.metrics
    assert carried.code_id == whole.code_id is not None
    assert (carried.details["only"], carried.details[SAME_CODE_AS]) == ("code", first.header.run_id)
    assert "1 cell measured, 0 carried over\n" in done[0].stdout
    assert "0 cells measured, 0 carried over\n" in late.stdout
    assert f"0 cells measured, 1 carried over as same code as {first.header.run_id}\n" in resumed.stdout
    assert first.header.testbed["tuning"] == second.header.testbed["tuning"] == "shared"
    assert (folder / "runs" / "tuning").is_dir()


def test_a_cell_of_the_same_files_is_not_even_compiled_and_alarms_nobody(nights):
    folder, done = nights
    first, second = bundles(folder)[:2]
    (whole,), (carried,) = first.measurements, second.measurements
    assert (carried.metrics, carried.samples) == ({}, {})
    assert (carried.code_id, carried.program_id) == (whole.code_id, whole.program_id)
    assert carried.details["not_compiled"] == "its files say the same"
    assert f"0 cells measured, 1 carried over as same code as {first.header.run_id}\n" in done[1].stdout
    compared = call("compare", first.header.run_id, second.header.run_id, "--json", folder=folder)
    assert [cell["verdict"] for cell in json.loads(compared.stdout)["cells"]] == ["unchanged"], tell(compared)
    assert call("gate", first.header.run_id, second.header.run_id, folder=folder).returncode == 0
