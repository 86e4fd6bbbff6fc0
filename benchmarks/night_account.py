"""Print the status of each cell of a night, the use of the workers' time, and the progress over time.

    python -m benchmarks night_account BUNDLE... [--workers 15]

A night on several GPUs has a bundle for each. A line is a cell of the plan. A disturbed measurement and its repeat are two
processes. A line that is a copy of another line's program has no process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

import click

from collector.bundle import read_bundle
from collector.vocabulary import Cell, Measurement, Status
from jobs.plan.cost import Source, is_whole, shipped_costs, worker_s
from jobs.plan.spared_cells import SAME_PROGRAM, tuning_key

#: Seconds of a row of the last table.
_STEP_S = 120
#: The number of processes that are named for the longest stops, and the templates that tune.
_LONGEST, _TUNES = 5, ("aten", "tma", "cutlass")
_MARKS = {
    Status.PASS: "+",
    Status.UNAVAILABLE: "n/a",
    Status.ILL_CONDITIONED: "ill",
    Status.FAIL_TO_RUN: "run",
    Status.FAIL_TO_COMPILE: "compile",
}


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--workers", default=15, show_default=True, help="How many workers the night had on each GPU.")
def main(bundles: Sequence[Path], workers: int) -> None:
    """Print the account of the bundles of one night."""
    contents = [read_bundle(bundle) for bundle in bundles]
    measured = [item for one in contents for item in one.measurements]
    processes = own_processes(measured)
    if not processes:
        raise click.UsageError(f"{bundles[0]} has no measured cell: name the bundle of a night")
    lines = {item.cell.cell_id: item for item in measured}  # a repeat comes later
    ends = Counter(item.status.value for item in lines.values())
    click.echo(f"{len(lines)} lines: " + ", ".join(f"{count} {status}" for status, count in ends.most_common()))
    click.echo("\n".join(status_table(lines.values())))
    found = (*account(processes), found_choices(processes), *against_first_costs(processes))
    began = min(one.header.started_at for one in contents)
    click.echo("\n".join((*found, *when(began, measured, workers * len(contents)))))


def status_table(lines: Iterable[Measurement]) -> list[str]:
    """Return a Markdown table of statuses, with a row for each model and phase and a column for each config."""

    def row_of(cell: Cell) -> tuple[str, str]:
        return cell.phase.value, f"{cell.suite}/{cell.model}"

    marks = {(row_of(one.cell), one.cell.config.name): _MARKS.get(one.status, one.status.value) for one in lines}
    configs = sorted({config for _, config in marks})
    table = [f"| | {' | '.join(configs)} |", "|---" * (len(configs) + 1) + "|"]
    for (phase, model), _ in groupby(sorted(row for row, _ in marks)):
        found = (marks.get(((phase, model), config), "") for config in configs)
        table.append(f"| {model}, {phase} | {' | '.join(found)} |")
    return [*table, ", ".join(f"`{mark}` {status.value}" for status, mark in _MARKS.items())]


def own_processes(measured: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurements that had a process of their own, in the order of their starts."""
    own = (item for item in measured if SAME_PROGRAM not in item.details and item.wall_s)
    return sorted(own, key=lambda item: item.started_at)


def account(processes: Sequence[Measurement]) -> list[str]:
    """Return lines on the workers' time: stages, waits for the GPU, stops, use of the GPU alone, and repeats."""
    whole_s = sum(item.wall_s for item in processes)
    stages, held = Counter[str](), Counter[str]()
    for item in processes:
        stages.update(item.details.get("stage_s", {}))
        held.update(item.details.get("held_s", {}))
    alone = {purpose: seconds for purpose, seconds in held.items() if purpose != "device"}
    waited, stopped = (sum(item.details.get(name, 0.0) for item in processes) for name in ("waited_s", "stopped_s"))
    again = [item for item in processes if item.details.get("repeated")]
    return [
        f"{len(processes)} processes, {whole_s:,.0f} s of workers: {_shares(stages, whole_s)}",
        f"of these {waited:,.0f} s waiting for the GPU, {stopped:,.0f} s of that standing still",
        f"the GPU belonged to one cell alone for {sum(alone.values()):,.0f} s: {_seconds(alone)}",
        f"stood still longest: {', '.join(_stood(item) for item in sorted(processes, key=_stopped_s)[: -_LONGEST - 1 : -1])}",
        f"{len(again)} disturbed measurements were repeated, in {sum(item.wall_s for item in again):,.0f} s",
    ]


