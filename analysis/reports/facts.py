"""The facts of a report, as values: gathered once from a comparison and its verdicts, drawn as Markdown, HTML or JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection

from analysis.compare.cell_comparison import WALL, WORSE, CellComparison, Finding, Outcome
from analysis.compare.cell_verdicts import MARGIN, decide
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import Comparison, near_limit
from analysis.compare.cost_parts import host_parts, host_words, memory_words
from analysis.compare.kernel_groups import KernelGroup, compared_kernels, explained
from analysis.compare.side_differences import (
    COUNTS,
    REST,
    CodeChanges,
    changes,
    count_differences,
    differences,
    kernel_evidence,
    places,
    reason_differences,
)
from analysis.compare.suite_groups import SuiteChange
from analysis.elements.addresses import cell_link, comparison_link, fixed_side
from analysis.present import claims, dimension_lines, percent, sentence, value
from analysis.rerun import NOTHING_AGAIN, Again, cell_of, find_again, repro_as
from collector.failures import Explanation
from collector.metrics import METRICS, MIN_EFFECT
from collector.vocabulary import NEAREST, PYTORCH_CHECK, Config, is_unchecked, status_words
from db.queries.cells import EVERYTHING, CellFilter
from db.queries.details import codes, configs_of, program, throttled_by
from db.queries.side_rows import CellState, details_behind

_SIDES = ("base", "new")
_PEAK = "compiled_peak_bytes"
#: Most lines of one kind.
_MOST = 4
#: A kernel is named if its time changed by this part of the device time, or if it came or went with as much.
_LEAST_PART = 0.01
#: The smallest relative change of an eager run that is reported: eager does not depend on the commit of Inductor.
_EAGER_PART = 0.02
#: The smallest change of an eager run for which the report asks "another model?": few hosts are slower by so much.
_ANOTHER_MODEL = 0.2
#: The smallest change of the share of the roof that is reported.
_ROOF_POINTS = 0.02


def evidence_of(conn: Connection, row: CellComparison) -> tuple[str, ...]:
    """Return a line for each difference between the two measurements of a compared cell, and for each doubt about them."""
    sides = row.base, row.new
    base, new = (details_behind(conn, state) for state in sides)
    options = [(program(conn, state.program_id) if state.program_id else None) or {} for state in sides]
    code = _code_changes(conn, row)
    lines = [
        *_failure(row.new),
        *_explained(new),
        *_margin(row, new),
        *_memory(row, base, new),
        *filter(None, [host_words(host_parts(base, new))]),
        *_count_changes(row),
        *_reason_changes(base, new),
        *([f"generated code: {code.words}"] if code else []),
        *_kernel_changes(base, new, code),
        *(_tuning_changes(base, new, code) if code else []),
        *_option_changes(*options),
        *eager_lines(row),
        *_roof_change(row),
        *(["measured on another testbed"] if row.testbed_changed else []),
        *_throttled(base, new),
        *_disturbed(base, new),
        *_weakly_checked(row, base, new),
        *_judged_otherwise(row, base, new),
    ]
    return tuple(lines) or ("nothing that is recorded of the two measurements differs but their times",)


def _failure(new: CellState) -> list[str]:
    """Return a line on why the new side did not pass, if a reason is known."""
    if new.passes:
        return []
    parts = [part for part in (new.stage, new.exception, new.message) if part is not None]
    line = ": ".join(parts) + (f" ({new.hint})" if new.hint is not None else "") if parts else ""
    return [" ".join(line.split())] if line else []  # a compiler's message has many lines


def _explained(new: Mapping[str, Any]) -> list[str]:
    """Return the explanation that `inductor-watch explain` found for the new side, if any."""
    explanation = Explanation.of(new)
    return [str(explanation)] if explanation else []


def _count_changes(row: CellComparison) -> list[str]:
    differing = count_differences(row.base.values, row.new.values)
    return [f"{COUNTS[name]}: {base:.0f} -> {new:.0f}" for name, (base, new) in differing.items()]


def _margin(row: CellComparison, details: Mapping[str, Any]) -> list[str]:
    """Return a line on an error of new that came near its limit, with its tensor."""
    if not (row.passes and near_limit(row.base, row.new)):
        return []
    base, new = (value(MARGIN, state.values.get(MARGIN)) for state in (row.base, row.new))
    of = f" of {details[NEAREST]}" if NEAREST in details else ""
    return [f"error over its limit{of}: {base} -> {new}, above 1 the cell fails"]


def _memory(row: CellComparison, base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the parts of memory that changed by an amount that matters to the peak."""
    least = MIN_EFFECT[_PEAK] * max(state.values.get(_PEAK) or 0.0 for state in (row.base, row.new))
    return _first(memory_words(base, new, least), "changes of memory") if least else []


