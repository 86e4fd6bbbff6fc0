"""The walk-through of docs/own-models.md as a new user types it: from a model to an alert in less than ten minutes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time

import pytest

from collector.bundle import read_bundle
from tests.command_line import ROOT, call, tell

PAGE = (ROOT / "docs" / "own-models.md").read_text().partition("## Where the file is found")[0]
#: What a shell calls the program that is tested.
PROGRAM = f'inductor-watch() {{ {shlex.quote(sys.executable)} -m jobs.cli "$@"; }}\nexport -f inductor-watch\n'


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


def commands():
    """Each command with the exit code that its comment says."""
    lines = [
        line.strip() for line in PAGE.splitlines() if line.startswith("    ") and line.strip() not in block("python")
    ]
    return [(line, int(code[1]) if (code := re.search(r"# exit code (\d)", line)) else 0) for line in lines]


@pytest.fixture
def shell(tmp_path):
    environ = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    def run(line, code=0):
        done = subprocess.run(
            ["bash", "-c", PROGRAM + line], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        if code == 1 and done.returncode == 3 and os.getloadavg()[0] > len(os.sched_getaffinity(0)):
            pytest.skip(f"the machine is too busy to tell: {done.stdout.splitlines()[0]}")
        assert done.returncode == code, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_from_a_model_to_an_alert(shell, tmp_path):
    (tmp_path / "my_models.py").write_text(block("python"))
    (tmp_path / "models.toml").write_text(block("toml"))
    began = time.monotonic()
    said = {}
    for line, code in commands():
        said[line.partition("#")[0].strip()] = shell(line, code)
    minutes = (time.monotonic() - began) / 60
    print(f"the walk-through took {minutes:.1f} min")  # noqa: T201 - docs/own-models.md says it
    assert minutes < 10
    assert said["inductor-watch init"] == "models.toml is fine: block.short, block.long\n"
    assert "4 cells" in said["inductor-watch plan --device cpu"]
    compared = said["inductor-watch compare latest~1 latest"]
    assert compared.count("model changed") >= 4 and "regressed:" not in compared
    assert said["inductor-watch regressions open latest~1 latest"].count("opened") >= 1
    assert "new regression" in said["inductor-watch regressions notify --dry-run"]

    # The command that a report gives names the model, which the local file defines.
    report = json.loads(shell("inductor-watch report latest~1 latest --format json"))
    cell = next(cell for cell in report["cells"] if cell["model"] == "block.short")
    assert "1 cell on" in shell(f"{cell['repro']} --no-store --samples 5")
    (tmp_path / "models.toml").unlink()
    assert "no file here defines block.short" in shell("inductor-watch run --suite user --model block.short", 2)


#: A function that takes no `batch_size` and makes a batch of 64 rows, and one whose batch a plan cannot see.
AS_THEY_ARE = """
import torch
from torch import nn


def small():
    return nn.Linear(8, 4), (torch.randn(64, 8),)


made = lambda batch_size: (nn.Linear(8, 4), (torch.randn(batch_size, 8),))
"""


def test_a_function_without_batch_size_runs_as_it_is(tmp_path):
    (tmp_path / "my_models.py").write_text(AS_THEY_ARE)
    run = ["run", "--device", "cpu", "--backend", "eager", "--no-store", "--samples", "5"]
    models = [word for name in ("small", "made") for word in ("--model", f"my_models:{name}")]
    done = call(*run, *models, folder=tmp_path)
    assert done.returncode == 0, tell(done)
    said = done.stdout + done.stderr
    lines = {name: re.search(rf"my_models:{name} .*", said)[0] for name in ("small", "made")}
    words = {name: (line.split()[4], line.split()[6]) for name, line in lines.items()}
    assert words == {"small": ("bs64", "pass"), "made": ("bs1", "pass")}
    (path,) = (tmp_path / "runs").glob("*.jsonl.gz")
    measured = {one.cell.model: one for one in read_bundle(path).latest().values()}
    assert {one.cell.batch_size for one in measured.values()} == {0}
    assert [measured[f"my_models:{name}"].details.get("input_batch") for name in lines] == [64, 1]
