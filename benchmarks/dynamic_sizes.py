"""Compare dynamic programs at two sizes with static ones of each size, as a Markdown table.

python -m benchmarks dynamic_sizes BUNDLE...

The bundles come from `inductor-watch run --config triton+dynamic ...`. Cells of other configs have no second size. The last
column has the cost of `dynamic_all` at the cell's own size, if the bundles have it and `triton` as well.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from collector.bundle import read_bundle
from collector.vocabulary import MARKED, MeasuredSize, Measurement, Status, sizes_of

_HEAD = (
    "| model | phase | size | eager ms | static ms | dynamic ms | over static | recompiles | check | all over static |"
)


def main() -> None:
    """Print a row for each model and size."""
    found = [cell for path in sys.argv[1:] for cell in read_bundle(Path(path)).measurements]
    print(_HEAD)
    print("|" + "---|" * (_HEAD.count("|") - 1))
    for measurement in found:
        cell = measurement.cell
        if cell.config.dynamic != MARKED:
            continue
        sizes = sizes_of(measurement.details)
        if not sizes:
            reason = measurement.failure.message if measurement.failure else ""
            print(f"| {cell.model} | {cell.phase} | {measurement.status}: {_cell_text(reason)} |" + " |" * 7)
        for size, last in zip(sizes, (_all_over_static(measurement, found), ""), strict=False):
            print(f"| {cell.model} | {cell.phase} | {' | '.join(_columns(measurement, size))} | {last} |")


def _columns(measurement: Measurement, size: MeasuredSize) -> list[str]:
    latencies = [f"{ms:.3f}" if ms is not None else "" for ms in (size.eager_ms, size.static_ms, size.compiled_ms)]
    ratio = f"{size.over_static:.3f}" if size.over_static else ""
    return [str(size), *latencies, ratio, str(size.recompiles), size.status or measurement.status.value]


def _all_over_static(marked: Measurement, found: list[Measurement]) -> str:
    """Return the latency with all dimensions dynamic over the static one, from two other cells; "" if one of them is missing."""
    ms = {
        other.cell.config.dynamic: other.metrics["compiled_ms"]
        for other in found
        if other.status is Status.PASS and replace(other.cell, config=marked.cell.config) == marked.cell
    }
    return f"{ms[True] / ms[None]:.3f}" if True in ms and None in ms else ""


def _cell_text(text: str) -> str:
    return (text.splitlines() or [""])[0].replace("|", "\\|")


if __name__ == "__main__":
    main()
