"""`inductor-watch compare BASE NEW` shows what changed and whether it is real; `gate` turns it into an exit code."""

from __future__ import annotations

from typing import Any

import click

from analysis.compare.cell_verdicts import decide
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import Comparison
from analysis.compare.findings import OF_STATUS, VERDICTS, WORSE
from analysis.present import called, drift_lines, finding_words, sentence
from collector.metrics import Dimension
from collector.usage_errors import nearest
from db.engine import open_store
from db.queries.cells import CellFilter, expand_patterns
from db.queries.sides import order_note
from jobs.options import POSITIVE, Decorator, cell_options, db_option, example, json_option
from jobs.output.printed_comparison import show_comparison
from jobs.output.tables import console
from jobs.output.terminal import print_json, print_lines, tell

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
    """Return the words of `--fail-on`. Raises `click.UsageError` for none, or one that is no outcome and no dimension."""
    known = [outcome.value for outcome in VERDICTS] + [one.value for one in Dimension if dimensions]
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


def count_regressed(comparison: Comparison, fail_on: frozenset[str]) -> dict[str, int]:
    """Return how many cells regressed in each dimension that `--fail-on` names."""
    return {
        dimension.value: sum(counts.get(outcome.value, 0) for outcome in WORSE)
        for dimension, counts in comparison.dimensions().items()
        if dimension.value in fail_on
    }


def failed_lines(comparison: Comparison, fail_on: frozenset[str]) -> list[str]:
    """Return a line for each cell that a gate fails on, with what it fails by: statuses, then the largest change first."""
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
    code, reason = decide(comparison.counts(), fail_on, max_missing, regressed, comparison.without_base)
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
