"""One cell of a comparison in all detail that a site shows: metrics, evidence, kernels, and differences of the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from sqlalchemy import Connection

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.comparison import Comparison
from analysis.compare.side_differences import changes, kernel_evidence, listed_kernels
from analysis.elements.listings import metric_row
from analysis.elements.program_tables import (
    SourceText,
    code_sentence,
    difference,
    differing_texts,
    evidence_table,
    host_table,
    kernel_table,
    memory_tables,
    roof_table,
    roof_times,
    sources,
)
from analysis.elements.wording import OUTCOMES, judged, said, status_tag, table
from analysis.history.regression_record import cell_of
from analysis.present import noise_line
from analysis.reports.facts import evidence_of
from analysis.rerun import stored_repro
from collector.metrics import Place, shown_in
from db.queries.details import codes, texts_of
from db.queries.side_rows import details_behind

_SHOWN = shown_in(*Place)
_ROLES = ("base", "new")
#: Most kernels that differ, and most lines of diffs, that are published of a cell; the dashboard has all of them.
_KERNELS, _CODE_LINES = 10, 100
#: Most characters of a failure's message.
_MESSAGE = 4000


@dataclass(frozen=True, slots=True)
class CodeChange:
    """Differences of the generated code: a sentence, a table (may be empty), and diffs by title; `left_out` counts the rest."""

    sentence: str
    table: Markup
    diffs: tuple[tuple[str, str], ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class CellDetails:
    """The contents of a cell's page; unknown parts are empty."""

    one: CellComparison
    sentence: str
    statuses: tuple[Markup, ...]
    failures: tuple[tuple[str, str], ...]
    metrics: Markup
    noise: str
    evidence: tuple[str, ...]
    kernels: Markup
    code: CodeChange | None
    repro: str

    @property
    def is_changed(self) -> bool:
        """Return whether the cell changed, or does not pass on both sides."""
        return bool(self.one.changes) or not self.one.passes


def details_of(conn: Connection, comparison: Comparison, one: CellComparison) -> CellDetails:
    """Read the details of both measurements of a cell."""
    details = [details_behind(conn, state) for state in (one.base, one.new)]
    words = [f"{OUTCOMES[outcome].capitalize()}{detail and f': {detail}'}." for outcome, detail in said(one)]
    run_id = one.new.run_id or one.base.run_id
    cell = cell_of(conn, one.cell.cell_id)
    judged_here = [name for name in comparison.noise if name in one.judged]
    return CellDetails(
        one,
        " ".join(words),
        tuple(status_tag(state.status, of) for state, of in zip((one.base, one.new), details, strict=True)),
        tuple(_failures(one)),
        _metrics(one),
        noise_line(comparison, judged_here) if judged_here else "",
        evidence_of(conn, one),
        _resources(details, str(one.cell)),
        _code(conn, one, details),
        stored_repro(conn, cell, run_id) if cell else "",
    )


def _failures(one: CellComparison) -> list[tuple[str, str]]:
    found = []
    for role, state in zip(_ROLES, (one.base, one.new), strict=True):
        lines = {name: getattr(state, name) for name in ("stage", "exception", "message", "hint")}
        text = "\n".join(f"{name}: {value}" for name, value in lines.items() if value)
        if text and not state.passes:
            found.append((f"Why {role} is {state.status}", text[:_MESSAGE]))
    return found


def _metrics(one: CellComparison) -> Markup:
    values = {name: [state.values.get(name) for state in (one.base, one.new)] for name in _SHOWN}
    rows = [
        metric_row(name, row, judged(one, name))
        for name, row in values.items()
        if any(value is not None for value in row)
    ]
    head = ("metric", *_ROLES, "change", "95 %", "verdict")
    return table("Metrics", head, rows, numbers=range(1, 5), of=str(one.cell)) if rows else Markup()


def _kernel_times(details: Sequence[Mapping[str, Any]], of: str) -> Markup:
    listed = [list(listed_kernels(of_side, "compiled")) for of_side in details]
    if not any(listed):
        return Markup()
    if all(listed):
        return kernel_table(_ROLES, listed, "compiled", details, of)
    at = 0 if listed[0] else 1
    return kernel_table(_ROLES[at : at + 1], listed[at : at + 1], "compiled", details[at : at + 1], of)


def _resources(details: Sequence[Mapping[str, Any]], of: str) -> Markup:
    """Return tables of a call's costs: device time by kernel, its distance from the roof, the host's time, and memory."""
    times = [roof_times(of_side) for of_side in details]
    roof = roof_table(_ROLES, times, details, of) if any(times) else Markup()
    base, new = details
    parts = (_kernel_times(details, of), roof, host_table(base, new, of=of), *memory_tables(base, new, of=of))
    return Markup().join(parts)


def _code(conn: Connection, one: CellComparison, details: Sequence[Mapping[str, Any]]) -> CodeChange | None:
    """Return the differences of the code; None where a side has none."""
    ids = one.base.code_id, one.new.code_id
    known = codes(conn, [code_id for code_id in ids if code_id])
    if ids[0] not in known or ids[1] not in known:
        return None
    before, after = known[ids[0]], known[ids[1]]
    changed = changes(before, after)
    rows = kernel_evidence(changed, *details)
    diffs: list[tuple[str, str]] = []
    left_out, room = 0, _CODE_LINES
    items = {} if changed.same else differing_texts(rows, before.graphs, after.graphs)
    for title, texts in items.items():
        # Texts for which there is no room are not even read.
        lines = stored_difference(conn, texts).splitlines() if room > 0 else []
        if not lines:
            left_out += 1
            continue
        cut = [f"... {len(lines) - room} more lines"] if len(lines) > room else []
        diffs.append((title, "\n".join([*lines[:room], *cut])))
        room -= len(lines)
    shown = evidence_table(rows, _ROLES, str(one.cell), _KERNELS) if rows else Markup()
    return CodeChange(code_sentence(changed, after), shown, tuple(diffs), left_out)


def stored_difference(conn: Connection, texts: Sequence[SourceText]) -> str:
    """Return the diff of two texts, or the text if there is only one; empty where a text is no longer stored."""
    stored = texts_of(conn, [text_id for text_id, _ in texts])
    if any(text_id not in stored for text_id, _ in texts):
        return ""
    shown = sources([write(stored[text_id]) for text_id, write in texts])
    return difference(shown, _ROLES) if len(shown) == 2 else shown[0]
