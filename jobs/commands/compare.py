"""`inductor-watch compare BASE NEW`: two sides; suites, then what changed, and whether it is real."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from jobs.options import cell_options, db_option, json_option

if TYPE_CHECKING:
    from db.queries.filters import CellFilter


@click.command(
    help="Compare two sides. A side is `latest` (the newest night), `latest~1` (the night before), a night, a run id, a commit, "
    "a branch, a tag, or branch@commit. Exit code 3 if the two have no cell in common."
)
@click.argument("base")
@click.argument("new")
@cell_options
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Cells to show, the most changed first."
)
@db_option
@json_option
def command(
    base: str,
    new: str,
    chosen: CellFilter,
    limit: int,
    database: str,
    as_json: bool,
) -> None:
    """Prints what changed between two sides."""
    from analysis.compare.tables import Transition, compare
    from analysis.compare.verdicts import judge_sides, with_verdicts
    from db.engine import open_store
    from db.queries.filters import expand_patterns
    from db.queries.sides import resolve_side
    from jobs.output.comparison import show_comparison
    from jobs.output.tables import console

    with open_store(database, write=False).connect() as connection:
        sides = resolve_side(connection, base), resolve_side(connection, new)
        comparison = compare(connection, *sides, expand_patterns(connection, chosen))
        judgement = judge_sides(connection, *sides).of(comparison.cells)
    if as_json:
        click.echo(json.dumps(with_verdicts(comparison, judgement), indent=2))
    else:
        show_comparison(console(), comparison, judgement, limit)
    one_sided = (Transition.ENTERED, Transition.LEFT)
    if len(comparison.with_transition(*one_sided)) == len(comparison.cells):
        click.echo("inductor-watch: the two sides have no cell in common", err=True)
        raise SystemExit(3)
