"""What else changed in a cell that got worse: kernels, graph breaks, partitions, skips, options, the eager run, the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from analysis.compare.evidence import COUNTS, REASONS, REST, KernelChange, differences, kernel_changes, kernels, reasons
from analysis.reports.words import percent
from collector.vocabulary import Status, status_words
from db.queries.details import evidence, program
from db.throttling import throttled_by

#: Lines of one kind.
_MOST = 4
#: A kernel is named if its time changed by this part of the device time, or if it came or went with as much.
_LEAST_PART = 0.01
#: The eager run does not know the commit of Inductor: a change of this size is reported,
_EAGER_PART = 0.02
#: ... and one of this size asks whether it is another model: few hosts are slower by so much.
_ANOTHER_MODEL = 0.2


def evidence_of(conn: Connection, row: Mapping[Any, Any]) -> tuple[str, ...]:
    """One line for each thing that the two measurements of a compared cell differ in; `row` is of
    `analysis.compare.pairing.pair`."""
    details = [_details(conn, row, side) for side in ("base", "new")]
    options = [_options(conn, row[f"program_id_{side}"]) for side in ("base", "new")]
    lines = [
        *_failure(row),
        *_count_changes(row),
        *_reason_changes(*details),
        *_kernel_changes(row, *details),
        *_option_changes(*options),
        *eager_lines(row),
        *_machine(row),
        *_throttled(*details),
        *_disturbed(*details),
        *_weakly_checked(row, *details),
    ]
    return tuple(lines) or ("nothing that is recorded of the two measurements differs but their times",)


def _details(conn: Connection, row: Mapping[Any, Any], side: str) -> dict[str, Any]:
    run_id, cell_id = row[f"run_id_{side}"], row[f"cell_id_{side}"]
    if not isinstance(run_id, str) or not isinstance(cell_id, str):
        return {}
    return evidence(conn, run_id, cell_id, int(row[f"replicate_{side}"]))[0]


def _options(conn: Connection, program_id: Any) -> dict[str, Any]:
    return (program(conn, program_id) if isinstance(program_id, str) else None) or {}


def _failure(row: Mapping[Any, Any]) -> list[str]:
    """Why the new side did not pass."""
    if row["status_new"] == Status.PASS.value:
        return []
    parts = [
        str(row[f"{name}_new"]) for name in ("stage", "exception", "message") if isinstance(row[f"{name}_new"], str)
    ]
    hint = row["hint_new"]
    return [": ".join(parts) + (f" ({hint})" if isinstance(hint, str) else "")] if parts else []


def _count_changes(row: Mapping[Any, Any]) -> list[str]:
    lines = []
    for metric, words in COUNTS.items():
        base, new = row[f"{metric}_base"], row[f"{metric}_new"]
        if base == base and new == new and base is not None and new is not None and base != new:
            lines.append(f"{words}: {base:.0f} -> {new:.0f}")
    return lines


def _throttled(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What kept the GPU's clocks down, which moves its times."""
    reasons_of = {"base": throttled_by(base), "new": throttled_by(new)}
    sides = [f"{side} was measured ({', '.join(why).replace('_', ' ')})" for side, why in reasons_of.items() if why]
    return [f"the GPU was held back while {' and '.join(sides)}: its clock is part of the times"] if sides else []


def _disturbed(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Which side shared the GPU with another process (`jobs.pool.disturbance`)."""
    sides = {"base": base.get("disturbed"), "new": new.get("disturbed")}
    return [f"the measurement of {side} was disturbed: {reason}" for side, reason in sides.items() if reason]


def _weakly_checked(row: Mapping[Any, Any], *details: Mapping[str, Any]) -> list[str]:
    """Which side's pass no reference vouches for."""
    statuses = {
        side: status_words(str(row[f"status_{side}"]), of) for side, of in zip(("base", "new"), details, strict=True)
    }
    return [f"{side}: {words}" for side, words in statuses.items() if words != str(row[f"status_{side}"])]


def _reason_changes(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, words in REASONS.items():
        before, after = (reasons(details, key) for details in (base, new))
        lines += [f"new reason of a {words}: {text}" for text in after if text not in before][:_MOST]
        lines += [f"no longer a reason of a {words}: {text}" for text in before if text not in after][:_MOST]
    return lines


def _kernel_changes(row: Mapping[Any, Any], base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, after = (kernels(details, "compiled") for details in (base, new))
    if not before or not after:
        return []
    total = max(sum(ms for _, ms in side.values()) for side in (before, after))
    changed = [
        item
        for item in kernel_changes(before, after)
        if item.name != REST and abs(item.change_ms) >= max(_LEAST_PART * total, 1e-9)
    ]
    more = [f"... and {len(changed) - _MOST} more kernels"] if len(changed) > _MOST else []
    return [f"kernel {_kernel(item)}" for item in changed[:_MOST]] + more


def _kernel(item: KernelChange) -> str:
    base, new = _launches(item.base_launches, item.base_ms), _launches(item.new_launches, item.new_ms)
    return f"{item.name}: {base} -> {new} ({item.change_ms:+.3f} ms)"


def _launches(launches: float | None, ms: float | None) -> str:
    return "none" if launches is None or ms is None else f"{launches:g} x, {ms:.3f} ms"


def _option_changes(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    changed = differences(base, new)
    more = [f"... and {len(changed) - _MOST} more options"] if len(changed) > _MOST else []
    lines = [
        f"option {item.key}: {' or '.join(item.base) or 'nothing'} -> {' or '.join(item.new) or 'nothing'}"
        for item in changed[:_MOST]
    ]
    return lines + more


def eager_lines(row: Mapping[Any, Any]) -> list[str]:
    """What the eager runs beside them say of two measurements; nothing where they moved by less than 2 %.

    `row` has eager_ms_base and eager_ms_new (ms; None or NaN where not measured), and may have compiled_ms_change,
    compiled_ms_adjusted and compiled_ms_explained (relative) of a `Judgement`.
    """
    base, new = row["eager_ms_base"], row["eager_ms_new"]
    if not (base and new and base > 0 and new > 0) or abs(new / base - 1) < _EAGER_PART:
        return []
    change = new / base - 1
    asked = ": another model?" if abs(change) >= _ANOTHER_MODEL else ""
    lines = [f"eager of the same processes: {base:.4g} ms -> {new:.4g} ms ({100 * change:+.1f} %){asked}"]
    if abs(row.get("compiled_ms_explained", float("nan"))) >= _EAGER_PART:
        change, adjusted = (percent(row[f"compiled_ms_{name}"]) for name in ("change", "adjusted"))
        lines.append(f"compiled: {change} as measured, {adjusted} adjusted for eager")
    return lines


def _machine(row: Mapping[Any, Any]) -> list[str]:
    return ["measured on another testbed"] if row["testbed_changed"] is True else []
