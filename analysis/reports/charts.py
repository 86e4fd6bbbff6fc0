"""The pictures of a report: its cells and its suites, each change with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from analysis.compare.verdicts import Outcome
from analysis.reports.facts import CellFacts, Report
from analysis.reports.forest import ON_PAPER, Line, Look, Mark, draw
from analysis.reports.suites import SHOWN, AverageFacts, SuiteFacts
from analysis.reports.words import WORDS, percent
from collector.metrics import METRICS

#: Lines of a picture: more would not be read.
MOST = 40
_LOOKS: dict[str, Look] = {Outcome.REGRESSED.value: "bad", Outcome.IMPROVED.value: "good"}
#: What the first picture shows, in this order.
_DRAWN = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED)


def changes_chart(report: Report, colors: Mapping[str, str] = ON_PAPER) -> str:
    """Of each cell that is not unchanged the change and its 95 % interval, the worst first; empty where none has one."""
    cells = [cell for outcome in _DRAWN for cell in report.of(outcome) if cell.change is not None and cell.metric]
    if not cells:
        return ""
    left = f"; the first {MOST} of {len(cells)} cells" if len(cells) > MOST else ""
    notes = [_sides(report), f"change from base to new and its 95 % interval{left}; filled where it is known"]
    return draw(report.sentence, notes, ["smaller  |  larger"], [_cell(cell) for cell in cells[:MOST]], colors)


def suites_chart(report: Report, colors: Mapping[str, str] = ON_PAPER) -> str:
    """Of each suite and config the change of its averages over the cells that pass twice; empty where there is none."""
    suites = [suite for suite in report.suites if any(found.change is not None for found in suite.averages.values())]
    if not suites:
        return ""
    left = f"; the first {MOST} of {len(suites)}" if len(suites) > MOST else ""
    notes = [_sides(report), f"averages over the cells that pass on both sides, 95 % interval over models{left}"]
    lines = [_suite(suite) for suite in suites[:MOST]]
    return draw("Suites: change from base to new", notes, list(SHOWN.values()), lines, colors)


#: The pictures by the names that the command line knows them by.
CHARTS: dict[str, Callable[[Report], str]] = {"changes": changes_chart, "suites": suites_chart}


def _sides(report: Report) -> str:
    if report.across:
        return f"base {report.across[0]}, new {report.across[1]}, of {report.new.title}"
    return f"base {report.base.title}, new {report.new.title}"


def _cell(cell: CellFacts) -> Line:
    by = WORDS[cell.metric] if cell.metric else ""
    said = f"{percent(cell.change)} {by}, {cell.verdict.replace('_', ' ')}"
    look = _LOOKS.get(cell.verdict, "calm")
    return Line(cell.cell, (Mark(cell.change or 0.0, cell.low, cell.high, look, said),))


def _suite(suite: SuiteFacts) -> Line:
    group = suite.group
    name = f"{group.suite} {group.phase} {group.dtype} {group.device} {group.config}"
    return Line(name, tuple(_averages(suite)))


def _averages(suite: SuiteFacts) -> Iterable[Mark | None]:
    for metric in SHOWN:
        found = suite.averages[metric]
        if found.change is None:
            yield None
            continue
        within = found.interval
        low, high = (within.low - 1, within.high - 1) if within else (None, None)
        # Ratios are formed on one machine, times are not.
        comparable = suite.one_machine or METRICS[metric].unit == "x"
        look = average_look(metric, found) if comparable else "calm"
        yield Mark(found.change, low, high, look, percent(found.change))


def average_look(metric: str, found: AverageFacts) -> Look:
    """Good or bad where the interval over models excludes no change, else neither."""
    if found.change is None or found.interval is None or not found.interval.excludes_none:
        return "calm"
    return "good" if (found.change > 0) is (METRICS[metric].better == "higher") else "bad"
