"""Alerts as lines of a terminal: what changed since when, which commits can be to blame, and what lies beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from analysis.history.alerts import Alert
from analysis.history.alerts_evidence import Evidence
from analysis.history.blame import BlameRange
from analysis.history.changes import Certainty, Change
from analysis.history.drift import Drift
from collector.metrics import METRICS
from db.commits.ranges import CommitEntry
from jobs.output.terminal import one_line
from jobs.regressions.text import commit_line

#: Commits of a range and kernels that are named; all are in `--json`.
_COMMITS, _KERNELS = 20, 3
#: Bytes are told in megabytes.
_SHOWN = {"B": (1e6, "MB")}


def alert_lines(alert: Alert, cells: int, evidence: Evidence | None = None) -> list[str]:
    """A heading, the suspects, and the `cells` changes that are worst; `evidence` is that of the first of these."""
    lines = [_heading(alert), *(f"  {line}" for line in _suspects(alert))]
    if alert.environment_changed:
        keys = ", ".join(f"{one.key}: {_joined(one.base)} -> {_joined(one.new)}" for one in alert.environment[:5])
        more = len(alert.environment) - 5
        lines.append(f"  environment or options changed there, too: {keys}{f', and {more} more' if more > 0 else ''}")
    for (_, metric), drift in alert.common_drift.items():
        machine = sum(change.metric == metric for change in alert.of_machine())
        lines.append(
            f"  eager times of all its cells moved by {_percent(drift)} %: {machine} of {metric} by the machine alone"
        )
    lines += [f"  {change_line(change)}" for change in alert.worst(cells)]
    if evidence is not None:
        lines += [f"    {line}" for line in evidence_lines(evidence)]
    if (rest := len(alert.changes) - cells) > 0:
        lines.append(f"  ... and {rest} more changes (--cells shows more, --json has all)")
    return [one_line(line) for line in lines]


def change_line(change: Change) -> str:
    """`huggingface/bert ... default: compiled_ms 2 -> 2.1 ms, +5.0 % (+4.1 .. +5.9)`, or what became of its status."""
    marks = [
        word for word, is_so in (("pending", change.certainty is Certainty.PENDING), ("over", change.is_over)) if is_so
    ]
    end = f" [{', '.join(marks)}]" if marks else ""
    if change.levels is None:
        before, after = change.statuses or ("?", "?")
        return f"{change.cell}: {before} -> {after}{end}"
    levels = change.levels
    interval = f"({_percent(levels.low)} .. {_percent(levels.high)})"
    values = f"{_value(change.metric, levels.before)} -> {_value(change.metric, levels.after)}"
    eager = "" if change.control is None else f", eager {_percent(change.control)} %"
    return f"{change.cell}: {change.metric} {values}, {_percent(levels.ratio)} % {interval}{eager}{end}"


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """What else differs between the two measurements, a line for each kind."""
    for name, (before, after) in evidence.counts.items():
        yield f"{name}: {_count(before)} -> {_count(after)}"
    for kernel in evidence.kernels[:_KERNELS]:
        launches = f"{_count(kernel.base_launches)} -> {_count(kernel.new_launches)} launches"
        yield f"kernel {kernel.name[:80]}: {launches}, {kernel.change_ms:+.4f} ms"
    for what, side, text in evidence.reasons:
        yield f"{what} only {side}: {' '.join(text.split())[:160]}"
    if evidence.exception:
        yield f"failed with {evidence.exception}"


def drift_line(drift: Drift) -> str:
    """How far a series is from its pin, and how much of that no step tells."""
    levels = drift.levels
    values = f"{_value(drift.metric, levels.before)} -> {_value(drift.metric, levels.now)}"
    told = "" if levels.steps == 1 else f", of which steps {_percent(levels.steps)} %"
    left = f"drift {_percent(levels.drift)} % ({_percent(levels.low)} .. {_percent(levels.high)})"
    return one_line(
        f"{drift.direction.value}: {drift.cell}: {drift.metric} {values}, {_percent(levels.ratio)} %{told}; {left}"
    )


def _heading(alert: Alert) -> str:
    day = datetime.fromtimestamp(alert.span.onset.started_at, UTC).date().isoformat()
    direction = alert.direction.value if alert.direction else "mixed"
    words = [direction, *([alert.certainty.value] if alert.certainty is Certainty.PENDING else [])]
    words += ["over"] if alert.is_over else []
    counts = ", ".join(f"{name} {count}" for name, count in alert.counts().items())
    median = alert.median_worsening
    effect = "" if median is None else f", median {abs(100 * (median - 1)):.1f} % {'worse' if median > 1 else 'better'}"
    number = len(alert.cells)
    return f"{day}  {alert.branch}  {', '.join(words)}: {number} cell{'s' * (number > 1)} ({counts}){effect}  [{alert.alert_id}]"


def _suspects(alert: Alert) -> list[str]:
    blame = alert.blame
    if alert.span.is_one_commit:
        return [f"both sides measured {blame.base[:10]}: no commit is to blame"]
    lines = [f"after {blame.base[:10]} up to {blame.onset[:10]}{_distance(blame)}"]
    lines += [f"  {commit_line(entry)}" for entry in blame.commits[:_COMMITS]]
    if (rest := len(blame.commits) - _COMMITS) > 0:
        lines.append(f"  ... and {rest} more (--json has all)")
    if alert.also_possible:
        lines.append(f"also possible: {_shas(alert.also_possible)}")
    return lines


def _distance(blame: BlameRange) -> str:
    if blame.distance is None:
        return "; what landed between is not known: `inductor-watch commits import --git PATH`"
    more = "" if blame.is_whole else f", {blame.distance - len(blame.commits)} of them not stored"
    return f", {blame.distance} commit{'s' * (blame.distance != 1)}{more}"


def _shas(entries: Sequence[CommitEntry]) -> str:
    named = ", ".join(entry.sha[:10] for entry in entries[:5])
    return named if len(entries) <= 5 else f"{named} and {len(entries) - 5} more"


def _value(metric: str, value: float) -> str:
    divisor, unit = _SHOWN.get(METRICS[metric].unit, (1.0, METRICS[metric].unit))
    return f"{value / divisor:.4g} {unit}".rstrip()


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _joined(values: Sequence[str]) -> str:
    return ", ".join(values) or "nothing"
