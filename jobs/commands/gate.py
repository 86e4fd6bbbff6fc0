"""`inductor-watch gate BASE NEW`: the exit code says whether NEW may pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from analysis.compare.verdicts import decide
from jobs.options import cell_options, db_option, json_option

if TYPE_CHECKING:
    from db.queries.filters import CellFilter

#: What is shown of the cells that a gate failed on; all of them are in `--json`.
_NAMED = 20


@click.command(
    help="Judge NEW against BASE. Exit code 0: no cell has an outcome of --fail-on; 1: some cell has; 3: too little was measured "
    "(no cell in common, only inconclusive ones, or more missing than --max-missing)."
)
@click.argument("base")
@click.argument("new")
@click.option(
    "--fail-on",
    default="regressed,broke,missing",
    show_default=True,
    metavar="WORD[,WORD...]",
    help="Outcomes: regressed, improved, inconclusive, environment_changed, broke, fixed, still_failing, flaky or missing.",
)
@click.option("--max-missing", type=click.IntRange(min=0), help="Exit with 3 if more cells than this are missing.")
@cell_options
@db_option
@json_option
def command(
    base: str,
    new: str,
    fail_on: str,
    max_missing: int | None,
    chosen: CellFilter,
    database: str,
    as_json: bool,
) -> None:
    """Prints the counts of all outcomes and the cells that failed, and exits with 0, 1 or 3."""
    from analysis.compare.tables import compare
    from analysis.compare.verdicts import judge_sides
    from db.engine import open_store
    from db.queries.filters import expand_patterns
    from db.queries.sides import resolve_side

    words = parse_words(fail_on)
    with open_store(database, write=False).connect() as connection:
        sides = resolve_side(connection, base), resolve_side(connection, new)
        comparison = compare(connection, *sides, expand_patterns(connection, chosen))
        judgement = judge_sides(connection, *sides).of(comparison.cells)
    counts = judgement.counts()
    code, reason = decide(counts, words, max_missing)
    rows = comparison.cells.join(judgement.cells)
    failed = [f"{row['verdict']}: {row['cell']}" for row in rows[rows["verdict"].isin(words)].to_dict("records")]
    if as_json:
        document = {
            "exit_code": code,
            "reason": reason,
            "fail_on": sorted(words),
            "failed": failed,
            **judgement.to_json(),
        }
        click.echo(json.dumps(document, indent=2))
    else:
        _show(counts, failed, reason)
    raise SystemExit(code)


def parse_words(text: str) -> frozenset[str]:
    """The outcomes that `--fail-on` names.

    Raises:
        click.UsageError: none, or one that is no outcome.
    """
    from analysis.compare.verdicts import Outcome
    from collector.errors import nearest

    known = [outcome.value for outcome in Outcome]
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise click.UsageError(f"--fail-on: name at least one of {', '.join(known)}")
    for word in words:
        if word not in known:
            raise click.UsageError(f"--fail-on: no outcome is called {word!r}: {nearest(word, known)}")
    return frozenset(words)


def _show(counts: Mapping[str, int], failed: list[str], reason: str) -> None:
    from jobs.output.terminal import one_line

    click.echo(", ".join(f"{count} {word}" for word, count in counts.items()) or "neither side has a cell")
    for line in failed[:_NAMED]:
        click.echo(one_line(line))
    if len(failed) > _NAMED:
        click.echo(f"... and {len(failed) - _NAMED} more (--json has all)")
    click.echo(f"gate: {reason}")
