"""`inductor-watch kernel BASE NEW NAME` writes a script that runs one generated kernel of both sides alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Connection

from analysis.compare.compare_sides import compare_named
from analysis.compare.side_differences import changes, listed_kernels, source_lines, winners
from analysis.kernel_script import NoScriptError, StoredKernel, find_kernel, kernel_script
from collector.code import Code
from db.engine import open_store
from db.queries.cells import CellFilter, expand_patterns
from db.queries.details import codes, environment, evidence, measurement, texts_of, with_kernels
from db.queries.side_rows import CellState
from jobs.options import cell_options, db_option, example
from jobs.output.terminal import the_first

#: Characters of a kernel's name that the profiler keeps.
_NAME = 160


@click.command(epilog=example("kernel latest~1 latest triton_red_fused_sum_3 --model BertForMaskedLM --config triton"))
@click.argument("base")
@click.argument("new")
@click.argument("name")
@cell_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write [the kernel's name, with .py, in this folder].",
)
@db_option
def kernel_command(base: str, new: str, name: str, chosen: CellFilter, out: Path | None, database: str) -> None:
    """Write a script that runs one generated kernel alone, as it was in BASE and in NEW, and times both.

    NAME is a Triton kernel's, as the Model page lists it. The options must leave one cell. Nothing is run: the script has
    the code that is stored, which is foreign where a bundle is.
    """
    with open_store(database, write=False).connect() as conn:
        found = _kernels(conn, base, new, name, chosen)
    path = out or Path(f"{found[-1].name[:_NAME]}.py")
    path.write_text(kernel_script(found))
    sides = " and ".join(one.side for one in found)
    alone = "" if len(found) == 2 else "; the other side has no kernel of its text or name"
    click.echo(f"{path}: {name} of {sides}, to be run on such a GPU with such a torch as it names{alone}")


def _kernels(conn: Connection, base: str, new: str, name: str, chosen: CellFilter) -> list[StoredKernel]:
    """Return the kernel of base and of new, or of the one that has it. Raises `NoScriptError` where neither has."""
    compared = compare_named(conn, base, new, expand_patterns(conn, chosen))
    cells = [one for one in compared.cells if one.base.code_id or one.new.code_id]
    if len(cells) != 1:
        named = the_first([str(one.cell) for one in cells]) if cells else "none has any"
        raise NoScriptError(f"{len(cells)} cells with generated code are chosen, and one is needed: {named}")
    states = {"base": cells[0].base, "new": cells[0].new}
    stored = codes(conn, [state.code_id for state in states.values() if state.code_id])
    of_side = {side: stored[state.code_id] for side, state in states.items() if state.code_id in stored}
    names = dict.fromkeys(of_side, name)
    if len(of_side) == 2:
        pairs = changes(of_side["base"], of_side["new"]).pairs
        if pair := next(
            (pair for pair in pairs if name in (pair.new and pair.new.name, pair.base and pair.base.name)), None
        ):
            names = {side: one.name for side, one in (("base", pair.base), ("new", pair.new)) if one}
    if not names:
        raise NoScriptError("the generated code of neither side is stored")
    return [_kernel(conn, side, states[side], of_side[side], one) for side, one in names.items()]


def _kernel(conn: Connection, side: str, state: CellState, code: Code, name: str) -> StoredKernel:
    texts = texts_of(conn, code.text_ids)
    run_id, cell_id = str(state.run_id), str(state.cell_id)
    details = with_kernels(conn, cell_id, evidence(conn, run_id, cell_id, state.replicate)[0])
    times = {listed: (launches, ms) for listed, launches, ms in listed_kernels(details, "compiled")}
    launches, ms = times.get(name[:_NAME], (0.0, 0.0))
    about = [f"  of {state.run_id}, {_machine(conn, run_id, cell_id)}"]
    about += [f"  from {line}" for line in source_lines(details, [name[:_NAME]])]
    if winner := winners(details).get(name[:_NAME]):
        about.append(f"  autotuning chose {winner}")
    found = find_kernel(side, code, texts, name)
    return replace(found, about=tuple(about), ms=round(ms / launches, 6) if launches else None)


def _machine(conn: Connection, run_id: str, cell_id: str) -> str:
    found = measurement(conn, run_id, cell_id)
    known: Mapping[str, Any] = (found and environment(conn, found.environment_id or "")) or {}
    return f"{found.cell.suite}/{found.cell.model}: torch {known.get('torch')} on {known.get('gpu')}" if found else ""
