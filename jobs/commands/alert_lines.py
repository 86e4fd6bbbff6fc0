"""`inductor-watch changepoints`: the changes in the histories, their dates, and the commits that can be to blame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from sqlalchemy import Connection

from analysis.compare.adjustment import CONTROL
from analysis.history.alerts import Alert, Evidence, Survey, evidence_of, survey
from analysis.history.branch_series import Certainty, Change
from analysis.history.timelines import BACK, Drift, DriftSurvey, slow_drift
from analysis.present import interval, percent, value
from collector.metrics import MIN_EFFECT
from collector.usage_errors import nearest
from db.engine import open_store
from db.queries.cells import CellFilter, branches, expand_patterns
from db.queries.sides import resolve_side
from db.store_errors import counted
from jobs.options import POSITIVE, Moment, branch_option, cell_options, db_option, example, json_option
from jobs.output.terminal import LONGEST, one_line, print_json, print_lines, the_first
from jobs.regressions.notices import commit_line

#: The most commits of a range, and kernels, that are printed; `--json` has all.
_COMMITS, _KERNELS = 20, 3


def alert_lines(alert: Alert, cells: int, evidence: Evidence | None = None) -> list[str]:
    """Return a heading, the suspects, and the worst `cells` changes; `evidence` is the evidence of the worst change."""
    lines = [_heading(alert), *(f"  {line}" for line in (*_suspects(alert), *_beside(alert)))]
    lines += [f"  {change_line(change)}" for change in alert.worst(cells)]
    lines += [f"    {line}" for line in evidence_lines(evidence)] if evidence else []
    if (rest := len(alert.changes) - cells) > 0:
        lines.append(f"  ... and {counted(rest, 'more change')} (--cells shows more, --json has all)")
    return [one_line(line, LONGEST) for line in lines]


def change_line(change: Change) -> str:
    """Return `timm/vit ... default: compiled_ms 2 ms -> 2.1 ms, measured +5.0 % (+4.1 .. +5.9 %)`, or a change of status."""
    marks = {"pending": change.certainty is Certainty.PENDING, "over": change.is_over}
    end = f" [{', '.join(word for word, is_so in marks.items() if is_so)}]" if any(marks.values()) else ""
    if change.levels is None:
        before, after = change.statuses or ("?", "?")
        return f"{change.cell}: {before} -> {after}{end}"
    levels = change.levels
    measured = "measured " if change.metric in CONTROL else ""
    eager = "" if change.control is None else f", eager {percent(change.control - 1)}"
    within = f"({interval(levels.low - 1, levels.high - 1)})"
    values = _values(change.metric, levels.before, levels.after)
    return f"{change.cell}: {values}, {measured}{percent(levels.ratio - 1)} {within}{eager}{end}"


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """Yield a line for each other kind of difference between the two measurements."""
    for name, (before, after) in evidence.counts.items():
        yield f"{name}: {before:g} -> {after:g}"
    if evidence.code:
        yield f"generated code: {evidence.code}"
    for part in evidence.explained:
        yield f"explained by {part.text}"
    for kernel in evidence.kernels[:_KERNELS]:
        counts = ["-" if count is None else f"{count:g}" for count in (kernel.base_launches, kernel.new_launches)]
        yield f"kernel {kernel.name[:80]}: {' -> '.join(counts)} launches, {kernel.change_ms:+.4f} ms"
    for reason in evidence.reasons:
        yield f"{reason.what} only {reason.side}: {' '.join(reason.text.split())[:160]}"
    if evidence.exception:
        yield f"failed with {evidence.exception}"


def drift_line(drift: Drift) -> str:
    """Return a line that says how far a series is from its pin, and how much of that no step explains."""
    levels = drift.levels
    steps = "" if levels.steps == 1 else f", of which steps {percent(levels.steps - 1)}"
    rest = f"drift {percent(levels.drift - 1)} ({interval(levels.low - 1, levels.high - 1)})"
    values = _values(drift.metric, levels.before, levels.now)
    return one_line(
        f"{drift.direction.value}: {drift.cell}: {values}, {percent(levels.ratio - 1)}{steps}; {rest}", LONGEST
    )


def _values(metric: str, before: float, after: float) -> str:
    return f"{metric} {value(metric, before)} -> {value(metric, after)}"


def _heading(alert: Alert) -> str:
    day = datetime.fromtimestamp(alert.span.onset.started_at, UTC).date().isoformat()
    marks = {"pending": alert.certainty is Certainty.PENDING, "over": alert.is_over}
    words = [alert.direction.value if alert.direction else "mixed", *(word for word, is_so in marks.items() if is_so)]
    counts = ", ".join(f"{name} {count}" for name, count in alert.counts().items())
    median = alert.median_worsening
    effect = "" if median is None else f", median {abs(100 * (median - 1)):.1f} % {'worse' if median > 1 else 'better'}"
    what = f"{', '.join(words)}: {counted(len(alert.cells), 'cell')} ({counts}){effect}"
    return f"{day}  {alert.branch}  {what}  [{alert.alert_id}]"


def _suspects(alert: Alert) -> list[str]:
    """Return lines with the commits after the last good one, or with the reason why no commit can be named."""
    blame = alert.blame
    if alert.span.is_one_commit:
        return [f"both sides measured {blame.base[:10]}: no commit is to blame"]
    if blame.distance is None:
        count = "; what landed between is not known: `inductor-watch commits import --git PATH`"
    else:
        missing = "" if blame.is_whole else f", {blame.distance - len(blame.commits)} of them not stored"
        count = f", {counted(blame.distance, 'commit')}{missing}"
    lines = [f"after {blame.base[:10]} up to {blame.onset[:10]}{count}"]
    lines += [f"  {commit_line(entry)}" for entry in blame.commits[:_COMMITS]]
    if (rest := len(blame.commits) - _COMMITS) > 0:
        lines.append(f"  ... and {rest} more (--json has all)")
    if alert.also_possible:
        lines.append(f"also possible: {the_first([entry.sha[:10] for entry in alert.also_possible])}")
    return lines


def _beside(alert: Alert) -> Iterator[str]:
    """Yield lines about changes at the same time that are no commit: in the environment, the options or the machine."""
    if alert.environment_changed:
        changed = [f"{one.key}: {_joined(one.base)} -> {_joined(one.new)}" for one in alert.environment]
        yield f"environment or options changed there, too: {the_first(changed)}"
    machine = Counter((change.testbed_id, change.metric) for change in alert.of_machine())
    for (testbed, metric), drift in alert.common_drift.items():
        if count := machine[testbed, metric]:
            where = f"eager times of all its cells on testbed {testbed} moved by {percent(drift - 1)}"
            yield f"{where}: {count} of {metric} by the machine alone"


def _joined(values: Sequence[str]) -> str:
    return ", ".join(values) or "nothing"


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
    click.echo(
        f"{counted(judged.cells, 'cell')} judged; {series} series by metric; {counted(len(judged.alerts), 'alert')}"
    )
    if judged.cells and not series:
        click.echo(f"note: only statuses are judged; all other metrics {_NEED}")
    for alert, beside in alerts:
        print_lines(alert_lines(alert, cells, beside))
    if rest := len(judged.alerts) - len(alerts):
        click.echo(f"... and {counted(rest, 'older alert')} (--limit shows more, --json has all)")
    if drifts.drifts or pinned:
        since = "the pin" if pinned else f"their level {BACK} commits ago"
        click.echo(f"{len(drifts.drifts)} of {drifts.series} series drifted from {since}")
        print_lines(drift_line(drift) for drift in drifts.drifts[: limit * cells])
