"""Plan what to run again: the cells that decide a comparison, the command that measures a cell as a run did, one kernel alone.

The script of a kernel is written from the database: the kernel's source, and the sizes, strides and dtypes that the wrapper
gives it. The script runs and times the kernel as it was in base and in new. Nothing is run here. tritonparse writes such scripts,
too, and can keep the very values of the tensors, but it needs the program to run again under its tracing, for both torches. This
module needs the stored code only.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from analysis.compare.cell_comparison import CellComparison, Outcome
from analysis.compare.comparison import Comparison
from collector.code import ITEM_BYTES, KERNEL, NAME_OF_SOURCE, Call, Code, TensorLayout, calls_of
from collector.own_models import program_key, repro_command
from collector.usage_errors import ExpectedError, nearest
from collector.vocabulary import Cell, Config, Phase
from db.nights import RunInfo, find_runs
from db.queries.cells import CellName
from db.queries.details import environment
from db.queries.details import measurement as stored_measurement
from db.schema import Run
from db.store_errors import counted


class NoScriptError(ExpectedError):
    """The error that no script can be written of a kernel; its text says why."""


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """A kernel of a side: its name, its source as a Python expression, its calls, and lines for the script's head.

    `ms` is the device time of a launch in the side's run, None where it was not listed.
    """

    side: str
    name: str
    source: str
    calls: tuple[Call, ...]
    about: tuple[str, ...] = ()
    ms: float | None = None


def find_kernel(side: str, code: Code, texts: Mapping[str, str], name: str) -> StoredKernel:
    """Return a kernel of a side's code by its name; `texts` are by id.

    Raises:
        NoScriptError: there is no such kernel, it is no Triton kernel, or its source or the wrapper is not stored.
    """
    for graph in code.graphs:
        kernel = next((kernel for kernel in graph.kernels if kernel.name == name), None)
        if kernel is None:
            continue
        source = texts.get(kernel.text_id)
        if source is None:
            raise NoScriptError(f"the source of {name} is no longer stored")
        if not source.startswith("async_compile.triton(") or not name.isidentifier():
            raise NoScriptError(f"{name} is no Triton kernel")
        try:
            calls = tuple(call for call in calls_of(graph, texts) if call.text_id == kernel.text_id)
        except ValueError as error:
            raise NoScriptError(f"the launch of {name} is not known: {error}") from error
        if not calls or not all(_is_known(value) for value in calls[0].arguments):
            raise NoScriptError(f"the launch of {name} is not known: its wrapper gives it something of another kind")
        return StoredKernel(side, name, source.replace(KERNEL, name), calls)
    raise NoScriptError(f"{side} has no kernel {name}: {nearest(name, [kernel.name for kernel in code.kernels])}")


def _is_known(value: object) -> bool:
    if isinstance(value, TensorLayout):
        return value.dtype in ITEM_BYTES and not value.dtype.startswith("complex")
    return isinstance(value, bool | int | float)


def kernel_script(kernels: Sequence[StoredKernel]) -> str:
    """Return the script: Python that needs torch, Triton and a GPU."""
    parts = [_HEAD, *(_comments(kernel) for kernel in kernels), _IMPORTS]
    for kernel in kernels:
        arguments = ",\n    ".join(_argument(value) for value in kernel.calls[0].arguments)
        parts.append(
            f"{kernel.side}_kernel = {kernel.source}\n\n{kernel.side}_arguments = lambda: [\n    {arguments},\n]\n"
        )
    rows = "".join(
        f"    time_it({kernel.side!r}, {kernel.side}_kernel, {kernel.side}_arguments(), {kernel.name!r}, {kernel.ms!r})\n"
        for kernel in kernels
    )
    return "\n".join([*parts, f'{_TIMING}\n\nif __name__ == "__main__":\n    async_compile.wait(globals())\n{rows}'])


def _comments(kernel: StoredKernel) -> str:
    layouts = {tuple(call.arguments) for call in kernel.calls}
    more = f", with {len(layouts)} sets of arguments: the first is here" if len(layouts) > 1 else ""
    sites = f"  launched {len(kernel.calls)} x by the wrapper{more}"
    return _lines((f"{kernel.side}: {kernel.name}", *kernel.about, sites))


def _lines(lines: Iterable[str]) -> str:
    """Return the lines as comments: at most 300 characters each, and a space for each character that is not printable."""
    shown = ("".join(char if char.isprintable() else " " for char in line)[:300] for line in lines)
    return "".join(f"# {line}\n" for line in shown)


def _argument(value: object) -> str:
    if isinstance(value, TensorLayout):
        return f"tensor({value.size!r}, {value.stride!r}, torch.{value.dtype})"
    return repr(value)


_HEAD = """\
# One kernel alone, written by inductor-watch from its database. Run it with a torch and a GPU like those named here.
# The sources below are what Inductor generated in these runs, as their bundles say. Where a bundle came from somebody
# else, so does this code: read it before you run it.
#
# Numbers are random and indices are 0: a kernel that gathers or scatters goes to one row here. Autotuning chooses again.
#"""
_IMPORTS = """\
import torch
from torch._inductor.async_compile import AsyncCompile

async_compile = AsyncCompile()


def tensor(size, stride, dtype):
    elements = 1 + sum((length - 1) * step for length, step in zip(size, stride))
    if not dtype.is_floating_point:
        return torch.zeros(elements, dtype=dtype, device="cuda").as_strided(size, stride)
    return torch.randn(elements, device="cuda").to(dtype).as_strided(size, stride)

"""
_TIMING = """\

def device_ms(name, call, launches=50):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(launches):
            call()
        torch.cuda.synchronize()
    return sum(one.self_device_time_total for one in profiler.key_averages() if one.key == name) / 1e3 / launches


def time_it(side, kernel, arguments, name, stored_ms):
    def launch():
        kernel.run(*arguments, stream=torch.cuda.current_stream().cuda_stream)

    others = torch.ones(1 << 27, device="cuda")

    def launch_cold():
        others.sum()  # reads so much that nothing of the arguments is left in the cache
        launch()

    for _ in range(3):
        launch()
    was = "" if stored_ms is None else f"; in the run {stored_ms:.4f} ms"
    print(f"{side}: {device_ms(name, launch_cold):.4f} ms a launch, {device_ms(name, launch):.4f} ms with a warm cache{was}")
"""


