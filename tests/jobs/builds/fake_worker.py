"""Stands in for `jobs.pool.child` where there is no torch to measure: writes a bundle with synthetic latencies.

Needs nothing but the standard library and the collector's words, as the environments of the tests have nothing else.
"""

from __future__ import annotations

import json
import random
import sys
from datetime import UTC, datetime
from pathlib import Path

from collector.bundle import BundleWriter, RunHeader, read_bundle
from collector.vocabulary import Cell, Config, Measurement, Phase, Status

LABEL = "synthetic test data"


def answer(speed: float, torch: str, commit: str) -> None:
    """Measures what the request on standard input asks for: 10 ms times `speed` with 0.2 % noise."""
    request = json.loads(sys.stdin.readline())
    folder = Path(request["folder"])
    models = request["selection"]["models"] or ["synthetic-a", "synthetic-b"]
    cells = [Cell("synthetic", model, Phase.INFERENCE, "float32", "cpu", 1, Config()) for model in models]
    began = list(folder.glob("*.jsonl"))
    if began:
        writer, contents = BundleWriter.reopen(began[0], _now())
        cells = [cell for cell in contents.planned if cell.cell_id not in contents.latest()]
    else:
        names = request["names"]
        header = RunHeader(
            run_id=f"synthetic-{torch}-{folder.parent.name}-{folder.name}",
            branch=names["branch"],
            commit=names["commit"] or commit,
            testbed={"cpu": "Synthetic CPU"},
            started_at=_now(),
            label=LABEL,
            commit_date=names["commit_date"],
            night=names["night"],
            trigger=names["trigger"],
        )
        writer = BundleWriter(folder, header, cells)
    writer.environment("e" * 12, {"torch": torch})
    for cell in cells:
        noise = random.Random(f"{torch}/{commit}/{folder.name}/{cell.model}").gauss(0, 1)
        metrics = {"compiled_ms": 10 * speed * (1 + 0.002 * noise)}
        writer.measurement(Measurement(cell, Status.PASS, _now(), 1.0, metrics=metrics, environment_id="e" * 12))
    writer.close(_now())
    (path,) = folder.glob("*.jsonl.gz")
    assert read_bundle(path).finished_at


def _now() -> str:
    return datetime.now(UTC).isoformat()