def _stopped_s(item: Measurement) -> float:
    return float(item.details.get("stopped_s", 0.0))


def _stood(item: Measurement) -> str:
    return f"{item.cell.model} {item.cell.config.name} {_stopped_s(item):.0f} of {item.wall_s:.0f} s"


def found_choices(processes: Iterable[Measurement]) -> str:
    """Return a line on the choices of tuning that later processes of a model found, and made anew, among equal tuning keys."""
    first_of, counts, after = dict[tuple[object, ...], str](), Counter[str](), Counter[str]()
    for item in processes:
        cell = item.cell
        key = cell.suite, cell.model, cell.phase, cell.dtype, cell.batch_size, tuning_key(cell.config, cell.device)
        if key in first_of:
            shared = item.details.get("shared_tuning", {})
            counts.update({name: count for name, count in shared.items() if type(count) is int})
            after[first_of[key]] += shared.get("kernels_tuned", 0)
        first_of.setdefault(key, cell.config.name)
    found, made = counts["kernels_found"], counts["kernels_tuned"]
    return (
        f"processes after the first of a model that tune alike found the choices of {found:,} kernels and made those of {made:,} "
        f"({counts['decided_otherwise']:,} another one), by which config was first: "
        f"{', '.join(f'{name} {count:,}' for name, count in after.most_common()) or 'none'}"
    )


def against_first_costs(processes: Iterable[Measurement]) -> list[str]:
    """Return a line each for programs that tune and for others: their seconds of a worker over those in the shipped table.

    The ratio of programs that do not tune shows how fast the host is.
    """
    took = {True: (0, 0.0, 0.0), False: (0, 0.0, 0.0)}
    for item in filter(is_whole, processes):
        name, shipped = item.cell.config.name, shipped_costs().estimate(item.cell)
        if shipped.source is Source.MEASURED:
            tunes = "autotune" in name or name in _TUNES
            count, here, there = took[tunes]
            took[tunes] = count + 1, here + worker_s(item), there + shipped.worker_s
    return [
        f"{count} {'programs that tune' if tunes else 'others'}: {here:,.0f} s of a worker, {here / there:.2f} of the first costs"
        for tunes, (count, here, there) in took.items()
        if there
    ]


def _shares(parts: Counter[str], whole_s: float) -> str:
    return ", ".join(f"{name} {seconds / whole_s:.0%}" for name, seconds in parts.most_common(4))


def _seconds(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:,.0f}" for name, seconds in sorted(parts.items(), key=lambda item: -item[1]))


def when(began: str, measured: Sequence[Measurement], workers: int) -> list[str]:
    """Return a Markdown table of the lines that had ended, and of the workers that had a cell, every two minutes."""
    begin = datetime.fromisoformat(began).timestamp()
    busy, ended = defaultdict[int, float](float), Counter[int]()
    for item in own_processes(measured):
        start = datetime.fromisoformat(item.started_at).timestamp() - begin
        end = start + item.wall_s
        for step in range(int(start // _STEP_S), int(end // _STEP_S) + 1):
            busy[step] += max(0.0, min(end, (step + 1) * _STEP_S) - max(start, step * _STEP_S)) / _STEP_S
    firsts = {item.cell.cell_id: item for item in reversed(measured)}
    for item in firsts.values():
        ended[int((datetime.fromisoformat(item.started_at).timestamp() - begin + item.wall_s) // _STEP_S)] += 1
    rows = [f"| until second | lines that ended | workers with a cell, of {workers} |", "|---|---|---|"]
    for step in range(max(busy) + 1):
        lines = sum(count for at, count in ended.items() if at <= step)
        rows.append(f"| {(step + 1) * _STEP_S:,} | {lines} | {busy[step]:.1f} |")
    return rows


if __name__ == "__main__":
    main()
