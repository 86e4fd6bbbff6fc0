"""Compare rules for stopping other cells while a cell is measured on a GPU: some cells in many processes under each rule.

    python -m benchmarks standing --processes 8 [--out FILE]

Each rule measures equal processes, as many side by side as there are cores:

    alone    one cell at a time, with all cores
    all      every other cell is stopped whenever the cell has the GPU to itself; it stays on its own core
    users    the cells that use the GPU are stopped; it stays on its own core
    quiet    as `users`, and the cell moves to the core that is kept free
    latencies  as `quiet`, and every other cell is stopped while latencies are taken
    product  the rule of this tool: every other cell is stopped while a library's matrix product is timed

The table has the spread of each metric over the processes of a cell, as standard deviation of its logarithm in per cent, its
median relative to that of `all`, and how often the processes chose the most frequent candidates of tuning.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev
from typing import IO, Any

import click

from collector.process.cell_process import CellProcess
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase, Status
from jobs.plan.cost import CostModel
from jobs.pool.device_slots import choose_gpus, list_gpus, make_slots
from jobs.pool.gpu_scheduler import DeviceSlot, GpuScheduler
from jobs.pool.runner import Pool
from jobs.pool.session import memory_of
from jobs.pool.testbeds import preload_for
from jobs.pool.usage import UsageMeter

CELLS = (
    ("huggingface", "BertForMaskedLM", "triton"),
    ("torchvision", "resnet50", "cudagraphs"),
    ("llm", "Llama-3.2-1B.decode", "cudagraphs"),
    ("modern", "dlrm", "max_autotune"),
)
RULES = ("all", "users", "quiet", "latencies", "product", "alone")
QUANTITIES = ("compiled_kernel_ms", "compiled_ms", "eager_kernel_ms", "eager_ms")


class Quiet(GpuScheduler):
    """A scheduler that stops only the users of the GPU."""

    all_stand = frozenset()


class Latencies(GpuScheduler):
    """A scheduler that stops every other cell while latencies are taken."""

    all_stand = frozenset({"measure"})


class Users(Quiet):
    """A scheduler that stops only the users of the GPU, and never moves a cell to the quiet cores."""

    def _give(self, process: CellProcess) -> None:
        move, process.move = process.move, lambda _: None  # type: ignore[method-assign]
        super()._give(process)
        process.move = move  # type: ignore[method-assign]


def slot_for(rule: str, workers: int | None) -> DeviceSlot:
    """Return the slot of this host's first GPU for a rule; all rules have equal cores for their workers."""
    (slot,) = make_slots(choose_gpus(list_gpus(), None), 1 if rule == "alone" else workers, "fork")
    return replace(slot, extra_cells=0, quiet_cores=() if rule == "all" else slot.quiet_cores)


def measured(
    rule: str, cells: Sequence[Cell], settings: Settings, workers: int | None, out: IO[str] | None
) -> list[dict[str, Any]]:
    """Measure the cells under a rule; return a JSON object for each, and write it to `out` at once."""
    slot = slot_for(rule, workers)
    kind = {"users": Users, "quiet": Quiet, "latencies": Latencies}.get(rule, GpuScheduler)
    scheduler = kind(cells, settings, slot, os.environ, preload_for(cells, "cuda"), memory_of(CostModel.of_history([])))
    used = [core for part in slot.cores for core in part] or sorted(os.sched_getaffinity(0))
    rows, began = [], time.monotonic()
    with UsageMeter(slot.variables["CUDA_VISIBLE_DEVICES"], [*used, *slot.quiet_cores], len(slot.cores)) as meter:
        for _, outcome in Pool([scheduler]).run():
            found = outcome.measurement
            meter.took(found)
            rows.append({"rule": rule, "measurement": found.to_json()})
            if out:
                out.write(json.dumps(rows[-1]) + "\n")
                out.flush()
            print(f"{rule} {time.monotonic() - began:.0f} s {found.cell} {found.status}", flush=True)
    print(f"{rule}: {meter.usage()}", flush=True)
    return rows


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation of the logarithm in per cent; NaN for a single value."""
    return 100 * stdev(map(math.log, values)) if len(values) > 1 else math.nan


def lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines of the table, one for each cell and rule."""
    by: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["measurement"]["status"] == Status.PASS.value and "disturbed" not in row["measurement"].get(
            "details", {}
        ):
            name = Cell.from_json(row["measurement"]["cell"])
            by.setdefault((f"{name.model} {name.config.name}", row["rule"]), []).append(row["measurement"])
    made = []
    for (cell, rule), found in sorted(by.items()):
        base = by.get((cell, "all"), found)
        parts = []
        for name in QUANTITIES:
            values, others = (
                [one["metrics"][name] for one in group if name in one["metrics"]] for group in (found, base)
            )
            if values and others:
                parts.append(f"{name} {spread(values):.2f} % ({100 * (median(values) / median(others) - 1):+.2f} %)")
        made.append(f"{cell}, {rule}: {len(found)} processes, {', '.join(parts)}; {_tuned(found, base)}")
    return made


def _tuned(found: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]) -> str:
    """Return how often processes chose alike, and how many timings of chosen candidates are 1.5 times the least timing."""
    chosen, timed, least = defaultdict[str, list[str]](list), defaultdict[str, list[float]](list), dict[str, float]()
    for measurement in (*found, *base):
        for what, candidates, choice, ms in measurement["details"].get("autotuned", ()):
            if candidates and ms:
                least[what] = min(ms, least.get(what, ms))
                if any(measurement is one for one in found):
                    chosen[what].append(choice)
                    timed[what].append(ms)
    alike = [Counter(names).most_common(1)[0][1] / len(names) for names in chosen.values()]
    late = [ms / least[what] for what, values in timed.items() for ms in values]
    if not late:
        return "nothing tuned"
    return f"{100 * mean(alike):.0f} % chose alike, {100 * mean(x > 1.5 for x in late):.0f} % of timings 1.5 times the least"


@click.command()
@click.option("--processes", default=8, show_default=True, help="Processes of each cell under each rule.")
@click.option("--workers", type=int, help="Workers of the GPU [as many as fit].")
@click.option("--rule", "rules", multiple=True, type=click.Choice(RULES), help="The rules to try [all of them].")
@click.option("--model", "models", multiple=True, help="The models to measure [all four].")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write every measurement.")
def main(
    processes: int, workers: int | None, rules: tuple[str, ...], models: tuple[str, ...], out: Path | None
) -> None:
    """Measure some cells in many processes under each rule of standing still."""
    from collector.zoo.registry import find

    cells = []
    for suite, model, template in CELLS:
        batch = find(suite, model).batch_size(Phase.INFERENCE, "cuda")
        cells.append(Cell(suite, model, Phase.INFERENCE, "bfloat16", "cuda", batch, Config(template=template)))
    rows: list[dict[str, Any]] = []
    cells = [cell for cell in cells if not models or cell.model in models]
    for rule in rules or RULES:
        repeated = cells * (min(2, processes) if rule == "alone" else processes)
        with out.open("a") if out else nullcontext() as stream:
            rows += measured(rule, repeated, Settings(), workers, stream)
        for line in lines(rows):
            print(line, flush=True)


if __name__ == "__main__":
    main()
