"""`nightly` and `run` played instead of measured: synthetic bundles for the cells asked for, in the place asked for.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collector.configs.spelling import parse_config
from collector.vocabulary import Cell, Measurement, Phase, short_hash
from collector.zoo.registry import select
from jobs.github.ci import job_url
from jobs.plan.planning import load_plan
from tests.factories import header, passing, write_bundle

#: Relative standard deviation from run to run.
NOISE = 0.003
DAY = 1440


def play(
    folder: Path,
    cells: Sequence[Cell],
    day: int,
    minute: float = 0,
    slower: Mapping[str, float] | None = None,
    **of: Any,
) -> Path:
    """A closed synthetic bundle of these cells; `of` are fields of its header. Returns its path."""
    minutes = day * DAY + minute
    head = header(f"played-{day:02}-{short_hash([str(of), minute, len(cells), str(cells[0])], 6)}", minutes=minutes)
    fields = {
        "commit": f"{day:040x}",
        "trigger": "nightly",
        "commit_date": None,
        "commit_title": None,
        "ci_url": job_url(),
    }
    head = type(head)(**{**head.to_json(), **fields, **of})
    return write_bundle(folder, head, [_measured(cell, minutes, (slower or {}).get(cell.model, 1.0)) for cell in cells])


def _measured(cell: Cell, minutes: float, factor: float) -> Measurement:
    rng = random.Random(f"{cell.cell_id}/{minutes}")
    level = 1 + int(short_hash(cell.model), 16) % 7
    metrics = {
        "eager_ms": 4.0 * level * math.exp(rng.gauss(0, NOISE)),
        "compiled_ms": 2.0 * level * factor * math.exp(rng.gauss(0, NOISE)),
        "compile_cold_s": 10.0 * math.exp(rng.gauss(0, NOISE)),
        "compiled_peak_bytes": 1e9,
    }
    return passing(cell, minutes=minutes + 1, samples={}, metrics=metrics)


def main() -> int:
    """Plays the verb on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    for name in ("plan", "out", "model", "config", "phase", "branch", "commit", "base"):
        parser.add_argument(f"--{name}")
    given, _ = parser.parse_known_args()
    out, day = Path(given.out), int(os.environ["PLAYED_DAY"])
    slower = {name: float(by) for name, _, by in [os.environ.get("PLAYED_SLOWER", "").partition("=")] if name}
    minute = float(len(list(out.glob("*.jsonl*")))) if out.exists() else 0.0
    if given.verb == "nightly":
        if os.environ.get("PLAYED_LOST") == Path(given.plan).name:
            sys.stderr.write("inductor-watch: the GPU stopped answering\n")
            return 4
        plan = load_plan(Path(given.plan))
        path = play(out, plan.cells, day, minute, slower, night=plan.night)
    else:
        (spec,) = select(in_suites=(), patterns=(given.model,), tagged=())
        phase = Phase(given.phase)
        batch = spec.batch_size(phase, "cpu")
        cell = Cell(spec.suite, spec.name, phase, "float32", "cpu", batch, parse_config(given.config))
        named = {"branch": given.branch, "commit": given.commit, "branch_start": given.base or "", "trigger": "adhoc"}
        path = play(out, [cell], day, minute, slower if given.branch != "main" else {}, **named)
    sys.stdout.write(f"bundle {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
