"""Printed tables of a comparison: suites, changed statuses, the verdict and the largest changes; and of a single side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from analysis.compare.cell_comparison import CellComparison, Finding, Outcome
from analysis.compare.compare_sides import SideSummary
from analysis.compare.comparison import Comparison
from analysis.compare.suite_groups import Figure, Group, PairedFigure
from analysis.present import (
    NOTHING,
    called,
    describe_side,
    dimension_lines,
    interval,
    measured_words,
    noise_line,
    pass_rate,
    percent,
    remarks,
    sentence,
    value,
)
from collector.metrics import METRICS
from collector.vocabulary import batch_word
from db.queries.side_rows import CellState
from jobs.output.tables import FittingTable, say

#: Columns of the suite tables: metric, heading, digits.
_FIGURES = (
    ("speedup", "speedup x", 2),
    ("device_speedup", "device speedup x", 2),
    ("compile_cold_s", "cold compile s", 1),
    ("compression", "compression x", 2),
)
#: Outcomes of cells whose status is printed in a line each.
_TURNED = (Outcome.BROKE, Outcome.FLAKY, Outcome.FIXED, Outcome.MISSING, Outcome.STILL_FAILING)
#: Findings of cells that pass on both sides, in the order of their tables.
_LISTED = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED, Outcome.UNCHANGED)
#: Up to so many missing cells are named one by one.
_NAMED = 20


def show_summary(out: Console, summary: SideSummary) -> None:
    """Print the table of a single side: pass rate and averages per suite and config, then the cells that did not pass."""
    say(out, describe_side(summary.side))
    headings = ("suite", "phase", "config", "pass rate", *(heading for _, heading, _ in _FIGURES))
    table = FittingTable(headings, folded=("phase", "config"), needed="speedup x")
    for suite in summary.suites:
        figures = [_number(suite.figures[name], digits) for name, _, digits in _FIGURES]
        table.add_row(*_group(suite.group), pass_rate(suite.counts), *figures)
    out.print(table)
    _say_notes(out, summary.notes)
    for state in summary.cells:
        if state.status is not None and not state.passes:
            say(out, f"{state.status:<18} {_name(state)}")
    _say_missing(out, [state for state in summary.cells if state.status is None], "missing")


def show_comparison(out: Console, comparison: Comparison, limit: int) -> None:
    """Print the verdict, the suites, the cells whose status changed, then each change, the worst and largest first."""
    say(out, f"base  {describe_side(comparison.base)}")
    say(out, f"new   {describe_side(comparison.new)}")
    if comparison.counts():
        say(out, sentence(comparison))
    for line in dimension_lines(comparison):
        say(out, f"  {line}")
    _say_notes(out, comparison.notes)
    for item in comparison.environment:
        values = (", ".join(side) or "nothing" for side in (item.base, item.new))
        say(out, f"environment: {item.key}: {' -> '.join(values)}")
    out.print(_suites(comparison))
    for one in sorted(comparison.of(*_TURNED), key=lambda one: _TURNED.index(one.outcome)):
        say(out, f"{called(one.outcome):<14} {one.cell}: {one.base.status} -> {one.new.status or 'missing'}")
    absent = [one.new for one in comparison.of(Outcome.MISSING_IN_BOTH)]
    _say_missing(out, absent, called(Outcome.MISSING_IN_BOTH))
    if not comparison.counts():
        say(out, "no cell passes on both sides: nothing to compare in time")
        return
    say(out, noise_line(comparison))
    findings = comparison.ranked_findings(_LISTED)
    counts = Counter(finding.verdict for _, finding in findings)
    cells = Counter(verdict for verdict, _ in {(finding.verdict, one.cell) for one, finding in findings})
    common = _common(comparison)
    for verdict, rows in groupby(findings[:limit], key=lambda row: row[1].verdict):
        shown = list(rows)
        cut = f", the first {len(shown)} of them (--limit shows more)" if len(shown) < counts[verdict] else ""
        among = f" in {cells[verdict]} cells" if cells[verdict] < counts[verdict] else ""
        say(out, f"{called(verdict)}: {counts[verdict]}{among}{cut}{f'; all are {common}' if common else ''}")
        out.print(_cells(shown, verdict, with_config=not common))
    left = {
        verdict: count for verdict, count in counts.items() if verdict not in {f.verdict for _, f in findings[:limit]}
    }
    if left:
        say(
            out,
            f"not shown: {', '.join(f'{count} {called(word)}' for word, count in left.items())} (--limit shows more)",
        )


def _suites(comparison: Comparison) -> FittingTable:
    headings = ("suite", "phase", "config", "pass rate", "paired", *(heading for _, heading, _ in _FIGURES))
    # Device time is less noisy than latency; some suites have none.
    is_timed = any(suite.figures["device_speedup"].n for suite in comparison.suites)
    speedups = ("speedup x", "device speedup x")
    noisy, needed = speedups if is_timed else speedups[::-1]
    spare = ("paired", noisy, "compression x", "cold compile s", "pass rate")
    table = FittingTable(headings, spare, folded=("phase", "config"), needed=needed)
    for suite in comparison.suites:
        name, phase, config = _group(suite.group)
        shown = config if config == suite.base_config else f"{suite.base_config} -> {config}"
        rates = " -> ".join(dict.fromkeys((pass_rate(suite.base), pass_rate(suite.new))))
        figures = [_pair(suite.figures[metric], digits) for metric, _, digits in _FIGURES]
        table.add_row(name, phase, shown, rates, str(suite.figures["speedup"].n), *figures)
    return table


def _common(comparison: Comparison) -> str:
    """Return device and config if all cells have them in common; empty if they differ, or if there is only one cell."""
    names = [(one.cell.device, one.cell.config) for one in comparison.cells]
    return " ".join(names[0]) if len(names) > 1 and len(set(names)) == 1 else ""


def _cells(rows: Sequence[tuple[CellComparison, Finding]], verdict: Outcome, *, with_config: bool) -> FittingTable:
    """Return a table with a row for each finding, by the metric that shows it best."""
    # Bundles of earlier versions have no code.
    code = ("code",) if any(one.code for one, _ in rows) else ()
    open_ones = ("settled by",) if verdict is Outcome.INCONCLUSIVE else ("beside",)
    # The column that says so is the first that a narrow terminal leaves out.
    change = "adjusted" if any(measured_words(one, finding.judged) for one, finding in rows) else "change"
    headings = ("cell", "by", "base", "new", change, "95 %", *open_ones, *code)
    table = FittingTable(headings, spare=("code", "beside"), folded=("by", "settled by"))
    for one, finding in rows:
        metric, judged = finding.metric, finding.judged
        table.add_row(
            str(one.cell) if with_config else _short(one),
            METRICS[metric].title if metric else NOTHING,
            value(metric, one.base.values.get(metric or "")),
            value(metric, one.new.values.get(metric or "")),
            percent(judged.shown if judged else None),
            interval(judged.low, judged.high).replace(" .. ", "..").removesuffix(" %") if judged else NOTHING,
            remarks(one, finding) or NOTHING,
            *([one.code or NOTHING] if code else []),
        )
    return table


def _short(one: CellComparison) -> str:
    name = one.cell
    return f"{name.suite}/{name.model} {name.phase} {name.dtype} {batch_word(name.batch_size)}"


def _group(group: Group) -> tuple[str, str, str]:
    return group.suite, f"{group.phase} {group.dtype}", group.config


def _number(figure: Figure, digits: int) -> str:
    return NOTHING if figure.value is None else f"{figure.value:.{digits}f}"


def _pair(figure: PairedFigure, digits: int) -> str:
    shown = _arrow(figure.base, figure.new, digits)
    return shown if shown == NOTHING or figure.ratio is None else f"{shown} {percent(figure.ratio - 1)}"


def _arrow(base: float | None, new: float | None, digits: int) -> str:
    return NOTHING if base is None or new is None else f"{base:.{digits}f} -> {new:.{digits}f}"


def _name(state: CellState) -> str:
    cell = state.cell
    return f"{cell.suite}/{cell.model} {cell.phase} {cell.dtype} {cell.config}" if cell else NOTHING


def _say_notes(out: Console, notes: Sequence[str]) -> None:
    for note in notes:
        say(out, f"note: {note}")


def _say_missing(out: Console, missing: Sequence[CellState], words: str) -> None:
    """Print a few missing cells by name, or only their number by config if there are many, as after a night out of time."""
    if len(missing) > _NAMED:
        counts = Counter(state.cell.config for state in missing if state.cell)
        of_configs = ", ".join(f"{config} {count}" for config, count in counts.items())
        say(out, f"{words:<18} {len(missing)} cells: {of_configs}")
        return
    for state in missing:
        say(out, f"{words:<18} {_name(state)}")
