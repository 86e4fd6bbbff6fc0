"""The answer of a check: the comparison of its sides, and how it came about."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from analysis.compare.cell_comparison import CellComparison, Outcome
from analysis.compare.cell_verdicts import decide
from analysis.reports.facts import Report, build_report
from analysis.reports.markdown_report import code
from analysis.rerun import NOTHING_AGAIN, as_check
from db.engine import open_store
from db.queries.cells import EVERYTHING
from db.store_errors import counted
from jobs.checking.rounds import OF_COMPILING, SETTLED, Check, Need, has_same_code, is_unconfirmed
from jobs.output.terminal import the_first

#: Counts whose rise is told in words before all else.
_COUNTED = {
    "graph_breaks": "graph breaks",
    "cudagraph_skips": "skipped cudagraphs",
    "recompiles": "recompilations",
    "fallbacks": "fallbacks",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a check went: cells by what was done with them, the files that differ, and what the exit code says.

    `census` cells were decided by their generated code before anything was measured. `against` are the options that new has,
    where the sides differ by these.
    """

    exit_code: int
    reason: str
    cells: int
    census: int
    same_code: int
    timed: int
    open: int
    files: int
    acting: tuple[str, ...]
    rounds: int
    minutes: float
    interrupted: bool
    against: str = ""

    def lines(self) -> list[str]:
        """For a person, a sentence each."""
        differ = f"new is base with {self.against}" if self.against else f"files of torch that differ: {self.files}"
        lines = [differ]
        if self.acting:
            names = the_first(self.acting)
            lines.append(f"every cell is timed, since these act when a compiled program runs: {names}")
        if self.census:
            lines.append(f"the census decided {counted(self.census, 'cell')} before anything was measured")
        lines.append(
            f"{counted(self.cells, 'cell')}: {self.same_code} with the same code and not timed, {self.timed} timed, "
            f"{self.open} not decided; {counted(self.rounds, 'round')} in {self.minutes:.1f} min"
        )
        if self.interrupted:
            lines.append("interrupted: this is what was measured until then")
        return [*lines, f"check: {self.reason}"]

    def markdown(self) -> str:
        """The same below a report."""
        return "\n".join(["", "### How it was checked", "", *(f"- {code(line, 1000)}" for line in self.lines()), ""])

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return asdict(self) | {"acting": list(self.acting)}


def build_answer(
    check: Check, files: Sequence[str], fail_on: frozenset[str], minutes: float, interrupted: bool, dashboard: str = ""
) -> tuple[Report, Answer]:
    """The report on both nights, and how it came about. Raises `SideError` where a side has no run."""
    with open_store(check.storage.database, write=False).connect() as connection:
        nights = (check.base.night, check.new.night)
        report = build_report(connection, *nights, EVERYTHING, dashboard, against=check.against)
    report = _with_commands(report, check)
    check.judge()
    needs = check.needs()
    exit_code, reason = _decide(check, report.counts, fail_on)
    cells = report.comparison.cells
    is_timed = ["compiled_ms" in one.base.values and "compiled_ms" in one.new.values for one in cells]
    same = sum(has_same_code(one) and not timed for one, timed in zip(cells, is_timed, strict=True))
    return report, Answer(
        exit_code=exit_code,
        reason=reason,
        cells=len(needs),
        census=len(check.same_code),
        same_code=same,
        timed=sum(is_timed),
        open=sum(word not in SETTLED for word in needs.values()),
        files=len(files),
        acting=tuple(check.acting),
        rounds=check.rounds,
        minutes=round(minutes, 2),
        interrupted=interrupted,
        against=check.other.text if check.other else "",
    )


