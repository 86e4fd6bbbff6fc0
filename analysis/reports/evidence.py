"""What else changed in a cell that got worse: kernels, graph breaks, partitions, skips, options, the eager run, the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.code import CodeChanges, changes, kernel_evidence
from analysis.compare.evidence import COUNTS, REST, count_differences, differences, reason_differences
from analysis.compare.findings import WALL
from analysis.compare.kernel_groups import KernelGroup, compared_kernels, explained
from analysis.present import percent
from collector.explanation import Explanation
from collector.vocabulary import status_words
from db.queries.code import codes, with_kernels
from db.queries.details import evidence, program, throttled_by
from db.queries.side_rows import CellState

_SIDES = ("base", "new")
#: Lines of one kind.
_MOST = 4
#: A kernel is named if its time changed by this part of the device time, or if it came or went with as much.
_LEAST_PART = 0.01
#: The eager run does not know the commit of Inductor: a change of this size is reported,
_EAGER_PART = 0.02
#: ... and one of this size asks whether it is another model: few hosts are slower by so much.
_ANOTHER_MODEL = 0.2


def evidence_of(conn: Connection, row: CellComparison) -> tuple[str, ...]:
    """Return one line for each thing that the two measurements of a compared cell differ in."""
    sides = row.base, row.new
    base, new = (_details(conn, state) for state in sides)
    options = [_options(conn, state.program_id) for state in sides]
    code = _code_changes(conn, row)
    lines = [
        *_failure(row.new),
        *_explained(new),
        *_count_changes(row),
        *_reason_changes(base, new),
        *([f"generated code: {code.words}"] if code else []),
        *_kernel_changes(base, new, code),
        *(_tuning_changes(base, new, code) if code else []),
        *_option_changes(*options),
        *eager_lines(row),
        *(["measured on another testbed"] if row.testbed_changed else []),
        *_throttled(base, new),
        *_disturbed(base, new),
        *_weakly_checked(row, base, new),
    ]
    return tuple(lines) or ("nothing that is recorded of the two measurements differs but their times",)


def _details(conn: Connection, state: CellState) -> dict[str, Any]:
    if state.run_id is None or state.cell_id is None:
        return {}
    return with_kernels(conn, state.cell_id, evidence(conn, state.run_id, state.cell_id, state.replicate)[0])


def _options(conn: Connection, program_id: str | None) -> dict[str, Any]:
    return (program(conn, program_id) if program_id else None) or {}


def _failure(new: CellState) -> list[str]:
    """Why the new side did not pass."""
    if new.passes:
        return []
    parts = [part for part in (new.stage, new.exception, new.message) if part is not None]
    return [": ".join(parts) + (f" ({new.hint})" if new.hint is not None else "")] if parts else []


def _explained(new: Mapping[str, Any]) -> list[str]:
    """What `inductor-watch explain` has found for the new side."""
    explanation = Explanation.of(new)
    return [str(explanation)] if explanation else []


def _count_changes(row: CellComparison) -> list[str]:
    differing = count_differences(row.base.values, row.new.values)
    return [f"{COUNTS[name]}: {base:.0f} -> {new:.0f}" for name, (base, new) in differing.items()]


def _throttled(*details: Mapping[str, Any]) -> list[str]:
    """What kept the GPU's clocks down, which moves its times."""
    why = [(side, throttled_by(of_side)) for side, of_side in zip(_SIDES, details, strict=True)]
    sides = [f"{side} was measured ({', '.join(words).replace('_', ' ')})" for side, words in why if words]
    return [f"the GPU was held back while {' and '.join(sides)}: its clock is part of the times"] if sides else []


def _disturbed(*details: Mapping[str, Any]) -> list[str]:
    """Which side shared the GPU with another process (`jobs.pool.disturbance`)."""
    reasons = [(side, of_side.get("disturbed")) for side, of_side in zip(_SIDES, details, strict=True)]
    return [f"the measurement of {side} was disturbed: {reason}" for side, reason in reasons if reason]


