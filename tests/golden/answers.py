"""Asks the command line about the shipped bundles; `python -m tests.golden.answers` writes the answers anew.

Write them anew only when an answer is meant to change, and say in the commit why it does.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

from tests.command_line import ROOT, call

ANSWERS = Path(__file__).parent
FOLDERS = ("cpu", "releases", "releases_patch", "templates")
QUESTIONS = {
    "compare-releases": ["compare", "20261122-090106-3d29", "20261122-091408-d5e9", "--json"],
    "compare-nights": ["compare", "20261122-083625-7e03", "20261122-084933-c60e", "--json"],
    "compare-statuses": ["compare", "20261122-095737-9258", "20261122-110450-7d6f", "--json"],
    "compare-gpu": ["compare", "20261124-115123-2bec", "20261124-115851-c362", "--json"],
    "report-releases": ["report", "20261122-090106-3d29", "20261122-091408-d5e9", "--format", "json"],
    "changepoints": ["changepoints", "--branch", "releases"],
    "export-csv": ["export", "20261124-123036-cbaf", "20261122-091408-d5e9", "--format", "csv"],
    "export-v3": ["export", "20261124-123036-cbaf", "--format", "v3"],
}


def _rounded(value: object) -> object:
    """Nine digits of every float: the last ones differ between processors."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return value


def _lines(text: str) -> list[object]:
    """A JSON document as its lines, JSON lines and other text line by line, with floats rounded."""
    try:
        return json.dumps(_rounded(json.loads(text)), indent=1).splitlines()
    except ValueError:
        return [json.dumps(_rounded(json.loads(line))) if line.startswith("{") else line for line in text.splitlines()]


def store(folder: Path) -> Path:
    """A new database in `folder` with the shipped bundles."""
    database = folder / "shipped.db"
    done = call("ingest", *(ROOT / "data" / name for name in FOLDERS), "--db", database, folder=folder)
    if done.returncode:
        raise AssertionError(done.stderr)
    return database


def answer(question: str, database: Path) -> list[object]:
    """What the command line prints today, in lines."""
    done = call(*QUESTIONS[question], "--db", database, folder=ROOT, COLUMNS="80")
    if not done.stdout:
        raise AssertionError(done.stderr)
    return _lines(done.stdout)


def expected(question: str) -> list[object]:
    """What it printed when the answers were written."""
    return gzip.decompress((ANSWERS / f"{question}.gz").read_bytes()).decode().splitlines()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        at = store(Path(name))
        for asked in QUESTIONS:
            text = "\n".join(str(line) for line in answer(asked, at)) + "\n"
            (ANSWERS / f"{asked}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
