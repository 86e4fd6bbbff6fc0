"""`inductor-watch changepoints`: what changed in the histories, since when, and which commits can be to blame."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from jobs.options import branch_option, cell_options, db_option, json_option

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from analysis.history.alerts import Survey
    from analysis.history.drift import DriftSurvey
    from db.queries.filters import CellFilter

_NEED = "need ten measured commits, or two with repeats (`nightly --replicates 2`)"
_NOTHING = (
    "nothing to judge: on one branch and testbed, statuses need two measured commits, "
    f"all other metrics {_NEED}; "
    "`inductor-watch runs` lists what there is"
)


@click.command(
    help="Show when metrics and statuses changed, newest first: one alert for all cells that changed between the same commits. "
    "Exit code 0 even if something got worse; 3 if there was nothing to judge."
)
@branch_option
@cell_options
@click.option("--metric", "metrics", multiple=True, help="Only changes of this metric, or of `status`; repeatable.")
@click.option("--since", metavar="DATE", help="Only changes first measured on this day or later, e.g. 2026-08-01.")
@click.option("--pinned", metavar="SIDE", help="Show also what drifted slowly away from this commit, run or night.")
@click.option("--window", type=click.IntRange(min=20), help="Only the newest so many commits of each history [all].")
@click.option(
    "--evidence",
    "with_evidence",
    is_flag=True,
    help="Show what else changed in each alert's worst cell: kernels, graph breaks, skips.",
)
@click.option("--cells", type=click.IntRange(min=1), default=5, show_default=True, help="Cells to show of each alert.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Alerts to show.")
@db_option
@json_option
def command(
    branch: str | None,
    chosen: CellFilter,
    metrics: tuple[str, ...],
    since: str | None,
    pinned: str | None,
    window: int | None,
    with_evidence: bool,
    cells: int,
    limit: int,
    database: str,
    as_json: bool,
) -> None:
    """Prints the alerts, and the drifts where a pin is given."""
    from analysis.history.alerts import survey
    from analysis.history.drift import slow_drift
    from db.engine import open_store
    from db.queries.filters import expand_patterns
    from db.queries.sides import resolve_side

    check_metrics(metrics)
    moment = _moment(since)
    with open_store(database, write=False).connect() as conn:
        filters = expand_patterns(conn, chosen)
        _check_branch(conn, branch)
        side = None if pinned is None else resolve_side(conn, pinned)
        judged = survey(conn, branch=branch, filters=filters, metrics=metrics, since=moment, window=window)
        drifts = None if side is None else slow_drift(conn, side, branch=branch, filters=filters)
        if as_json:
            click.echo(json.dumps(_as_json(conn, judged, drifts, with_evidence), indent=2))
        else:
            _show(conn, judged, drifts, with_evidence, cells, limit)
    if not judged.cells:
        click.echo(f"inductor-watch: {_NOTHING}", err=True)
        raise SystemExit(3)


def check_metrics(metrics: tuple[str, ...]) -> None:
    """Raises `click.UsageError` for a metric that is not judged."""
    from collector.errors import nearest
    from collector.metrics import MIN_EFFECT

    known = [*MIN_EFFECT, "status"]
    for metric in metrics:
        if metric not in known:
            raise click.UsageError(f"no metric {metric!r} is judged: {nearest(metric, known)}")


def _moment(text: str | None) -> datetime | None:
    from db.queries.moments import from_epoch, to_epoch

    try:
        return None if text is None else from_epoch(to_epoch(text))
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no date: write 2026-08-01 or 2026-08-01T12:00", param_hint="--since"
        ) from error


def _check_branch(conn: Connection, branch: str | None) -> None:
    from collector.errors import nearest
    from db.queries.cells import branches

    if branch is not None and branch not in (known := [one.branch for one in branches(conn)]):
        raise click.UsageError(f"no runs of branch {branch!r}: {nearest(branch, known)}")


def _as_json(conn: Connection, judged: Survey, drifts: DriftSurvey | None, with_evidence: bool) -> dict[str, Any]:
    from analysis.history.alerts_evidence import evidence_of

    alerts = []
    for alert in judged.alerts:
        data = alert.to_json()
        if with_evidence:
            beside = evidence_of(conn, alert.changes[0])
            data["evidence"] = None if beside is None else {"cell": alert.changes[0].cell, **beside.to_json()}
        alerts.append(data)
    history = judged.history
    data = {"series": dict(history.series), "first": dict(history.first), "cells": judged.cells, "alerts": alerts}
    if drifts is not None:
        data["drift"] = {"series": drifts.series, "found": [one.to_json() for one in drifts.drifts]}
    return data


def _show(
    conn: Connection, judged: Survey, drifts: DriftSurvey | None, with_evidence: bool, cells: int, limit: int
) -> None:
    from analysis.history.alerts_evidence import evidence_of
    from jobs.regressions.alert_lines import alert_lines, drift_line

    series = sum(judged.history.series.values()) + sum(judged.history.first.values())
    click.echo(f"{judged.cells} cells judged; {series} series by metric; {len(judged.alerts)} alerts")
    if judged.cells and not series:
        click.echo(f"note: only statuses are judged; all other metrics {_NEED}")
    for alert in judged.alerts[:limit]:
        beside = evidence_of(conn, alert.changes[0]) if with_evidence else None
        click.echo("\n".join(alert_lines(alert, cells, beside)))
    if (rest := len(judged.alerts) - limit) > 0:
        click.echo(f"... and {rest} older alerts (--limit shows more, --json has all)")
    if drifts is not None:
        click.echo(f"{len(drifts.drifts)} of {drifts.series} series drifted from the pin")
        for drift in drifts.drifts[: limit * cells]:
            click.echo(drift_line(drift))