def _weakly_checked(row: CellComparison, *details: Mapping[str, Any]) -> list[str]:
    """Which side's pass no reference vouches for."""
    states = row.base, row.new
    statuses = [(side, str(state.status), of) for side, state, of in zip(_SIDES, states, details, strict=True)]
    return [
        f"{side}: {words}" for side, status, of_side in statuses if (words := status_words(status, of_side)) != status
    ]


def _reason_changes(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    lines: dict[str, list[str]] = {}
    for one in reason_differences(base, new):
        head = "new reason" if one.side == "after" else "no longer a reason"
        lines.setdefault(f"{head} of a {one.what}", []).append(one.text)
    return [f"{head}: {text}" for head, texts in lines.items() for text in texts[:_MOST]]


def _code_changes(conn: Connection, row: CellComparison) -> CodeChanges | None:
    """What became of the generated code; None where a side has none."""
    before, after = row.base.code_id, row.new.code_id
    known = codes(conn, [before, after]) if before and after else {}
    return changes(known[before], known[after]) if before in known and after in known else None


def _kernel_changes(base: Mapping[str, Any], new: Mapping[str, Any], code: CodeChanges | None) -> list[str]:
    """Return the kernels whose time changed, with their share where they explain the change of the device time."""
    groups = compared_kernels(base, new, code)
    parts = {part.name: part.part for part in explained(base, new, code)}
    total = max(sum(one.base_ms or 0.0 for one in groups), sum(one.new_ms or 0.0 for one in groups))
    least = max(_LEAST_PART * total, 1e-9)
    changed = [one for one in groups if one.name != REST and abs(one.change_ms) >= least]
    return _first([_kernel(one, parts.get(one.name, "")) for one in changed], "kernels")


def _tuning_changes(base: Mapping[str, Any], new: Mapping[str, Any], code: CodeChanges) -> list[str]:
    """The kernels of one code whose autotuning chose otherwise."""
    return _first(
        [
            f"kernel {row.pair.name} was tuned differently: {row.base_winner} -> {row.new_winner}"
            for row in kernel_evidence(code, base, new)
            if row.is_tuned_differently and not row.pair.what
        ],
        "kernels tuned differently",
    )


def _first(lines: list[str], what: str) -> list[str]:
    more = [f"... and {len(lines) - _MOST} more {what}"] if len(lines) > _MOST else []
    return lines[:_MOST] + more


def _kernel(group: KernelGroup, part: str) -> str:
    about = ", ".join(text for text in (part, group.what and f"its code {group.what}") if text)
    if group.is_refused:
        return f"{group.words}{f', {about}' if about else ''}"
    base, new = (
        f"at most {ms:.3f} ms" if group.unlisted == side else _launches(launches, ms)
        for side, launches, ms in (
            ("base", group.base_launches, group.base_ms),
            ("new", group.new_launches, group.new_ms),
        )
    )
    return f"kernel {group.name}: {base} -> {new} ({', '.join(filter(None, (f'{group.change_ms:+.3f} ms', about)))})"


def _launches(launches: float | None, ms: float | None) -> str:
    return "none" if launches is None or ms is None else f"{launches:g} x, {ms:.3f} ms"


def _option_changes(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    lines = [
        f"option {one.key}: {' or '.join(one.base) or 'nothing'} -> {' or '.join(one.new) or 'nothing'}"
        for one in differences(base, new)
    ]
    return _first(lines, "options")


def eager_lines(row: CellComparison) -> list[str]:
    """What the eager runs beside them say of two measurements; nothing where they moved by less than 2 %."""
    base, new = (state.values.get("eager_ms") or 0.0 for state in (row.base, row.new))
    if not (base > 0 and new > 0) or abs(new / base - 1) < _EAGER_PART:
        return []
    change = new / base - 1
    asked = ": another model?" if abs(change) >= _ANOTHER_MODEL else ""
    lines = [f"eager of the same processes: {base:.4g} ms -> {new:.4g} ms ({100 * change:+.1f} %){asked}"]
    wall = row.judged.get(WALL)
    if wall and abs(wall.explained or 0.0) >= _EAGER_PART:
        lines.append(f"compiled: {percent(wall.change)} as measured, {percent(wall.adjusted)} adjusted for eager")
    return lines