def _throttled(*details: Mapping[str, Any]) -> list[str]:
    """Return a line on the causes that kept the GPU's clocks down on either side, which changes its times."""
    why = [(side, throttled_by(of_side)) for side, of_side in zip(_SIDES, details, strict=True)]
    sides = [f"{side} was measured ({', '.join(words).replace('_', ' ')})" for side, words in why if words]
    return [f"the GPU was held back while {' and '.join(sides)}: its clock is part of the times"] if sides else []


def _disturbed(*details: Mapping[str, Any]) -> list[str]:
    """Return a line for each side that shared the GPU with another process (`jobs.pool.usage`)."""
    reasons = [(side, of_side.get("disturbed")) for side, of_side in zip(_SIDES, details, strict=True)]
    return [f"the measurement of {side} was disturbed: {reason}" for side, reason in reasons if reason]


def _weakly_checked(row: CellComparison, *details: Mapping[str, Any]) -> list[str]:
    """Return a line for each side whose pass no reference confirms, but none for an unchecked base whose new passes."""
    states = row.base, row.new
    statuses = [(side, str(state.status), of) for side, state, of in zip(_SIDES, states, details, strict=True)]
    told = [one for one in statuses if not (row.passes and is_unchecked(one[2]))]
    return [f"{side}: {words}" for side, status, of_side in told if (words := status_words(status, of_side)) != status]


def _judged_otherwise(row: CellComparison, *details: Mapping[str, Any]) -> list[str]:
    """Return a line on PyTorch's own accuracy check for each side whose status differs from it."""
    sides = zip(_SIDES, (row.base, row.new), details, strict=True)
    return [
        f"PyTorch's own check of {side}: {of_side.get(PYTORCH_CHECK, 'other words are not kept')}; here {state.status}"
        for side, state, of_side in sides
        if state.is_judged_otherwise
    ]


