"""What a report says, as values: gathered once from a comparison and its verdicts, drawn as Markdown, HTML or JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.cell_outcome import Outcome
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import Comparison
from analysis.compare.findings import Finding
from analysis.compare.suite_groups import SuiteChange
from analysis.compare.verdicts import decide
from analysis.present import dimension_lines, sentence
from analysis.reports.again import NOTHING_AGAIN, Again, cell_of, find_again
from analysis.reports.evidence import evidence_of
from analysis.reports.permalinks import cell_link, comparison_link, fixed_side
from analysis.rerun_command import repro_as
from collector.metrics import METRICS
from collector.vocabulary import Config
from db.queries.details import configs_of
from db.queries.filters import EVERYTHING, CellFilter

#: What the sentence at the top is about, as `gate` is told by default.
FAIL_ON = frozenset({"regressed", "broke", "missing"})
#: In this order the cells are shown; those that are unchanged are counted only.
ORDER = (
    *(Outcome.REGRESSED, Outcome.BROKE, Outcome.MISSING, Outcome.FLAKY, Outcome.IMPROVED, Outcome.FIXED),
    *(Outcome.INCONCLUSIVE, Outcome.STILL_FAILING, Outcome.ENVIRONMENT_CHANGED),
)
#: Findings with evidence beside them: looking it up takes a few queries each.
EXPLAINED = (Outcome.REGRESSED, Outcome.BROKE, Outcome.IMPROVED)
_MOST_EXPLAINED = 200
#: The averages of the table of suites and what they are called: compression is eager over compiled peak memory.
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
    """A comparison with its verdicts, and what they mean in words.

    `rows` are in the order of `ORDER`, the largest change of each kind first. `exit_code` and `reason` are what `gate` would
    say. `links` and `repros` have the dashboard's page and the command of every compared cell, by cell_id; empty texts where
    there is none.
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
        """How many cells there are of each outcome."""
        return self.comparison.counts()

    @property
    def dimensions(self) -> list[str]:
        """A line for each dimension: how many cells have which verdict, and which changed most."""
        return dimension_lines(self.comparison)

    @property
    def suites(self) -> tuple[SuiteChange, ...]:
        """The groups of which both sides have measured something, in the order of their names."""
        return tuple(suite for suite in self.comparison.suites if suite.base.measured and suite.new.measured)

    @property
    def in_common(self) -> bool:
        """Whether some cell is expected on both sides."""
        return self.comparison.in_common

    @property
    def again_command(self) -> str:
        """What measures again what this report names, and nothing that its filters left out."""
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
        """The findings of one verdict."""
        return tuple(row for row in self.rows if row.finding.verdict is outcome)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys: that of the comparison with its verdicts, and what this report adds."""
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
    """Compares and judges two sides, or two configs of one, and gathers what a report says; see `compare_named`.

    `dashboard` is the address that links begin with.
    """
    comparison = compare_named(conn, base, new, filters, configs, against)
    sides, names = (comparison.base, comparison.new), [one.cell for one in comparison.cells]
    requests = configs_of(conn, {name.config_id for name in names})
    links = {name.cell_id: cell_link(dashboard, *sides, name, configs) if dashboard else "" for name in names}
    repros = {one.cell.cell_id: _repro(comparison, one, requests) for one in comparison.cells}
    exit_code, reason = decide(comparison.counts(), FAIL_ON, without_base=comparison.without_base)
    return Report(
        comparison=comparison,
        sentence=f"Nothing can be said of new against base: {reason}." if exit_code == 3 else sentence(comparison),
        exit_code=exit_code,
        reason=reason,
        link=comparison_link(dashboard, *sides, configs) if dashboard else "",
        rows=_rows(conn, comparison, links, repros),
        # More runs of two sides settle what is open between them; of two configs of one side they would be the same.
        again=NOTHING_AGAIN if configs else find_again(comparison, requests),
        links=links,
        repros=repros,
    )


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
