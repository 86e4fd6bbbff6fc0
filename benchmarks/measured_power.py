"""Count false verdicts and power on measured processes of one commit: `python -m benchmarks measured_power BUNDLE...`

Each process of each cell in turn is the new side, with its compiled latency and device time multiplied by 1 + step, and is
compared with each single other process. A step above 0 counts as other generated code. All other processes are in the store, so
that the noise is known. `--modes` gives cells a second mode. A column has the share of pairs that a rule calls: as regressed or
improved at step 0, which is false, and as regressed at other steps. Beside `compare` are the rules of two dashboards on equal
pairs: the PyTorch HUD's (the speedup is worse by 5 %) and rustc-perf's (the change exceeds Q3 + 3 (Q3 - Q1) of the changes
between neighbours of all other processes; perf.rust-lang.org takes 30 neighbours). If `apache-otava` is installed, its change
points of a history of all other processes and the new one follow, by device time and by latency: a change point at the new
process is a call. Cells that fail in a process are left out of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from analysis.compare.cell_comparison import Outcome
from analysis.compare.compare_sides import compare_named
from benchmarks.process_noise import reused_all
from collector.bundle import BundleContents, BundleWriter, read_bundle
from collector.vocabulary import Measurement, Status
from db.engine import open_store
from db.ingest import ingest_bundle

_STEPS = (0.0, 0.02, 0.03, 0.05, 0.1)
#: The relative cost of the second mode of `--modes`.
_MODE = 0.04
_SCALED = ("compiled_ms", "compiled_kernel_ms")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_OTAVA = {"Otava, device": "compiled_kernel_ms", "Otava, ms": "compiled_ms"}
_RULES = ("compare", "HUD, 5 %", "rustc-perf", *(_OTAVA if find_spec("otava") else ()))

#: The measurements of one process of each cell, by cell_id.
Process = Mapping[str, Measurement]


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--shared", action="store_true", help="only processes that reused all autotuning results")
    parser.add_argument("--steps", type=float, nargs="+", default=_STEPS, help="relative steps [%(default)s]")
    parser.add_argument("--modes", type=float, default=0.0, help="share of processes of a cell made 4 %% slower")
    options = parser.parse_args()
    contents = [read_bundle(path) for path in options.bundles]
    processes = processes_of(contents, options.shared)
    if len(processes) < 4:
        sys.exit(f"{len(processes)} processes of the same cells: give at least 4")
    random = np.random.default_rng(1)
    processes = [
        {
            key: scaled(item, _MODE, item.code_id) if random.random() < options.modes else item
            for key, item in one.items()
        }
        for one in processes
    ]
    print(f"{len(processes)} processes of {len(processes[0])} cells")
    print(f"{'step':>5} {'pairs':>6}" + "".join(f" {rule:>11}" for rule in _RULES))
    for step in options.steps:
        called, pairs = judged(contents, processes, step)
        print(f"{step:>5.0%} {pairs:>6}" + "".join(f" {called[rule] / pairs:>13.4f}" for rule in _RULES), flush=True)


def processes_of(contents: Sequence[BundleContents], shared: bool) -> list[Process]:
    """Return the processes in order: the first one has the first passing measurement of each cell, and so on.

    Cells with at least two measurements fewer than the largest number are left out. There are as many processes as every other
    cell has measurements.
    """
    found: dict[str, list[Measurement]] = defaultdict(list)
    for bundle in sorted(contents, key=lambda bundle: bundle.header.started_at):
        for cell_id, item in bundle.latest().items():
            if item.status is Status.PASS and (not shared or reused_all(item.details)):
                found[cell_id].append(replace(item, code_id="same"))
    most = max(map(len, found.values()), default=0)
    cells = {cell_id: items for cell_id, items in found.items() if len(items) >= most - 1}
    return [
        {cell_id: items[number] for cell_id, items in cells.items()}
        for number in range(min(map(len, cells.values()), default=0))
    ]


def judged(contents: Sequence[BundleContents], processes: Sequence[Process], step: float) -> tuple[Counter[str], int]:
    """Count the pairs of a cell's processes that each rule calls (either way at step 0, else worse), and all pairs."""
    called: Counter[str] = Counter()
    pairs = 0
    for new in range(len(processes)):
        others = [process for number, process in enumerate(processes) if number != new]
        slower = {cell_id: scaled(item, step) for cell_id, item in processes[new].items()}
        for rule, metric in _OTAVA.items() if _RULES[-1] in _OTAVA else ():
            histories = [
                [*(other[cell_id].metrics[metric] for other in others), item.metrics[metric]]
                for cell_id, item in slower.items()
            ]
            called[rule] += len(others) * sum(map(is_new_level, histories))
        for base, verdicts in zip(others, verdicts_of(contents, others, slower), strict=True):
            pairs += len(slower)
            for cell_id, item in slower.items():
                outcome, was = verdicts[cell_id], base[cell_id].metrics
                counts = {Outcome.REGRESSED, *([] if step else [Outcome.IMPROVED])}
                called["compare"] += outcome in counts
                speedup = item.metrics["speedup"] / was["speedup"]
                called["HUD, 5 %"] += speedup < 0.95 or (not step and speedup > 1.05)
                history = [other[cell_id].metrics["compiled_ms"] for other in others]
                change = item.metrics["compiled_ms"] / was["compiled_ms"] - 1
                called["rustc-perf"] += (change if step else abs(change)) >= fence(history)
    return called, pairs


