"""The tools that read a store: the readers and verdicts of the command line, with a limit on the size of each answer."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated

import pandas as pd
from pydantic import Field
from sqlalchemy import Connection, Engine

from analysis.compare.cell_comparison import WORSE, CellComparison, Finding, Outcome
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import Comparison, causes
from analysis.compare.kernel_groups import KernelGroup, compared_kernels, explained
from analysis.compare.side_differences import REST, KernelEvidence, changes, kernel_evidence
from analysis.elements.addresses import fixed_side
from analysis.elements.program_tables import SourceText, code_sentence, differing_texts
from analysis.history.alerts import Alert, survey
from analysis.history.branch_series import Change
from analysis.history.regression_record import Record, by_commit, cell_of, dimension_of, listed, record_of
from analysis.present import describe_side, dimension_lines, drift_lines, finding_words, remarks, sentence
from analysis.reports.facts import ORDER, evidence_of
from analysis.rerun import stored_repro
from analysis.site.cell_details import stored_difference
from collector.metrics import METRICS, MIN_EFFECT, Dimension
from db.connecting import connected
from db.nights import NightInfo, list_nights
from db.queries.cells import CELL_COLUMNS, CellFilter, CellName, branches, cell_names, expand_patterns, revision
from db.queries.details import codes
from db.queries.series import model_history
from db.queries.side_rows import CellState, details_behind
from db.regression_records import RegressionInfo, find_regression
from db.store_errors import FilterError, counted, nearest, one_line
from db.stored_values import from_epoch
from jobs.agents.tool_results import (
    CauseCount,
    CellResult,
    CellSide,
    Compared,
    FoundChange,
    History,
    HistoryChange,
    HistoryPoint,
    HistorySeries,
    JudgedValue,
    KernelDifference,
    Kernels,
    KernelTime,
    Night,
    Nights,
    PlainValue,
    Records,
    RegressionRecord,
    first,
)
from jobs.commands.alert_lines import change_line
from jobs.regressions.notices import blame_lines, change_of, commit_line
from jobs.regressions.recording import find_cell

#: Rows of one kind in one answer, at most and by default; other lists of an answer have fewer.
MOST_ROWS, ROWS, FEW = 100, 20, 8
#: Characters of a diff of generated code, at most and by default.
MOST_CHARS, CHARS = 40_000, 8_000

Limit = Annotated[int, Field(ge=1, le=MOST_ROWS, description="Rows to return at most.")]
Base = Annotated[
    str, Field(description="The older side: `latest~1`, a night, run id, commit, branch, tag or branch@commit.")
]
New = Annotated[str, Field(description="The newer side, as `base`.")]
CellText = Annotated[str, Field(description="A cell_id, or the cell's name as `compare` writes it.")]
Branch = Annotated[str, Field(description="Only this branch; empty for all.")]
Names = Annotated[tuple[str, ...], Field(description="Names or patterns such as `Bert*`; empty for all.")]


class ReadingTools:
    """The tools of one store. Each method is a tool: its docstring and its arguments are what an agent sees of it."""

    def __init__(self, engine: Engine) -> None:
        """Take an engine that is open for reading."""
        self._engine = engine
        self._judged = lru_cache(maxsize=4)(self._compare)

    def nights(self, branch: Branch = "", limit: Limit = ROWS) -> Nights:
        """List the nights of the store, newest first: what was measured where, and how many cells ended how."""
        with connected(self._engine) as conn:
            _check_branch(conn, branch)
            found = list_nights(conn, branch=branch or None, limit=limit + 1)
        left_out = ["older nights"] if len(found) > limit else []
        return Nights(nights=[_night(one, left_out) for one in found[:limit]], left_out=left_out)

    def compare(
        self,
        base: Base = "latest~1",
        new: New = "latest",
        dimension: Annotated[Dimension | None, Field(description="Only changes in this dimension.")] = None,
        verdicts: Annotated[
            tuple[Outcome, ...], Field(description="Only changes with these verdicts; empty for all but `unchanged`.")
        ] = (),
        models: Names = (),
        suites: Names = (),
        configs: Names = (),
        limit: Limit = ROWS,
    ) -> Compared:
        """Judge two sides cell by cell: what changed in which dimension, worst first, with what explains the changes."""
        filters = CellFilter(suites=suites, models=models, configs=configs)
        with connected(self._engine) as conn:
            comparison = self._comparison(conn, base, new).only(expand_patterns(conn, filters))
            explained_by = causes(conn, comparison)

        def asked(found: Iterable[tuple[CellComparison, Finding]]) -> list[tuple[CellComparison, Finding]]:
            return [
                (one, finding)
                for one, finding in found
                if dimension in (None, finding.dimension) and (not verdicts or finding.verdict in verdicts)
            ]

        order = (*ORDER, Outcome.UNCHANGED) if Outcome.UNCHANGED in verdicts else ORDER
        ranked = [_change(*each) for each in asked(comparison.ranked_findings(order))]
        reasons = [
            CauseCount(title=one.title, changes=len(found), cells=[str(of.cell) for of, _ in found[:2]])
            for one in explained_by
            if (found := asked(one.changes))
        ]
        differing = [
            f"{one.key}: {' or '.join(one.base) or 'nothing'} -> {' or '.join(one.new) or 'nothing'}"
            for one in comparison.environment
        ]
        left_out: list[str] = []
        return Compared(
            base=describe_side(comparison.base),
            new=describe_side(comparison.new),
            sentence=sentence(comparison) if comparison.cells else "Neither side has such a cell.",
            dimensions=dimension_lines(comparison),
            notes=first([*comparison.notes, *drift_lines(comparison)], ROWS, "note", left_out),
            environment=first(differing, ROWS, "difference", left_out),
            causes=first(reasons, FEW, "cause", left_out),
            changes=first(ranked, limit, "change", left_out),
            left_out=left_out,
        )

    def cell(self, cell: CellText, base: Base = "latest~1", new: New = "latest") -> CellResult:
        """Show one cell on two sides: each judged value, what the two measurements differ in, causes, commands to run."""
        with connected(self._engine) as conn:
            comparison = self._comparison(conn, base, new)
            one = find_cell(comparison, cell)
            explained_by = causes(conn, replace(comparison, cells=(one,)))
            lines = evidence_of(conn, one)
            commands = _commands(conn, comparison, one)
        left_out: list[str] = []
        unjudged = [
            name for name in METRICS if name not in one.judged and name in {**one.base.values, **one.new.values}
        ]
        notes = {
            "power or heat held the clocks down": one.is_throttled,
            "the sides were measured on different testbeds": one.testbed_changed,
            "libraries or settings differ between the sides, or are not known": not one.same_environment,
            "the model itself changed": one.model_changed,
            "its latency has two modes from run to run": one.modes,
        }
        return CellResult(
            cell=str(one.cell),
            cell_id=one.cell.cell_id,
            base_side=describe_side(comparison.base),
            new_side=describe_side(comparison.new),
            outcome=one.outcome,
            base=_side(one.base),
            new=_side(one.new),
            changes=[_change(one, finding) for finding in one.findings],
            judged=[_judged(one, name) for name in one.judged],
            not_judged=[
                PlainValue(
                    metric=name, unit=METRICS[name].unit, base=one.base.values.get(name), new=one.new.values.get(name)
                )
                for name in unjudged
            ],
            evidence=first(lines, 2 * ROWS, "evidence line", left_out),
            causes=[each.title for each in explained_by],
            notes=[words for words, holds in notes.items() if holds],
            commands=commands,
            left_out=left_out,
        )

    def history(
        self,
        cell: CellText,
        metric: Annotated[
            str, Field(description="The metric, e.g. compiled_kernel_ms; the statuses are always there.")
        ] = ("compiled_ms"),
        branch: Branch = "",
        limit: Limit = 60,
    ) -> History:
        """Show the runs of a metric of a cell, oldest first, and when it went to another level, with the suspects."""
        if metric not in METRICS:
            raise FilterError(f"no metric is called {one_line(metric)!r}{nearest(metric, METRICS)}")
        with connected(self._engine) as conn:
            _check_branch(conn, branch)
            name = _stored_cell(conn, cell)
            rows = model_history(conn, name.suite, name.model, metrics=[metric])
            found = survey(conn, branch=branch or None, filters=_only(name), metrics=[metric, "status"])
        rows = rows[(rows["cell_id"] == name.cell_id) & ((rows["branch"] == branch) | (not branch))]
        left_out: list[str] = []
        changed = [
            (alert, change) for alert in found.alerts for change in alert.changes if change.cell_id == name.cell_id
        ]
        # The series that was measured last comes first.
        groups = sorted((of for _, of in rows.groupby(["branch", "testbed_id"])), key=lambda of: -of.index[-1])
        notes = [] if metric in MIN_EFFECT else [f"change points are not looked for in {metric}"]
        if not found.cells:
            notes.append("change points need more measured commits")
        return History(
            cell=str(name),
            metric=metric,
            unit=METRICS[metric].unit,
            series=[_series(group, metric, limit, left_out) for group in first(groups, FEW, "line", left_out)],
            changes=first([_change_point(*each) for each in changed], limit, "change point", left_out),
            notes=notes,
            left_out=left_out,
        )

    def kernels(
        self,
        cell: CellText,
        base: Base = "latest~1",
        new: New = "latest",
        kernel: Annotated[str, Field(description="Only the diff of this kernel, or of `wrapper`; empty for all.")] = "",
        max_chars: Annotated[int, Field(ge=0, le=MOST_CHARS, description="Characters of the diff at most.")] = CHARS,
        limit: Limit = 10,
    ) -> Kernels:
        """Show what differs in the generated code of a cell: kernels with their times, tuning, and a diff of the texts."""
        left_out: list[str] = []
        with connected(self._engine) as conn:
            one = find_cell(self._comparison(conn, base, new), cell)
            details = [details_behind(conn, state) for state in (one.base, one.new)]
            known = codes(conn, [key for key in (one.base.code_id, one.new.code_id) if key])
            before, after = (known.get(state.code_id or "") for state in (one.base, one.new))
            changed = changes(before, after) if before and after else None
            differing = kernel_evidence(changed, *details) if changed else []
            titles = differing_texts(differing, before.graphs, after.graphs) if before and after else {}
            wanted = _named(titles, kernel)
            diff = _diff(conn, {title: titles[title] for title in wanted}, max_chars, left_out)
        times = [_times(group) for group in compared_kernels(details[0], details[1], changed) if group.name != REST]
        return Kernels(
            cell=str(one.cell),
            sentence=code_sentence(changed, after) if changed and after else "The code of a side is not stored.",
            explained_by=[part.text for part in explained(details[0], details[1], changed)],
            times=first(times, limit, "kernel group", left_out),
            differing=first([_difference(row) for row in differing], limit, "kernel", left_out),
            diff=diff,
            left_out=left_out,
        )

    def records(
        self,
        record: Annotated[
            str, Field(description="Only this record, with its commits and kernels: its regression_id.")
        ] = "",
        closed: Annotated[bool, Field(description="Closed ones, too.")] = False,
        branch: Branch = "",
        limit: Limit = ROWS,
    ) -> Records:
        """List the records of regressions that people and `detect` opened: state, change, commits, history."""
        left_out: list[str] = []
        with connected(self._engine) as conn:
            if record:
                of = record_of(conn, find_regression(conn, record))
                return Records(records=[_record(of.info, of.name, of)], left_out=left_out)
            _check_branch(conn, branch)
            found = [one for one in listed(conn, with_closed=closed) if branch in ("", one.info.branch)]
        ordered = [one for group in by_commit(found) for one in group.records]
        return Records(
            records=first([_record(one.info, one.name) for one in ordered], limit, "record", left_out),
            left_out=left_out,
        )

    def _comparison(self, conn: Connection, base: str, new: str) -> Comparison:
        return self._judged(revision(conn), base, new)

    def _compare(self, _: int, base: str, new: str) -> Comparison:
        with connected(self._engine) as conn:
            return compare_named(conn, base, new)


def _night(night: NightInfo, left_out: list[str]) -> Night:
    return Night(
        night=night.night,
        started_at=night.started_at.isoformat(),
        branches=list(dict.fromkeys(run.branch for run in night.runs)),
        commits=list(dict.fromkeys(run.commit for run in night.runs)),
        where=night.place,
        statuses=night.statuses,
        missing=night.missing,
        runs=first([run.run_id for run in night.runs], ROWS, "run", left_out),
    )


def _change(one: CellComparison, finding: Finding) -> FoundChange:
    judged, metric = finding.judged, finding.metric
    return FoundChange(
        cell=str(one.cell),
        cell_id=one.cell.cell_id,
        dimension=finding.dimension,
        verdict=finding.verdict,
        metric=metric,
        base=one.base.values.get(metric or ""),
        new=one.new.values.get(metric or ""),
        change=finding.change,
        low=judged.low if judged else None,
        high=judged.high if judged else None,
        words=finding_words(finding),
        beside=remarks(one, finding),
    )


def _side(state: CellState) -> CellSide:
    return CellSide(
        status=state.status,
        run=state.run_id,
        started_at=state.started_at.isoformat() if state.started_at else None,
        **{name: getattr(state, name) for name in ("stage", "exception", "message", "hint", "code_id")},
    )


def _judged(one: CellComparison, name: str) -> JudgedValue:
    judged, metric = one.judged[name], METRICS[name]
    return JudgedValue(
        metric=name,
        title=metric.title,
        unit=metric.unit,
        verdict=judged.verdict,
        base=one.base.values.get(name),
        new=one.new.values.get(name),
        **{part: getattr(judged, part) for part in ("change", "adjusted", "low", "high", "q", "more_runs")},
    )


def _commands(conn: Connection, comparison: Comparison, one: CellComparison) -> list[str]:
    """Return the command that measures a cell again; for a worse cell also commands that record it and search the commit."""
    cell = cell_of(conn, one.cell.cell_id)
    repro = stored_repro(conn, cell, one.new.run_id or one.base.run_id) if cell else ""
    worse = [finding for finding in one.findings if finding.verdict in WORSE]
    if not worse:
        return [repro] if repro else []
    sides = [fixed_side(comparison.base), fixed_side(comparison.new)]
    commands = [repro, shlex.join(["inductor-watch", "regressions", "open", *sides, "--cell", one.cell.cell_id])]
    good, bad = set(comparison.base.commits), set(comparison.new.commits)
    if repro.startswith("inductor-watch run ") and len(good) == len(bad) == 1 and good != bad:
        searched = repro.partition(" --source ")[0].partition(" --shared-tuning ")[0].partition(" --flag ")[0]
        ends = ["--metric", worse[0].metric or "status", "--good", *good, "--bad", *bad]
        words = searched.replace("inductor-watch run", "inductor-watch bisect --git PYTORCH", 1)
        commands.append(f"{words} {shlex.join(ends)}")
    return [command for command in commands if command]


def _check_branch(conn: Connection, branch: str) -> None:
    """Raise `FilterError` for a branch without runs; an empty name is all branches."""
    if branch and branch not in (known := branches(conn)):
        raise FilterError(f"no runs of branch {one_line(branch)!r}{nearest(branch, known)}")


def _stored_cell(conn: Connection, text: str) -> CellName:
    """Return the cell of this name or cell_id. Raises `FilterError` with the nearest names if there is none."""
    names = cell_names(conn)
    found = names[(names["cell_id"] == text) | (names["cell"] == text)]
    if found.empty:
        raise FilterError(f"the database has no cell {one_line(text, 200)!r}{nearest(text, names['cell'])}")
    row = found.iloc[0]
    return CellName(
        **{name: row[name] for name in CELL_COLUMNS if name != "batch_size"}, batch_size=int(row["batch_size"])
    )


def _only(name: CellName) -> CellFilter:
    axes = {f"{axis}s": (getattr(name, axis),) for axis in ("suite", "model", "phase", "dtype", "device")}
    return CellFilter(**axes, configs=(name.config_id,))


def _series(rows: pd.DataFrame, metric: str, limit: int, left_out: list[str]) -> HistorySeries:
    """Return the newest points of a series, oldest first."""
    newest = first(rows.to_dict("records")[::-1], limit, "older run", left_out)
    points = [
        HistoryPoint(
            run=row["run_id"],
            commit=row["commit"],
            started_at=row["started_at"].isoformat(),
            status=None if pd.isna(row["status"]) else row["status"],
            value=row[metric],
        )
        for row in newest[::-1]
    ]
    return HistorySeries(branch=newest[0]["branch"], testbed_id=newest[0]["testbed_id"], points=points)


def _change_point(alert: Alert, change: Change) -> HistoryChange:
    rest = (alert.blame.distance or 0) - FEW
    suspects = [commit_line(entry) for entry in alert.blame.commits[:FEW]]
    return HistoryChange(
        words=change_line(change),
        metric=change.metric or "status",
        direction=change.direction,
        certainty=change.certainty,
        is_over=change.is_over,
        after_commit=change.span.base.commit,
        by_commit=change.span.onset.commit,
        by_date=from_epoch(change.span.onset.started_at).isoformat(),
        environment_changed=change.environment_changed,
        suspects=[*suspects, *([f"... and {rest} more commits"] if rest > 0 else [])],
    )


def _times(group: KernelGroup) -> KernelTime:
    return KernelTime(
        name=group.name,
        base_launches=group.base_launches,
        base_ms=group.base_ms,
        new_launches=group.new_launches,
        new_ms=group.new_ms,
        change_ms=group.change_ms,
        code=group.what or "unchanged, or not known",
    )


def _difference(row: KernelEvidence) -> KernelDifference:
    return KernelDifference(
        name=row.pair.name,
        what=row.what,
        base_ms=row.base_ms,
        new_ms=row.new_ms,
        base_tuning=row.base_winner,
        new_tuning=row.new_winner,
        operations=row.pair.source,
        source=list(row.lines[:FEW]),
    )


def _named(titles: Collection[str], kernel: str) -> list[str]:
    """Return the titles that belong to a kernel or the wrapper, all without a name. Raises `FilterError` if none does."""
    found = [title for title in titles if not kernel or kernel in (title, title.partition(" ")[0])]
    if kernel and not found:
        raise FilterError(f"no text of {one_line(kernel, 200)!r} differs{nearest(kernel, titles)}")
    return found


def _diff(conn: Connection, titles: Mapping[str, list[SourceText]], max_chars: int, left_out: list[str]) -> str:
    """Return the diffs of texts, the largest changes of time first, cut to `max_chars`; texts without room are not read."""
    text, cut = "", []
    for title, texts in titles.items():
        if len(text) < max_chars:
            text += f"# {title}\n{stored_difference(conn, texts) or 'Its text is no longer stored.'}\n"
        else:
            cut.append(title)
    if len(text) > max_chars or cut:
        more = f", nothing of {counted(len(cut), 'other text')}" if cut else ""
        left_out.append(f"the diff ends after {max_chars} characters{more}: name one `kernel`, or raise `max_chars`")
    return text[:max_chars]


def _record(info: RegressionInfo, name: str, record: Record | None = None) -> RegressionRecord:
    plain = ("regression_id", "state", "cell_id", "kind", "metric", "branch", "base_commit", "onset_commit", "base_run")
    events = [
        f"{event.at:%Y-%m-%d} {event.author}: {event.from_state or 'opened'} -> {event.to_state}. {event.text}"
        for event in info.events[-FEW:]
    ]
    return RegressionRecord(
        **{name: getattr(info, name) for name in (*plain, "onset_run", "owner", "link")},
        cell=name,
        dimension=dimension_of(info),
        change=change_of(info),
        onset_at=info.onset_at.isoformat() if info.onset_at else None,
        opened_at=info.opened_at.isoformat(),
        history=events,
        commits=blame_lines(record, ROWS) if record else [],
        kernels=list(record.kernels) if record else [],
        repro=record.repro if record else "",
    )