def _decide(check: Check, counts: Mapping[str, int], fail_on: frozenset[str]) -> tuple[int, str]:
    """The exit code of `gate` and its reason, with three differences.

    Cells of equal code, which are unchanged anyhow, decide nothing. A change of compile time in too few rounds fails nothing.
    A rise of a count is named in words.
    """
    rows = check.rows.values()
    unconfirmed = [
        row
        for cell_id, row in check.rows.items()
        if row.outcome.verdict in fail_on and is_unconfirmed(row, check.compiled[cell_id])
    ]
    confirmed = Counter(counts) - Counter(row.outcome.value for row in unconfirmed)
    exit_code, reason = decide({**confirmed, "unchanged": confirmed["unchanged"] + len(unconfirmed)}, fail_on)
    rises = [line for name, words in _COUNTED.items() if (line := _more(rows, name, words))]
    if rises and Outcome.REGRESSED in fail_on:
        told = sum(row.outcome is Outcome.REGRESSED and row.metric in _COUNTED for row in rows)
        beside = decide(confirmed - Counter({Outcome.REGRESSED.value: told}), fail_on)
        return 1, "; ".join([*rises, *([beside[1]] if beside[0] == 1 else [])])
    if exit_code:
        return exit_code, reason
    if unconfirmed:
        return 3, f"compile time changed in {counted(len(unconfirmed), 'cell')}, not yet confirmed: raise --minutes"
    others = [row.outcome for row in check.rows.values() if check.acting or not has_same_code(row)]
    undecided = others.count(Outcome.INCONCLUSIVE)
    longer = sum(word is Need.COMPILE and _is_longer(check.rows[cell_id]) for cell_id, word in check.needs().items())
    if longer:
        return 3, f"compile time is longer in {counted(longer, 'cell')}, not decided: raise --minutes"
    if counts.get("missing"):
        return 3, f"{counted(counts['missing'], 'cell')} not measured in time: raise --minutes"
    if untimed := sum(not row.passes and row.outcome is Outcome.INCONCLUSIVE for row in rows):
        return 3, f"{counted(untimed, 'cell')} with other code not timed: raise --minutes"
    if counts.keys() == {"still_failing"}:
        return 3, "no cell passes on either side"
    if undecided and undecided == len(others):
        return 3, f"{counted(undecided, 'cell')} to time and none of them decided: raise --minutes"
    return 0, f"{reason}; {counted(undecided, 'cell')} not decided" if undecided else reason


def _is_longer(row: CellComparison) -> bool:
    return any(name in row.judged and (row.judged[name].change or 0) > 0 for name in OF_COMPILING)


def _more(rows: Iterable[CellComparison], name: str, words: str) -> str:
    """`2 cells have more graph breaks (0 -> 6)`; empty where none has. The verdict is from `analysis.compare.cell_verdicts`."""
    regressed = [row for row in rows if name in row.judged and row.judged[name].verdict is Outcome.REGRESSED]
    worse = [(row.base.values[name], row.new.values[name]) for row in regressed]
    if not worse:
        return ""
    before, after = max(worse, key=lambda pair: pair[1] - pair[0])
    verb = "has" if len(worse) == 1 else "have"
    return f"{counted(len(worse), 'cell')} {verb} more {words} ({before:.0f} -> {after:.0f})"


def _with_commands(report: Report, check: Check) -> Report:
    """The report with this command in place of `run`, which would measure the installed torch, and base's configs in it."""
    command = shlex.join(["inductor-watch", "check", *check.sides_words])
    configs = {
        check.on_new[cell.cell_id].config.name: cell.config.name for cell in check.cells if cell.cell_id in check.on_new
    }

    def of_check(repro: str) -> str:
        for new, base in configs.items():
            repro = repro.replace(f"--config {shlex.quote(new)} ", f"--config {shlex.quote(base)} ")
        return as_check(repro, command)

    rows = tuple(replace(row, repro=of_check(row.repro)) for row in report.rows)
    repros = {cell_id: of_check(repro) for cell_id, repro in report.repros.items()}
    return replace(report, rows=rows, repros=repros, again=NOTHING_AGAIN)
