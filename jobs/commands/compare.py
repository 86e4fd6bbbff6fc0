"""`inductor-watch compare`, `gate` and `kernel`: compare two sides, judge them for CI, and time one kernel of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Connection

from analysis.compare.cell_comparison import OF_STATUS, VERDICTS, WORSE
from analysis.compare.cell_verdicts import decide
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import Comparison
from analysis.compare.side_differences import changes, listed_kernels, source_lines, winners
from analysis.present import called, drift_lines, finding_words, sentence
from analysis.rerun import NoScriptError, StoredKernel, find_kernel, kernel_script
from collector.code import Code
from collector.metrics import Dimension
from collector.usage_errors import nearest
from db.engine import open_store
from db.queries.cells import CellFilter, expand_patterns
from db.queries.details import codes, environment, evidence, measurement, texts_of, with_kernels
from db.queries.side_rows import CellState
from db.queries.sides import order_note
from db.store_errors import in_words
from jobs.options import POSITIVE, Decorator, cell_options, db_option, example, json_option
from jobs.output.comparison_tables import show_comparison
from jobs.output.tables import console
from jobs.output.terminal import print_json, print_lines, tell, the_first

#: The most cells that a failed gate prints; `--json` has all.
_NAMED = 20


@click.command(epilog=example("compare latest~1 latest"))
@click.argument("base")
@click.argument("new")
@cell_options
@click.option("--limit", type=POSITIVE, default=20, help="Cells to show, the most changed first.")
@db_option
@json_option
def compare_command(base: str, new: str, chosen: CellFilter, limit: int, database: str, as_json: bool) -> None:
    """Compare two sides. Exit code 3 if the two have no cell in common.

    A side is `latest` (the newest night), `latest~1` (the newest earlier night that planned half of its cells or more on its
    testbed), a night, a run id, a commit, a branch, a tag, or branch@commit.
    """
    comparison = _compare(database, base, new, chosen)
    if as_json:
        print_json(comparison.to_json())
    else:
        show_comparison(console(), comparison, limit)
    if not comparison.in_common:
        click.echo("inductor-watch: the two sides have no cell in common", err=True)
        raise SystemExit(3)


def _compare(database: str, base: str, new: str, chosen: CellFilter) -> Comparison:
    with open_store(database, write=False).connect() as connection:
        return compare_named(connection, base, new, expand_patterns(connection, chosen))


def _outcomes(text: str, dimensions: bool) -> frozenset[str]:
    """Return the words of `--fail-on`. Raises `click.UsageError` for no word, or a word that is no outcome or dimension."""
    known = [*VERDICTS, *(Dimension if dimensions else ())]
    words = frozenset(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise click.UsageError(f"--fail-on: name at least one of {', '.join(known)}")
    for word in words - set(known):
        what = "outcome or dimension" if dimensions else "outcome"
        raise click.UsageError(f"--fail-on: no {what} is called {word!r}: {nearest(word, known)}")
    return words


def fail_on_option(default: str, dimensions: bool = False) -> Decorator[Any]:
    """Return `--fail-on`: the outcomes that exit code 1 stands for, and `dimensions` in which no cell may regress."""
    more = f"; or a dimension in which none may regress: {in_words(list(Dimension), 'or')}" if dimensions else ""
    outcomes = in_words(list(VERDICTS), "or").replace("inconclusive", "inconclusive (no clear change)")
    return click.option(
        "--fail-on",
        callback=lambda _, __, text: _outcomes(text, dimensions),
        default=default,
        metavar="WORD[,WORD...]",
        help=f"Outcomes: {outcomes}{more}.",
    )


def count_regressed(comparison: Comparison, fail_on: frozenset[str]) -> dict[str, int]:
    """Return how many cells regressed in each dimension that `--fail-on` names."""
    return {
        dimension.value: sum(counts.get(outcome.value, 0) for outcome in WORSE)
        for dimension, counts in comparison.dimensions().items()
        if dimension.value in fail_on
    }


def failed_lines(comparison: Comparison, fail_on: frozenset[str]) -> list[str]:
    """Return a line with the reason for each cell that a gate fails on: statuses first, then the largest changes."""
    lines = []
    for one in comparison.cells:
        bad = sorted(
            (
                finding
                for finding in one.findings
                if finding.verdict.value in fail_on or (finding.dimension.value in fail_on and finding.verdict in WORSE)
            ),
            key=lambda finding: -finding.size,
        )
        if bad or one.outcome.verdict in fail_on:
            verdict = one.outcome.verdict if one.outcome.verdict in fail_on else bad[0].verdict
            words = f" ({', '.join(map(finding_words, bad))})" if bad else ""
            size = bad[0].size if bad else 0.0
            lines.append((verdict not in OF_STATUS, -size, f"{called(str(verdict))}: {one.cell}{words}"))
    return [line for *_, line in sorted(lines)]


@click.command(epilog=example("gate main my-branch --fail-on regressed,broke"))
@click.argument("base")
@click.argument("new")
@fail_on_option("regressed,broke,missing", dimensions=True)
@click.option("--max-missing", type=click.IntRange(min=0), help="Exit with 3 if more cells than this are missing.")
@cell_options
@db_option
@json_option
def gate_command(
    base: str,
    new: str,
    fail_on: frozenset[str],
    max_missing: int | None,
    chosen: CellFilter,
    database: str,
    as_json: bool,
) -> None:
    """Judge NEW against BASE. Exit code 0: no cell has an outcome of --fail-on; 1: some cell has; 3: too little was measured.

    Too little is no cell in common, most cells of NEW without a base, only cells without a clear change, or more missing than
    --max-missing.
    """
    comparison = _compare(database, base, new, chosen)
    if note := order_note(open_store(database, write=False), comparison.base, comparison.new):
        tell(f"note: {note}")
    regressed = count_regressed(comparison, fail_on)
    lacking, obstacle = comparison.without_base, comparison.obstacle
    code, reason = decide(comparison.counts(), fail_on, max_missing, regressed, lacking, obstacle)
    failed = failed_lines(comparison, fail_on)
    if as_json:
        facts = {"exit_code": code, "reason": reason, "fail_on": sorted(fail_on), "failed": failed}
        print_json({**facts, **comparison.verdicts_json()})
    else:
        click.echo(sentence(comparison) if comparison.cells else "neither side has a cell")
        print_lines([*comparison.control_notes, *drift_lines(comparison)])
        print_lines(failed, most=_NAMED)
        click.echo(f"gate: {reason}")
    raise SystemExit(code)


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
    """Return the kernel of each side that has it. Raises `NoScriptError` if neither has it or not one cell is chosen."""
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
