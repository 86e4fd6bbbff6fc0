"""`inductor-watch zoo`: the models with their batch sizes, and what each needs."""

from __future__ import annotations

import json
from typing import Any

import click

from collector.vocabulary import Phase
from collector.zoo.registry import all_models, select
from collector.zoo.spec import ModelSpec
from jobs.options import json_option


@click.command(help="The models: suite, batch sizes, what each needs and whether that is installed.")
@click.option("--suite", "suites", multiple=True, metavar="NAME", help="Only this suite; repeatable.")
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="Only this model, by name or pattern; repeatable."
)
@json_option
def command(suites: tuple[str, ...], models: tuple[str, ...], as_json: bool) -> None:
    """Lists the zoo without importing torch or any model library."""
    chosen = select(in_suites=suites, patterns=models) if suites or models else all_models()
    rows = [_row(spec) for spec in chosen]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    click.echo(f"{'suite':<12} {'model':<38} {'GPU batch':>9} {'train':>6} {'CPU':>4}  input")
    for row in rows:
        sizes = row["batch_sizes"]
        numbers = (
            sizes.get("inference", {}).get("cuda", "-"),
            sizes.get("training", {}).get("cuda", "-"),
            sizes.get("inference", {}).get("cpu", "-"),
        )
        lack = f"  [not installed: {', '.join(row['missing'])}]" if row["missing"] else ""
        line = f"{row['suite']:<12} {row['name']:<38} {numbers[0]:>9} {numbers[1]:>6} {numbers[2]:>4}"
        click.echo(f"{line}  {row['input']}{lack}")
    ready = sum(not row["missing"] for row in rows)
    click.echo(f"{len(rows)} models, {ready} of them can be built here")


def _row(spec: ModelSpec) -> dict[str, Any]:
    phases = [phase for phase in Phase if phase in spec.phases]
    return {
        "suite": spec.suite,
        "name": spec.name,
        "batch_sizes": {phase.value: dict(spec.batch_sizes[phase]) for phase in phases},
        "input": spec.input_note,
        "needs": list(spec.needs),
        "missing": spec.missing(),
        "dtypes": list(spec.dtypes),
        "tags": sorted(spec.tags),
        "notes": spec.notes,
    }