#: Outcomes that one more run confirms or clears up.
_ONCE = (Outcome.REGRESSED, Outcome.BROKE, Outcome.FLAKY)


@dataclass(frozen=True, slots=True)
class AgainCell:
    """A cell and how many further runs of each side would settle it; `why` is its outcome."""

    name: str
    cell: Cell
    runs: int
    why: str


@dataclass(frozen=True, slots=True)
class Again:
    """The cells to measure again, most runs first, and the numbers of cells that further runs do not settle.

    `too_noisy` cells would need more than 50 runs, `elsewhere` cells were measured on another testbed (measure both sides on
    one), `missing` cells were planned and not measured (`resume` goes on with a night), and `unreadable` cells have a config of
    another version, or a config that names a program.
    """

    cells: tuple[AgainCell, ...]
    too_noisy: int
    elsewhere: int
    missing: int
    unreadable: int

    @property
    def runs(self) -> int:
        """The largest number of runs that a cell needs."""
        return max((cell.runs for cell in self.cells), default=0)

    def unsettled(self) -> list[str]:
        """Return a sentence for each reason why further runs settle nothing."""
        reasons = {
            "would take more than 50 further runs: lower the noise instead": self.too_noisy,
            "measured on different testbeds: measure both sides on one": self.elsewhere,
            "missing: inductor-watch resume goes on with a night that was cut short": self.missing,
            "with a config that this version cannot read, or that names a program": self.unreadable,
        }
        return [f"{counted(count, 'cell')} {reason}" for reason, count in reasons.items() if count]

    def to_plan(self) -> dict[str, Any]:
        """Return a plan as `plan --json` writes it, with `runs`: how often each cell is to be measured, by `cell_id`."""
        return {
            "cells": [item.cell.to_json() for item in self.cells],
            "left_out": [],
            "runs": {item.cell.cell_id: item.runs for item in self.cells},
        }

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        cells = [
            {"cell_id": item.cell.cell_id, "cell": item.name, "runs": item.runs, "why": item.why} for item in self.cells
        ]
        left = {name: getattr(self, name) for name in ("too_noisy", "elsewhere", "missing", "unreadable")}
        return {"cells": cells, "runs": self.runs, **left}


#: No cell to measure again: no further run settles anything.
NOTHING_AGAIN = Again((), 0, 0, 0, 0)


