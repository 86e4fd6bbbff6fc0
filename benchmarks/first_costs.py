"""Write cells' seconds and memory into the table with which a first night plans (`jobs/plan/first_costs.json`).

    python -m benchmarks first_costs BUNDLES... [--only new|memory|seconds]

A cell that these bundles do not have keeps its row, except for its memory if they have other configs of its model. With `--only
new` all rows stay, and cells without a row get one. With `--only memory` and `--only seconds` rows keep their seconds or memory,
which are from another host, and no row is added.

A row has, for each cell of a GPU that was measured completely, the seconds of a worker, and the device memory that it reserved to
load the model, to run it in eager mode and to check it; for older bundles without that record, the peak of an eager call. Of
several measurements of a cell the median counts (for the check's memory the largest), and measurements without the record count
only if none has it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import click

from collector.bundle import BundleContents, read_bundle
from collector.vocabulary import KEPT_BYTES, Cell, Measurement, Stage, Status
from jobs.plan.cost import is_whole, kept_bytes, worker_s
from jobs.plan.spared_cells import SAME_PROGRAM

TABLE = Path(__file__).parents[1] / "jobs" / "plan" / "first_costs.json"
#: The reserved memory over the peak of an eager call: 1.15 and 1.17 in the two training cells on an H100 with both values.
_RESERVED_OVER_PEAK = 1.2
_STAGES = (Stage.LOAD_MODEL.value, Stage.EAGER.value, Stage.CORRECTNESS.value)
#: Statuses of cells that went through all stages.
_ENDED = (Status.PASS, Status.ILL_CONDITIONED, Status.FAIL_ACCURACY)


def rows(bundles: Iterable[BundleContents]) -> list[dict[str, Any]]:
    """Return a row for each cell, in the order of the cells' names."""
    by_cell: dict[str, list[Measurement]] = defaultdict(list)
    for item in (item for contents in bundles for item in contents.measurements):
        is_own = is_whole(item) and SAME_PROGRAM not in item.details
        if is_own and item.status in _ENDED and _bytes(item):
            by_cell[str(item.cell)].append(item)
    found = []
    for _, items in sorted(by_cell.items()):
        items = [item for item in items if "stage_bytes" in item.details] or items
        stages = [_bytes(item) for item in items]
        by_stage = {name: [one[name] for one in stages if name in one] for name in _STAGES}
        # The memory of a check depends on the largest reference of the run, and runs may have different ones.
        sizes = {
            name: int(max(several) if name == Stage.CORRECTNESS.value else median(several))
            for name, several in by_stage.items()
            if several
        }
        row = {
            "cell": items[0].cell.to_json(),
            "worker_s": round(median(map(worker_s, items)), 1),
            "stage_bytes": sizes,
        }
        kept = [size for item in items if (size := kept_bytes(item)) is not None]
        found.append(row | ({KEPT_BYTES: max(kept)} if kept else {}))
    return found


def _bytes(item: Measurement) -> dict[str, float]:
    peak = _RESERVED_OVER_PEAK * item.metrics.get("eager_peak_bytes", 0)
    recorded = item.details.get("stage_bytes") or {Stage.EAGER.value: peak}
    return {stage: recorded[stage] for stage in _STAGES if item.cell.device == "cuda" and recorded.get(stage)}


def _memory_of(row: dict[str, Any], others: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the largest memory of a row's model under any config, as a part of a row; {} if it was not measured.

    For the kept memory it is the least: more than the least is the pool of a graph, which comes after compiling.
    """
    model = [other for other in others if _model(other) == _model(row)]
    stages = {name for other in model for name in other["stage_bytes"]}
    sizes = {name: max(other["stage_bytes"].get(name, 0) for other in model) for name in sorted(stages)}
    kept = min((other[KEPT_BYTES] for other in model if KEPT_BYTES in other), default=0)
    return ({"stage_bytes": sizes} if sizes else {}) | ({KEPT_BYTES: kept} if kept else {})


def _model(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row["cell"].items() if name != "config"}


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--only", type=click.Choice(["new", "memory", "seconds"]), help="Cells without a row, or a part of each row."
)
def main(bundles: tuple[Path, ...], only: str | None) -> None:
    """Write the seconds and memory of these bundles' cells into the table; other cells keep their rows."""
    table = {str(Cell.from_json(row["cell"])): row for row in json.loads(TABLE.read_text())}
    found = {str(Cell.from_json(row["cell"])): row for row in rows(map(read_bundle, bundles))}
    if only == "new":
        found = {name: row for name, row in found.items() if name not in table}
    elif only == "seconds":
        found = {name: row | {"worker_s": found[name]["worker_s"]} for name, row in table.items() if name in found}
    else:
        others = {name: row | _memory_of(row, found.values()) for name, row in table.items()}
        if only == "memory":
            found = {name: row | _memory_of(row, [found[name]]) for name, row in table.items() if name in found}
            others = {name: row | {"stage_bytes": others[name]["stage_bytes"]} for name, row in table.items()}
        table = others
    lines = ",\n".join(json.dumps(row) for _, row in sorted((table | found).items()))
    TABLE.write_text(f"[\n{lines}\n]\n")
    click.echo(f"{TABLE.name}: {len(table | found)} cells, {len(found)} of them from these bundles")


if __name__ == "__main__":
    main()
