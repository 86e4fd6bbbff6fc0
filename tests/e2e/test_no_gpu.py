"""A night for a GPU on a machine without one: refused in a line, or ended with its first cell; never cell by cell."""

from __future__ import annotations

import json
import shutil

import pytest

from collector.bundle import read_bundle
from collector.vocabulary import Cell, Config, Phase
from tests.command_line import call, is_one_line, tell

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU here")

MODEL = ("huggingface", "ViTTinyForImageClassification", Phase.INFERENCE, "float32", "cuda")
CELLS = [Cell(*MODEL, size, Config(backend="eager")) for size in (1, 2, 3)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["nightly", "--device", "cuda", "--start", "spawn"], "use --device cpu", marks=pytest.mark.slow),
        (["nightly", "--gpus", "0"], "--gpus 0"),
    ],
)
def test_a_gpu_that_is_not_there_is_one_line_and_exit_code_2(words, said, tmp_path):
    is_one_line(call(*words, folder=tmp_path), 2, said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_plan_of_gpu_cells_measures_none_of_them(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"cells": [cell.to_json() for cell in CELLS]}))
    done = call("nightly", "--plan", "plan.json", "--start", "spawn", "--no-store", folder=tmp_path)
    assert done.returncode in (2, 4), tell(done)
    is_one_line(done, done.returncode)
    for path in (tmp_path / "runs").glob("*"):
        found = read_bundle(path)
        assert (found.planned, found.measurements) == (CELLS, [])
