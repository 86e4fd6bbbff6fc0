"""`inductor-watch compare BASE NEW` shows what changed and whether it is real; `gate` turns it into an exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from analysis.compare.findings import count_findings, findings
from analysis.compare.results import Comparison
from analysis.compare.transitions import Transition
from analysis.compare.verdicts import (
    Judgement,
    Outcome,
    cells_with_verdicts,
    compare_and_judge,
    decide,
    with_verdicts,
)
from analysis.reports.finding_lines import finding_words
from analysis.reports.words import called
from collector.errors import nearest
from collector.metrics import Dimension
from db.engine import open_store
from db.queries.filters import CellFilter, expand_patterns
from db.queries.sides import order_note
from jobs.options import POSITIVE, Decorator, cell_options, db_option, example, json_option
from jobs.output.comparison import show_comparison
from jobs.output.tables import console
from jobs.output.terminal import print_json, print_lines, tell

#: What `--fail-on` means by a dimension.
_WORSE = (Outcome.REGRESSED, Outcome.BROKE)
#: What is shown of the cells that a gate failed on; all of them are in `--json`.
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

    A side is `latest` (the newest night), `latest~1` (the night before), a night, a run id, a commit, a branch, a tag, or
    branch@commit.
    """
    comparison, judgement = _compare(database, base, new, chosen)
    if as_json:
        print_json(with_verdicts(comparison, judgement))
    else:
        show_comparison(console(), comparison, judgement, limit)
    one_sided = (Transition.ENTERED, Transition.LEFT)
    if len(comparison.with_transition(*one_sided)) == len(comparison.cells):
        click.echo("inductor-watch: the two sides have no cell in common", err=True)
        raise SystemExit(3)


def _compare(database: str, base: str, new: str, chosen: CellFilter) -> tuple[Comparison, Judgement]:
    with open_store(database, write=False).connect() as connection:
        return compare_and_judge(connection, base, new, expand_patterns(connection, chosen))


def _outcomes(text: str, dimensions: bool) -> frozenset[str]:
    """Return the words of `--fail-on`. Raises `click.UsageError` for none, or one that is no outcome and no dimension."""
    known = [outcome.value for outcome in Outcome] + [one.value for one in Dimension if dimensions]
    words = frozenset(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise click.UsageError(f"--fail-on: name at least one of {', '.join(known)}")
    for word in words - set(known):
        what = "outcome or dimension" if dimensions else "outcome"
        raise click.UsageError(f"--fail-on: no {what} is called {word!r}: {nearest(word, known)}")
    return words


def fail_on_option(default: str, dimensions: bool = False) -> Decorator[Any]:
    """Return `--fail-on`: the outcomes that exit code 1 stands for, and `dimensions` in which no cell may regress."""
    more = "; or a dimension in which none may regress: correctness, latency, memory, compile or graphs"
    return click.option(
        "--fail-on",
        callback=lambda _, __, text: _outcomes(text, dimensions),
        default=default,
        metavar="WORD[,WORD...]",
        help="Outcomes: regressed, improved, inconclusive (no clear change), environment_changed, broke, fixed, "
        f"still_failing, flaky or missing{more if dimensions else ''}.",
    )


def count_regressed(rows: Sequence[Mapping[Any, Any]], fail_on: frozenset[str]) -> dict[str, int]:
    """Return how many cells regressed in each dimension that `--fail-on` names."""
    found = count_findings(map(findings, rows))
    return {
        dimension.value: sum(of_dimension.get(outcome.value, 0) for outcome in _WORSE)
        for dimension, of_dimension in found.items()
        if dimension.value in fail_on
    }


def failed_lines(rows: Sequence[Mapping[Any, Any]], fail_on: frozenset[str]) -> list[str]:
    """Return a line for each cell that a gate fails on, with what it fails by, the largest change first."""
    lines = []
    for row in rows:
        bad = [
            one
            for one in findings(row)
            if one.verdict.value in fail_on or (one.dimension.value in fail_on and one.verdict in _WORSE)
        ]
        if bad or row["verdict"] in fail_on:
            verdict = row["verdict"] if row["verdict"] in fail_on else bad[0].verdict.value
            words = f" ({', '.join(map(finding_words, bad))})" if bad else ""
            lines.append((max((one.size for one in bad), default=0.0), f"{called(verdict)}: {row['cell']}{words}"))
    return [line for _, line in sorted(lines, key=lambda item: -item[0])]


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

    Too little is no cell in common, only cells without a clear change, or more missing than --max-missing.
    """
    comparison, judgement = _compare(database, base, new, chosen)
    counts = judgement.counts()
    if note := order_note(open_store(database, write=False), comparison.base, comparison.new):
        tell(f"note: {note}")
    rows = cells_with_verdicts(comparison, judgement)
    code, reason = decide(counts, fail_on, max_missing, count_regressed(rows, fail_on))
    failed = failed_lines(rows, fail_on)
    if as_json:
        facts = {"exit_code": code, "reason": reason, "fail_on": sorted(fail_on), "failed": failed}
        print_json({**facts, **judgement.to_json()})
    else:
        click.echo(", ".join(f"{count} {called(word)}" for word, count in counts.items()) or "neither side has a cell")
        print_lines(failed, most=_NAMED)
        click.echo(f"gate: {reason}")
    raise SystemExit(code)
