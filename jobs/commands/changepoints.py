"""`inductor-watch changepoints`: what changed in the histories, since when, and which commits can be to blame."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from sqlalchemy import Connection

from analysis.history.alerts import Alert, Evidence, Survey, evidence_of, survey
from analysis.history.drift import BACK, DriftSurvey, slow_drift
from collector.errors import nearest
from collector.metrics import MIN_EFFECT
from db.engine import open_store
from db.queries.cells import CellFilter, branches, expand_patterns
from db.queries.sides import resolve_side
from jobs.options import POSITIVE, Moment, branch_option, cell_options, db_option, example, json_option
from jobs.output.terminal import print_json, print_lines
from jobs.regressions.alert_lines import alert_lines, drift_line

_NEED = "need ten measured commits, or two with repeats (`nightly --replicates 2`)"
_NOTHING = (
    "nothing to judge: on one branch and testbed, statuses need two measured commits, "
    f"all other metrics {_NEED}; "
    "`inductor-watch runs` lists what there is"
)


@click.command(epilog=example("changepoints --branch main --model T5Small"))
@branch_option
@cell_options
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=click.Choice([*MIN_EFFECT, "status"]),
    metavar="NAME",
    help="Only changes of this metric, or of `status`; repeatable.",
)
@click.option(
    "--since", type=Moment(), metavar="DATE", help="Only changes first measured on this day or later, e.g. 2026-08-01."
)
@click.option(
    "--pinned", metavar="SIDE", help="What has drifted slowly away from this commit, run or night [30 commits ago]."
)
@click.option("--window", type=click.IntRange(min=20), help="Only the newest so many commits of each history [all].")
@click.option(
    "--evidence",
    "with_evidence",
    is_flag=True,
    help="Show what else changed in each alert's worst cell: kernels, graph breaks, skips.",
)
@click.option("--cells", type=POSITIVE, default=5, help="Cells to show of each alert.")
@click.option("--limit", type=POSITIVE, default=20, help="Alerts to show.")
@db_option
@json_option
def changepoints_command(
    branch: str | None,
    chosen: CellFilter,
    metrics: tuple[str, ...],
    since: datetime | None,
    pinned: str | None,
    window: int | None,
    with_evidence: bool,
    cells: int,
    limit: int,
    database: str,
    as_json: bool,
) -> None:
    """Show when metrics and statuses changed, newest first: one alert for all cells that changed between the same commits.

    Exit code 0 even if something got worse; 3 if there was nothing to judge.
    """
    with open_store(database, write=False).connect() as conn:
        filters = expand_patterns(conn, chosen)
        _check_branch(conn, branch)
        side = None if pinned is None else resolve_side(conn, pinned)
        judged = survey(conn, branch=branch, filters=filters, metrics=metrics, since=since, window=window)
        drifts = slow_drift(conn, side, branch=branch, filters=filters)
        alerts = judged.alerts if as_json else judged.alerts[:limit]
        evidence = [evidence_of(conn, alert.changes[0]) if with_evidence else None for alert in alerts]
    if as_json:
        print_json(_as_json(judged, drifts, evidence if with_evidence else None))
    else:
        _show(judged, drifts, list(zip(alerts, evidence, strict=True)), cells, limit, pinned or "")
    if not judged.cells:
        click.echo(f"inductor-watch: {_NOTHING}", err=True)
        raise SystemExit(3)


def _check_branch(conn: Connection, branch: str | None) -> None:
    if branch is not None and branch not in (known := branches(conn)):
        raise click.UsageError(f"no runs of branch {branch!r}: {nearest(branch, known)}")


def _as_json(judged: Survey, drifts: DriftSurvey, evidence: list[Evidence | None] | None) -> dict[str, Any]:
    alerts = [alert.to_json() for alert in judged.alerts]
    for data, alert, beside in zip(alerts, judged.alerts, evidence or [], strict=False):
        data["evidence"] = beside and {"cell": alert.changes[0].cell, **beside.to_json()}
    history = judged.history
    data = {"series": dict(history.series), "first": dict(history.first), "cells": judged.cells, "alerts": alerts}
    data["drift"] = {"series": drifts.series, "found": [one.to_json() for one in drifts.drifts]}
    return data


def _show(
    judged: Survey,
    drifts: DriftSurvey,
    alerts: list[tuple[Alert, Evidence | None]],
    cells: int,
    limit: int,
    pinned: str,
) -> None:
    series = sum(judged.history.series.values()) + sum(judged.history.first.values())
    click.echo(f"{judged.cells} cells judged; {series} series by metric; {len(judged.alerts)} alerts")
    if judged.cells and not series:
        click.echo(f"note: only statuses are judged; all other metrics {_NEED}")
    for alert, beside in alerts:
        print_lines(alert_lines(alert, cells, beside))
    if rest := len(judged.alerts) - len(alerts):
        click.echo(f"... and {rest} older alerts (--limit shows more, --json has all)")
    if drifts.drifts or pinned:
        since = "the pin" if pinned else f"their level {BACK} commits ago"
        click.echo(f"{len(drifts.drifts)} of {drifts.series} series drifted from {since}")
        print_lines(drift_line(drift) for drift in drifts.drifts[: limit * cells])
