"""A bundle that is handed on names no folder of the machine it came from."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
import torch

from collector.masking import shorten
from collector.process.cell_process import tell_no_paths
from collector.vocabulary import Cell, Config, Failure, Measurement, Phase, Stage, Status

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = sysconfig.get_path("purelib")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'File "{PACKAGES}/torch/nn/modules/module.py", line 1', 'File "torch/nn/modules/module.py", line 1'),
        ("/home/ann/.venv/lib/python3.11/site-packages/torch/x.py:3", "torch/x.py:3"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        ("/opt/conda/lib/python3.12/contextlib.py", "contextlib.py"),
        (f"{PROJECT}/collector/measure/cell.py", "collector/measure/cell.py"),
        (f"({PROJECT}/collector/a.py, {PACKAGES}/torch/b.py)", "(collector/a.py, torch/b.py)"),
        ("no path here: a/b", "no path here: a/b"),
        ("", ""),
    ],
)
def test_a_path_starts_at_its_package(text, expected):
    assert shorten(text) == expected


def test_nothing_of_this_machine_is_left_in_a_measurement():
    where = f"{torch.__file__}:1 {PROJECT}/collector/process/worker.py:2"
    cell = Cell("s", "m", Phase.INFERENCE, "float32", "cpu", 1, Config())
    found = Measurement(cell, Status.CRASHED, "2026-08-01T00:00:00+00:00", 1.0)
    found.details, found.log_tail = {"reasons": {where: 1}}, f"Traceback\n  {where}\n"
    found.failure = Failure(Stage.COMPILE, "E", where, where)
    tell_no_paths(found)
    text = str(found.to_json())
    assert str(PROJECT) not in text
    assert PACKAGES not in text
    assert sys.prefix not in text
    assert "torch/__init__.py:1 collector/process/worker.py:2" in text