def verdicts_of(
    contents: Sequence[BundleContents], others: Sequence[Process], new: Process
) -> Iterator[dict[str, str]]:
    """Yield for each of `others` the verdicts of `compare` on the cells of `new` against it, all in one store."""
    with tempfile.TemporaryDirectory() as scratch:
        engine = open_store(f"sqlite:///{scratch}/store.db", write=True)
        for number, process in enumerate([*others, new]):
            started = _START + timedelta(days=number)
            # Every process is a night of its own; only the new side has another commit.
            commit = "b" * 40 if process is new else "a" * 40
            header = replace(
                contents[0].header,
                run_id=f"process-{number}",
                commit=commit,
                started_at=started.isoformat(),
                asked=None,
                night="",
            )
            writer = BundleWriter(Path(scratch), header, [item.cell for item in process.values()])
            for bundle in contents:
                for environment_id, data in bundle.environments.items():
                    writer.environment(environment_id, data)
                for program_id, program in bundle.programs.items():
                    writer.program(program_id, program)
            for item in process.values():
                writer.measurement(item)
            ingest_bundle(engine, writer.close((started + timedelta(hours=1)).isoformat()))
        for number in range(len(others)):
            comparison = compare_named(engine, f"process-{number}", f"process-{len(others)}")
            yield {one.cell.cell_id: one.outcome.verdict for one in comparison.cells}
        engine.dispose()


def scaled(item: Measurement, step: float, code_id: str | None = None) -> Measurement:
    """Return the measurement of a compiled program that takes 1 + step times as long; other code unless `code_id` is given."""
    factor = 1 + step
    metrics = {name: value * factor if name in _SCALED else value for name, value in item.metrics.items()}
    metrics |= {name: metrics[name] / factor for name in ("speedup", "device_speedup") if name in metrics}
    samples = {
        name: [value * factor for value in values] if name in _SCALED else values
        for name, values in item.samples.items()
    }
    return replace(item, metrics=metrics, samples=samples, code_id=code_id or (f"{step:g}" if step else item.code_id))


def is_new_level(values: Sequence[float]) -> bool:
    """Return whether Otava with its defaults finds a change point at the last value."""
    from otava.analysis import compute_change_points  # type: ignore[import-not-found]

    return any(point.index == len(values) - 1 for point in compute_change_points(values)[0])


def fence(history: Sequence[float]) -> float:
    """Return the smallest relative change that rustc-perf calls significant after these values."""
    values = np.asarray(history)
    changes = np.sort(np.abs(np.diff(values)) / values[:-1])
    half = len(changes) // 2
    low, high = float(np.median(changes[:half])), float(np.median(changes[-half:]))
    return high + 3 * (high - low)


if __name__ == "__main__":
    main()
