"""What a report says, as values: gathered once from a comparison and its verdicts, drawn as Markdown, HTML or JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import Connection

from analysis.compare.ranking import ranked
from analysis.compare.results import Comparison, plain
from analysis.compare.verdicts import Judgement, Outcome, compare_and_judge, decide, with_verdicts
from analysis.reports.again import NOTHING_AGAIN, Again, cell_of, find_again
from analysis.reports.evidence import evidence_of
from analysis.reports.finding_lines import dimension_lines
from analysis.reports.permalinks import cell_link, comparison_link, fixed_side
from analysis.reports.suites import SuiteFacts, suite_facts
from analysis.reports.words import tally
from collector.repro import repro_command
from db.errors import counted
from db.queries.details import configs_of
from db.queries.filters import EVERYTHING, CellFilter

#: What the sentence at the top is about, as `gate` is told by default.
FAIL_ON = frozenset({"regressed", "broke", "missing"})
#: In this order the cells are shown; those that are unchanged are counted only.
ORDER = (
    *(Outcome.REGRESSED, Outcome.BROKE, Outcome.MISSING, Outcome.FLAKY, Outcome.IMPROVED, Outcome.FIXED),
    *(Outcome.INCONCLUSIVE, Outcome.STILL_FAILING, Outcome.ENVIRONMENT_CHANGED),
)
#: Cells with evidence beside them: looking it up takes a few queries each.
EXPLAINED = (Outcome.REGRESSED, Outcome.BROKE, Outcome.IMPROVED)
_MOST_EXPLAINED = 200


@dataclass(frozen=True, slots=True)
class CellFacts:
    """A cell that is not unchanged. Values are in the metric's unit, changes relative (0.02 is 2 %).

    `change` is new over base, `adjusted` the same without the machine's part, `low` to `high` the 95 % interval of that.
    """

    cell: str
    cell_id: str
    config: str
    verdict: str
    metric: str | None
    base: float | None
    new: float | None
    change: float | None
    adjusted: float | None
    low: float | None
    high: float | None
    status_base: str | None
    status_new: str | None
    link: str
    repro: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison with its verdicts, and what they mean in words.

    `cells` are in the order of `ORDER`, the largest change of each kind first. `exit_code` and `reason` are what `gate` would
    say. `across` names the base and the new config where two configs of one side are compared. `links` and `repros` have
    the dashboard's page and the command of every compared cell, by cell_id; empty texts where there is none.
    """

    comparison: Comparison
    judgement: Judgement
    sentence: str
    exit_code: int
    reason: str
    link: str
    suites: tuple[SuiteFacts, ...]
    cells: tuple[CellFacts, ...]
    again: Again
    across: tuple[str, str] | None
    links: Mapping[str, str]
    repros: Mapping[str, str]

    @property
    def counts(self) -> dict[str, int]:
        """How many cells there are of each outcome."""
        return self.judgement.counts()

    @property
    def dimensions(self) -> list[str]:
        """Return a line for each dimension: how many cells have which verdict, and which changed most."""
        return dimension_lines(self.comparison.cells.join(self.judgement.cells))

    @property
    def in_common(self) -> bool:
        """Whether some cell is expected on both sides."""
        cells = self.comparison.cells
        return bool((cells["expected_base"] & cells["expected_new"]).any())

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

    def of(self, outcome: Outcome) -> tuple[CellFacts, ...]:
        """The cells of one outcome."""
        return tuple(cell for cell in self.cells if cell.verdict == outcome.value)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys: that of the comparison with its verdicts, and what this report adds."""
        document = with_verdicts(self.comparison, self.judgement)
        evidence = {cell.cell_id: list(cell.evidence) for cell in self.cells}
        for cell in document["cells"]:
            cell_id = cell["cell_id"]
            cell |= {"link": self.links[cell_id], "repro": self.repros[cell_id], "evidence": evidence.get(cell_id, [])}
        intervals = {suite.paired.group: suite.to_json() for suite in self.suites}
        for entry, suite in zip(document["suites"], self.comparison.suites, strict=True):
            entry["intervals"] = intervals.get(suite.group, {})
        own = {name: getattr(self, name) for name in ("sentence", "exit_code", "reason", "link", "across")}
        return {**own, **document, "again": self.again.to_json()}


def build_report(
    conn: Connection,
    base: str,
    new: str,
    filters: CellFilter,
    dashboard: str = "",
    configs: tuple[str, str] | None = None,
) -> Report:
    """Compares and judges two sides, or two configs of one, and gathers what a report says; see `compare_and_judge`.

    `dashboard` is the address that links begin with.
    """
    comparison, judgement = compare_and_judge(conn, base, new, filters, configs)
    sides = comparison.base, comparison.new
    rows = comparison.cells.to_dict("records")
    requests = configs_of(conn, comparison.cells["config_id"].dropna())
    links = {row["cell_id"]: cell_link(dashboard, *sides, row, configs) if dashboard else "" for row in rows}
    repros = {
        row["cell_id"]: repro_command(cell_of(row, requests)) if row["config_id"] in requests else "" for row in rows
    }
    counts = judgement.counts()
    exit_code, reason = decide(counts, FAIL_ON)
    return Report(
        comparison=comparison,
        judgement=judgement,
        sentence=_sentence(counts, exit_code, reason),
        exit_code=exit_code,
        reason=reason,
        link=comparison_link(dashboard, *sides, configs) if dashboard else "",
        suites=suite_facts(comparison, judgement),
        cells=_cells(conn, ranked(comparison, judgement, ORDER), links, repros),
        # More runs of two sides settle what is open between them; of two configs of one side they would be the same.
        again=NOTHING_AGAIN if configs else find_again(comparison, judgement, requests),
        across=configs,
        links=links,
        repros=repros,
    )


def _sentence(counts: Mapping[str, int], exit_code: int, reason: str) -> str:
    """The verdict on the whole, in one sentence."""
    bad = {word: counts[word] for word in ("regressed", "broke", "missing") if counts.get(word)}
    rest = tally({word: count for word, count in counts.items() if word not in bad})
    if exit_code == 3:
        return f"Nothing can be said of new against base: {reason}."
    if exit_code == 0:
        return f"New is no worse than base as far as this comparison can tell: {rest}."
    worse = {word: count for word, count in bad.items() if word != "missing"}
    verdict = "New is worse than base" if worse else "Not all that was planned was measured"
    return f"{verdict}: {tally(bad)}" + (
        f"; the rest: {rest}." if rest else f" of {counted(sum(bad.values()), 'cell')}."
    )


def _cells(
    conn: Connection, rows: pd.DataFrame, links: Mapping[str, str], repros: Mapping[str, str]
) -> tuple[CellFacts, ...]:
    cells: list[CellFacts] = []
    explained = 0
    for row in rows.to_dict("records"):
        is_explained = row["verdict"] in EXPLAINED and explained < _MOST_EXPLAINED
        explained += is_explained
        evidence = evidence_of(conn, row) if is_explained else ()
        cells.append(_facts(row, links[row["cell_id"]], repros[row["cell_id"]], evidence))
    return tuple(cells)


def _facts(row: Mapping[Any, Any], link: str, repro: str, evidence: Sequence[str]) -> CellFacts:
    metric = plain(row["by"])
    values: dict[str, float | None] = dict.fromkeys(("base", "new", "change", "adjusted", "low", "high"))
    if metric is not None:
        values = {name: plain(row[f"{metric}_{name}"]) for name in values}
        ratio = plain(row[f"{metric}_ratio"])
        values["change"] = None if ratio is None else ratio - 1
    return CellFacts(
        cell=str(row["cell"]),
        cell_id=str(row["cell_id"]),
        config=str(row["config"]),
        verdict=str(row["verdict"]),
        metric=metric,
        status_base=plain(row["status_base"]),
        status_new=plain(row["status_new"]),
        link=link,
        repro=repro,
        evidence=tuple(evidence),
        **values,
    )
