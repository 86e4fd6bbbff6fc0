"""Play `nightly` and `run` instead of measuring: write synthetic bundles for the cells asked for, where they are asked for.

PLAYED_DAY=13               the day, from which the moment, the commit and the noise follow
PLAYED_SLOWER=MODEL=1.2     compiled latencies of a model times this (of `run`: off main only)
PLAYED_LOST=shard-02.json   the host of this plan measures nothing and fails
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collector.configs import parse_config
from collector.vocabulary import Cell, Measurement, Phase, short_hash
from collector.zoo.registry import select
from jobs.plan.planning import load_plan
from jobs.requested_options import job_url
from tests.factories import header, passing, write_bundle

#: Relative standard deviation from run to run.
NOISE = 0.003
DAY = 1440


def play(folder: Path, cells: Sequence[Cell], day: int, minute: int = 0, slower: str = "", **of: Any) -> Path:
    """Write a closed synthetic bundle of these cells, with these fields of its header; return its path."""
    minutes = day * DAY + minute
    head = header(f"played-{day:02}-{short_hash([str(of), minute, len(cells), str(cells[0])], 6)}", minutes=minutes)
    of = {"commit": f"{day:040x}", "trigger": "nightly", "ci_url": job_url()} | of
    head = replace(head, **{"commit_date": None, "commit_title": None, **of})
    return write_bundle(folder, head, [_measured(cell, minutes, slower) for cell in cells])


def _measured(cell: Cell, minutes: float, slower: str) -> Measurement:
    rng = random.Random(f"{cell.cell_id}/{minutes}")
    model, _, factor = slower.partition("=")
    level = 1 + int(short_hash(cell.model), 16) % 7
    slow = float(factor) if model == cell.model else 1
    medians = {"eager_ms": 4.0 * level, "compiled_ms": 2.0 * level * slow, "compile_cold_s": 10.0}
    metrics = {name: median * math.exp(rng.gauss(0, NOISE)) for name, median in medians.items()}
    return passing(cell, minutes=minutes + 1, samples={}, metrics=metrics | {"compiled_peak_bytes": 1e9})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    for name in ("plan", "out", "model", "config", "phase", "branch", "commit", "base"):
        parser.add_argument(f"--{name}")
    given, _ = parser.parse_known_args()
    out, slower = Path(given.out), os.environ.get("PLAYED_SLOWER", "")
    day, minute = int(os.environ["PLAYED_DAY"]), len(list(out.glob("*.jsonl*")))
    if given.verb == "nightly":
        if os.environ.get("PLAYED_LOST") == Path(given.plan).name:
            return 4
        plan = load_plan(Path(given.plan))
        path = play(out, plan.cells, day, minute, slower, night=plan.night)
    else:
        (spec,) = select(in_suites=(), patterns=(given.model,), tagged=())
        phase = Phase(given.phase)
        batch = spec.batch_size(phase, "cpu")
        cell = Cell(spec.suite, spec.name, phase, "float32", "cpu", batch, parse_config(given.config))
        named = {"branch": given.branch, "commit": given.commit, "branch_start": given.base or "", "trigger": "adhoc"}
        path = play(out, [cell], day, minute, "" if given.branch == "main" else slower, **named)
    sys.stdout.write(f"bundle {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
