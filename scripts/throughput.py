"""What nights cost: seconds a cell, by config, and how far from what the machine allows.

python scripts/throughput.py [--together] BUNDLE...      --together: all bundles as one, from the first start to the last end

Two limits of a GPU's pool: the CPU seconds of its cells over its cores, since compiling is what a cell mostly does; and the
seconds in which one cell measures while all others stand still. While it measures the cores idle, so a pool that wastes
nothing else takes the sum of both.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from collector.bundle import BundleContents, read_bundle
from collector.vocabulary import NOT_APPLICABLE, Measurement, Status

_NO_WORK = NOT_APPLICABLE | {Status.CONFIG_ERROR}


def main() -> None:
    """Prints a line a run, then a table of configs over all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--together", action="store_true")
    options = parser.parse_args()
    runs = [read_bundle(path) for path in options.bundles]
    for run in runs:
        _print_run(run)
    if options.together:
        everything = [item for run in runs for item in worked(run)]
        seconds = span_s(everything)
        print(f"together: {len(everything)} cells in {seconds:.0f} s, {seconds / len(everything):.2f} s a cell")
    _print_configs([item for run in runs for item in worked(run)])


def worked(run: BundleContents) -> list[Measurement]:
    """The measurements for which a cell really ran: no copies of twins, nothing that was not to be had here."""
    return [
        item
        for item in run.latest().values()
        if item.status not in _NO_WORK and "same_program_as" not in item.details and item.wall_s > 0
    ]


def span_s(items: Iterable[Measurement]) -> float:
    """Seconds from the first cell's start to the last one's end."""
    begins = [datetime.fromisoformat(item.started_at).timestamp() for item in items]
    ends = [begin + item.wall_s for begin, item in zip(begins, items, strict=True)]
    return max(ends) - min(begins)


def held_s(items: Iterable[Measurement], purpose: str) -> float:
    """Seconds for which the device was held for a purpose."""
    return sum(item.details.get("held_s", {}).get(purpose, 0.0) for item in items)


def cpu_s(items: Iterable[Measurement]) -> float:
    """CPU seconds of all processes of the cells; a cell that crashed has told none."""
    return sum(item.details.get("cpu_s") or 0.0 for item in items)


def _print_run(run: BundleContents) -> None:
    items, testbed = worked(run), run.header.testbed
    if not items:
        return
    workers = int(testbed.get("workers", 1))
    cores = workers * int(testbed["cores"])
    span, count = span_s(items), len(items)
    compiling, measuring = cpu_s(items) / cores, held_s(items, "measure")
    print(f"{run.header.run_id} {run.header.label or run.header.trigger}, {testbed.get('start', 'spawn')}:")
    print(
        f"  {count} cells in {span:.0f} s, {span / count:.2f} s a cell with {workers} workers x {testbed['cores']} cores"
    )
    if not compiling:
        print("  limit unknown: the bundle does not say what its cells took of the CPU")
        return
    print(
        f"  limit {(compiling + measuring) / count:.2f} s a cell: {cpu_s(items) / count:.1f} CPU seconds over {cores} cores, "
        f"and {measuring / count:.2f} s standing; {span / (compiling + measuring):.2f} times the limit"
    )


def _print_configs(items: Sequence[Measurement]) -> None:
    groups: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for item in items:
        groups[(item.cell.phase.value, item.cell.config.name)].append(item)
    names = ("phase", "config", "cells", "worker s", "cpu s", "compile s", "measure s", "tune s")
    print(("{:<10} {:<34}" + " {:>9}" * 6).format(*names))
    for (phase, config), found in sorted(groups.items(), key=lambda pair: (pair[0][0], -len(pair[1]), pair[0][1])):
        working = [item.wall_s - item.details.get("waited_s", 0.0) for item in found]
        colds = [item.metrics["compile_cold_s"] for item in found if "compile_cold_s" in item.metrics]
        figures = (
            sum(working) / len(found),
            cpu_s(found) / len(found),
            median(colds) if colds else float("nan"),
            held_s(found, "measure") / len(found),
            held_s(found, "tune") / len(found),
        )
        print(f"{phase:<10} {config:<34} {len(found):>9}" + "".join(f" {figure:>9.2f}" for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
