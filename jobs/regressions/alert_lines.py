"""Alerts as lines of a terminal: what changed since when, which commits can be to blame, and what else differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from analysis.history.alerts import Alert, Evidence
from analysis.history.branch_series import Certainty, Change
from analysis.history.drift import Drift
from analysis.present import interval, percent, value
from db.store_errors import counted
from jobs.output.terminal import one_line, the_first
from jobs.regressions.text import commit_line

#: Commits of a range, and kernels that are named; all are in `--json`.
_COMMITS, _KERNELS = 20, 3


def alert_lines(alert: Alert, cells: int, evidence: Evidence | None = None) -> list[str]:
    """A heading, the suspects, and the `cells` changes that are worst; `evidence` is that of the first of these."""
    lines = [_heading(alert), *(f"  {line}" for line in (*_suspects(alert), *_beside(alert)))]
    lines += [f"  {change_line(change)}" for change in alert.worst(cells)]
    lines += [f"    {line}" for line in evidence_lines(evidence)] if evidence else []
    if (rest := len(alert.changes) - cells) > 0:
        lines.append(f"  ... and {rest} more changes (--cells shows more, --json has all)")
    return [one_line(line) for line in lines]


def change_line(change: Change) -> str:
    """`huggingface/bert ... default: compiled_ms 2 ms -> 2.1 ms, +5.0 % (+4.1 .. +5.9 %)`, or what its status became."""
    marks = {"pending": change.certainty is Certainty.PENDING, "over": change.is_over}
    end = f" [{', '.join(word for word, is_so in marks.items() if is_so)}]" if any(marks.values()) else ""
    if change.levels is None:
        before, after = change.statuses or ("?", "?")
        return f"{change.cell}: {before} -> {after}{end}"
    levels = change.levels
    eager = "" if change.control is None else f", eager {percent(change.control - 1)}"
    within = f"({interval(levels.low - 1, levels.high - 1)})"
    values = _values(change.metric, levels.before, levels.after)
    return f"{change.cell}: {values}, {percent(levels.ratio - 1)} {within}{eager}{end}"


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """What else differs between the two measurements, a line for each kind."""
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
    """How far a series is from its pin, and how much of that no step explains."""
    levels = drift.levels
    steps = "" if levels.steps == 1 else f", of which steps {percent(levels.steps - 1)}"
    rest = f"drift {percent(levels.drift - 1)} ({interval(levels.low - 1, levels.high - 1)})"
    values = _values(drift.metric, levels.before, levels.now)
    return one_line(f"{drift.direction.value}: {drift.cell}: {values}, {percent(levels.ratio - 1)}{steps}; {rest}")


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
    """The commits after the last good one, or why no commit can be named."""
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
    """What changed at the same time and is no commit: environment, options, the machine."""
    if alert.environment_changed:
        changed = [f"{one.key}: {_joined(one.base)} -> {_joined(one.new)}" for one in alert.environment]
        yield f"environment or options changed there, too: {the_first(changed)}"
    for (_, metric), drift in alert.common_drift.items():
        machine = sum(change.metric == metric for change in alert.of_machine())
        yield f"eager times of all its cells moved by {percent(drift - 1)}: {machine} of {metric} by the machine alone"


def _joined(values: Sequence[str]) -> str:
    return ", ".join(values) or "nothing"
