"""The rooms keep to their floors, and what only reads results needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_no_room_reaches_where_it_must_not():
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run([sys.executable, "-c", lint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    "modules",
    [
        (
            "collector.vocabulary",
            "collector.bundle",
            "collector.metrics",
            "collector.repro",
            "collector.configs.spelling",
        ),
        ("db.engine", "db.queries.cells", "db.ingest", "analysis.compare.compare_sides"),
        ("dashboard.data",),
        ("jobs.cli", "jobs.commands.compare", "jobs.commands.available", "jobs.commands.run", "jobs.commands.files"),
        ("collector.zoo.registry",),
    ],
)
def test_reading_needs_no_torch(modules):
    ask = f"import sys, {', '.join(modules)}; print(sorted({{'torch', 'triton', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