def find_again(comparison: Comparison, configs: Mapping[str, Config]) -> Again:
    """Return the cells to measure again: inconclusive cells as often as their verdict asks for.

    Cells that regressed, broke or are flaky are measured once more. `configs` are the requests by `config_id`.
    """
    counts = {"too_noisy": 0, "elsewhere": 0, "missing": 0, "unreadable": 0}
    cells = []
    for row in comparison.cells:
        runs, left = _runs(row)
        config_id = row.cell.config_id
        if left:
            counts[left] += 1
        elif runs and (config_id not in configs or program_key(configs[config_id])):
            counts["unreadable"] += 1
        elif runs:
            cells.append(AgainCell(str(row.cell), cell_of(row.cell, configs), runs, row.outcome.value))
    return Again(tuple(sorted(cells, key=lambda item: (-item.runs, item.name))), **counts)


def cell_of(name: CellName, configs: Mapping[str, Config]) -> Cell:
    """Return the collector's `Cell` for a compared cell."""
    axes = name.suite, name.model, Phase(name.phase), name.dtype, name.device, name.batch_size
    return Cell(*axes, configs[name.config_id])


def _runs(row: CellComparison) -> tuple[int, str]:
    """Return how often to measure a cell again, or 0 and the word for why that does not help; 0 and "" if there is no need."""
    if row.outcome.verdict is Outcome.MISSING:
        return 0, "missing"
    if row.model_changed:
        return 0, ""  # its numbers say nothing about torch
    if row.outcome is Outcome.ENVIRONMENT_CHANGED or (row.outcome is Outcome.INCONCLUSIVE and row.testbed_changed):
        return 0, "elsewhere"
    if row.outcome in _ONCE:
        return 1, ""
    if row.outcome is not Outcome.INCONCLUSIVE:
        return 0, ""
    needed = row.more_runs
    if needed is None:
        return 1, ""  # the noise is not known, and a second run is needed to learn it
    # At the limit the interval is narrow enough, and one more run moves the estimate.
    return (0, "too_noisy") if needed == float("inf") else (max(1, int(needed)), "")


#: The switches of `collector.settings` with their defaults, and its optimizers that a step can end with. They are written here
#: again, since that module imports torch, which reports and pages do without.
SWITCHES = {"tf32_matmul": True, "tf32_cudnn": True, "reduced_math_attention": True, "cudnn_benchmark": False}
STEPPED_BY = ("sgd", "adam")
_SHA = re.compile(r"[0-9a-fA-F]{6,40}")
#: Options that a check chooses itself.
_OF_A_RUN = re.compile(r" --(?:source|shared-tuning) \S+")


def repro_as(cell: Cell, run: RunInfo | None, used: Mapping[str, Any]) -> str:
    """Return the command for a cell with the options that `run` was given; `used` is its environment.

    `pytorch` stands for a clone of the repository, `tuning` for a folder. If there is no such command, the text is a comment.
    """
    command = repro_command(cell)
    if run is None or command.startswith("#"):
        return command
    words = ["--source", f"pytorch@{run.commit}"] if used.get(NAME_OF_SOURCE) and _SHA.fullmatch(run.commit) else []
    words += ["--shared-tuning", "tuning"] if run.testbed.get("tuning") == "shared" else []
    flags = run.testbed.get("flags")
    if isinstance(flags, str):
        states = {name: name in flags.split() for name in SWITCHES}
        changed = (f"{name}={'on' if is_on else 'off'}" for name, is_on in states.items() if is_on != SWITCHES[name])
        words += [word for flag in changed for word in ("--flag", flag)]
    optimizer = run.testbed.get("optimizer")
    words += ["--optimizer", optimizer] if optimizer in STEPPED_BY else []
    return f"{command} {shlex.join(words)}" if words else command


def stored_repro(conn: Connection, cell: Cell, run_id: str | None) -> str:
    """Return the command for a cell as a stored run measured it; without options where the run is not stored."""
    runs = find_runs(conn, Run.run_id == run_id) if run_id else []
    measured = stored_measurement(conn, run_id, cell.cell_id) if run_id and runs else None
    used = environment(conn, measured.environment_id) if measured and measured.environment_id else None
    return repro_as(cell, runs[0] if runs else None, used or {})


def as_check(command: str, check: str) -> str:
    """Return the command with `check` in place of `inductor-watch run`, without the options that a check chooses itself."""
    return _OF_A_RUN.sub("", command).replace("inductor-watch run", check, 1)