def _reason_changes(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    lines: dict[str, list[str]] = {}
    for one in reason_differences(base, new):
        head = "new reason" if one.side == "after" else "no longer a reason"
        lines.setdefault(f"{head} of a {one.what}", []).append(one.text)
    return [f"{head}: {text}" for head, texts in lines.items() for text in texts[:_MOST]]


def _code_changes(conn: Connection, row: CellComparison) -> CodeChanges | None:
    """Return the changes of the generated code; None where a side has none."""
    before, after = row.base.code_id, row.new.code_id
    known = codes(conn, [before, after]) if before and after else {}
    return changes(known[before], known[after]) if before in known and after in known else None


def _kernel_changes(base: Mapping[str, Any], new: Mapping[str, Any], code: CodeChanges | None) -> list[str]:
    """Return the kernels whose time changed, with their share if they explain the change of device time."""
    groups = compared_kernels(base, new, code)
    parts = {part.name: part.part for part in explained(base, new, code)}
    total = max(sum(one.base_ms or 0.0 for one in groups), sum(one.new_ms or 0.0 for one in groups))
    least = max(_LEAST_PART * total, 1e-9)
    changed = [one for one in groups if one.name != REST and abs(one.change_ms) >= least]
    lines = [_kernel(one, parts.get(one.name, "")) + _source(one.lines(base, new)) for one in changed]
    return _first(lines, "kernels")


def _source(lines: Sequence[str]) -> str:
    return f", from {places(lines)}" if lines else ""


def _tuning_changes(base: Mapping[str, Any], new: Mapping[str, Any], code: CodeChanges) -> list[str]:
    """Return the kernels with unchanged code for which autotuning chose another configuration."""
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
    """Return lines on the eager runs of the same two processes; empty where they moved by less than 2 %."""
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


def _roof_change(row: CellComparison) -> list[str]:
    """Return a line on the kernels' share of the roof, if it changed by at least two percentage points."""
    base, new = (state.values.get("roof_share") for state in (row.base, row.new))
    if base is None or new is None or abs(new - base) < _ROOF_POINTS:
        return []
    return [f"kernels: {100 * base:.0f} % -> {100 * new:.0f} % of the roof that a plain copy and product set"]


#: The outcomes for which a report's verdict is a failure, as `gate`'s by default.
FAIL_ON = frozenset({"regressed", "broke", "missing"})
#: The order in which cells are shown; unchanged cells are only counted.
ORDER = (
    *(Outcome.REGRESSED, Outcome.BROKE, Outcome.MISSING, Outcome.FLAKY, Outcome.IMPROVED, Outcome.FIXED),
    *(Outcome.INCONCLUSIVE, Outcome.STILL_FAILING, Outcome.ENVIRONMENT_CHANGED),
)
#: Verdicts of findings with evidence beside them, and most cells with evidence: reading it takes a few queries for each.
EXPLAINED = (Outcome.REGRESSED, Outcome.BROKE, Outcome.IMPROVED)
_MOST_EXPLAINED = 200
#: The averages of the table of suites and their titles: compression is eager over compiled peak memory.
SHOWN = {name: METRICS[name].title for name in ("speedup", "compile_cold_s", "compression")}


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A finding of a cell that is not unchanged, with the dashboard's page of the cell and the command that measures it.

    A cell that changed in several dimensions has a row for each; `evidence` is beside the first of them.
    """

    compared: CellComparison
    finding: Finding
    link: str
    repro: str
    evidence: tuple[str, ...] = ()

    @property
    def cell(self) -> str:
        """The name of the cell."""
        return str(self.compared.cell)

    @property
    def base(self) -> float | None:
        """The value of base, in the metric's unit."""
        return self.compared.base.values.get(self.finding.metric or "")

    @property
    def new(self) -> float | None:
        """The value of new, in the metric's unit."""
        return self.compared.new.values.get(self.finding.metric or "")


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison with its verdicts, and their meaning in words.

    `rows` are in the order of `ORDER`, the largest change of each kind first. `exit_code` and `reason` are those of `gate`.
    `links` and `repros` have the dashboard's page and the command of every compared cell, by cell_id; empty texts where there
    is none.
    """

    comparison: Comparison
    sentence: str
    exit_code: int
    reason: str
    link: str
    rows: tuple[ReportRow, ...]
    again: Again
    links: Mapping[str, str]
    repros: Mapping[str, str]

    @property
    def across(self) -> tuple[str, str] | None:
        """The base and the new config where two configs of one side are compared."""
        return self.comparison.configs

    @property
    def counts(self) -> dict[str, int]:
        """The number of cells of each outcome."""
        return self.comparison.counts()

    @property
    def dimensions(self) -> list[str]:
        """A line for each dimension: the number of cells of each verdict, and the cells that changed most."""
        return dimension_lines(self.comparison)

    @property
    def suites(self) -> tuple[SuiteChange, ...]:
        """The groups in which both sides measured a cell, in the order of their names."""
        return tuple(suite for suite in self.comparison.suites if suite.base.measured and suite.new.measured)

    @property
    def in_common(self) -> bool:
        """Return whether any cell is expected on both sides."""
        return self.comparison.in_common

    @property
    def again_command(self) -> str:
        """The command that measures again the cells that this report names, without cells that its filters left out."""
        filters = self.comparison.filters
        sides = [fixed_side(self.comparison.base), fixed_side(self.comparison.new)]
        if filters == EVERYTHING:
            return shlex.join(["inductor-watch", "run", "--again", *sides])
        named = {"--suite": filters.suites, "--model": filters.models, "--phase": filters.phases}
        named |= {"--dtype": filters.dtypes, "--device": filters.devices, "--config": filters.configs}
        words = [word for option, values in named.items() for value in values for word in (option, value)]
        report = shlex.join(["inductor-watch", "report", *sides, *words, "--again-plan", "again.json"])
        return f"{report}\ninductor-watch run --again again.json"

    def of(self, outcome: Outcome) -> tuple[ReportRow, ...]:
        """Return the findings of one verdict."""
        return tuple(row for row in self.rows if row.finding.verdict is outcome)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys: the comparison's with its verdicts, and the keys that this report adds."""
        document = self.comparison.to_json()
        evidence = {row.compared.cell.cell_id: list(row.evidence) for row in self.rows if row.evidence}
        for cell in document["cells"]:
            cell_id = cell["cell_id"]
            cell |= {"link": self.links[cell_id], "repro": self.repros[cell_id], "evidence": evidence.get(cell_id, [])}
        measured = {suite.group for suite in self.suites}
        for entry, suite in zip(document["suites"], self.comparison.suites, strict=True):
            changes = {name: suite.changes[name] for name in SHOWN} if suite.group in measured else {}
            entry["intervals"] = {name: one and one.interval and asdict(one.interval) for name, one in changes.items()}
        own = {name: getattr(self, name) for name in ("sentence", "exit_code", "reason", "link", "across")}
        return {**own, **document, "again": self.again.to_json()}


def build_report(
    conn: Connection,
    base: str,
    new: str,
    filters: CellFilter,
    dashboard: str = "",
    configs: tuple[str, str] | None = None,
    against: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """Compare and judge two sides, or two configs of one, and gather the facts of a report; see `compare_named`.

    `dashboard` is the address that links begin with.
    """
    comparison = compare_named(conn, base, new, filters, configs, against)
    sides, names = (comparison.base, comparison.new), [one.cell for one in comparison.cells]
    requests = configs_of(conn, {name.config_id for name in names})
    links = {name.cell_id: cell_link(dashboard, *sides, name, configs) if dashboard else "" for name in names}
    repros = {one.cell.cell_id: _repro(comparison, one, requests) for one in comparison.cells}
    lacking, obstacle = comparison.without_base, comparison.obstacle
    exit_code, reason = decide(comparison.counts(), FAIL_ON, without_base=lacking, obstacle=obstacle)
    return Report(
        comparison=comparison,
        sentence=_sentence(comparison, exit_code, reason),
        exit_code=exit_code,
        reason=reason,
        link=comparison_link(dashboard, *sides, configs) if dashboard else "",
        rows=_rows(conn, comparison, links, repros),
        # More runs of two sides settle what is open between them. Two configs of one side have no two sides to measure again.
        again=NOTHING_AGAIN if configs else find_again(comparison, requests),
        links=links,
        repros=repros,
    )


def _sentence(comparison: Comparison, exit_code: int, reason: str) -> str:
    """Return the verdict on the whole, with the reason where too little was measured to decide."""
    if exit_code != 3:
        return sentence(comparison)
    if any(claim.verdict in WORSE for claim in claims(comparison)):
        return f"{reason}. {sentence(comparison)}"
    return f"Nothing can be said of new against base: {reason}."


def _repro(comparison: Comparison, one: CellComparison, requests: Mapping[str, Config]) -> str:
    """Return the command that measures a cell as new did, or as base did if new did not; empty for an unreadable config."""
    if one.cell.config_id not in requests:
        return ""
    state = one.new if one.new.run_id else one.base
    runs = {run.run_id: run for side in (comparison.base, comparison.new) for run in side.runs}
    used = comparison.environments.get(state.environment_id or "", {})
    return repro_as(cell_of(one.cell, requests), runs.get(state.run_id or ""), used)


def _rows(
    conn: Connection, comparison: Comparison, links: Mapping[str, str], repros: Mapping[str, str]
) -> tuple[ReportRow, ...]:
    rows: list[ReportRow] = []
    explained: set[str] = set()
    for one, finding in comparison.ranked_findings(ORDER):
        cell_id = one.cell.cell_id
        evidence: tuple[str, ...] = ()
        if finding.verdict in EXPLAINED and cell_id not in explained and len(explained) < _MOST_EXPLAINED:
            explained.add(cell_id)
            evidence = evidence_of(conn, one)
        rows.append(ReportRow(one, finding, links[cell_id], repros[cell_id], evidence))
    return tuple(rows)
