"""Write a store of this version as test data: `python -m scripts.frozen_store`, once for each new X.Y.

The store has three shipped runs and a record of a regression, as SQL. Tests check that later versions can upgrade it.
"""

from __future__ import annotations

import gzip
import sqlite3
import tempfile
import tomllib
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from jobs.cli import app

ROOT = Path(__file__).parents[1]
#: The bundles in the store, and the sides and the cell of its record.
BUNDLES = ROOT / "data" / "releases_patch"
BASE, NEW = "20261122-092034-b9ab", "20261122-093535-5a8f"
CELL = "huggingface/T5Small inference float32 cpu bs1 triton"


def dumped(path: Path) -> str:
    """Make the store in a file and return it as SQL. End the program if a command fails."""
    for words in (
        ["ingest", str(BUNDLES)],
        ["regressions", "open", BASE, NEW, "--cell", CELL, "--note", "seen by hand", "--author", "ann"],
    ):
        done = CliRunner().invoke(app, [*words, "--db", str(path)])
        if done.exit_code:
            raise SystemExit(done.output)
    with closing(sqlite3.connect(path)) as conn:
        return "\n".join(conn.iterdump()) + "\n"


def main() -> None:
    """Write the store of this version."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"].rpartition(".")[0]
    target = ROOT / "tests" / "db" / "data" / f"store_{version}.sql.gz"
    with tempfile.TemporaryDirectory() as folder:
        target.write_bytes(gzip.compress(dumped(Path(folder, "store.db")).encode(), mtime=0))
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
