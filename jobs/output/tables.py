"""Tables on a terminal, and what is printed of a comparison and of a side alone.

Numbers are to the right, texts as they are, and no line is longer than the terminal is wide. Of a comparison the suites are
printed, the statuses that changed, the verdict and the cells that changed most.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

from analysis.compare.cell_comparison import CellComparison, Finding, Outcome
from analysis.compare.compare_sides import SideSummary
from analysis.compare.comparison import Comparison
from analysis.compare.suite_groups import Figure, Group, PairedFigure
from analysis.present import (
    NOTHING,
    beside_words,
    called,
    describe_side,
    dimension_lines,
    eager_words,
    interval,
    noise_line,
    pass_rate,
    percent,
    sentence,
    undecided_words,
    value,
)
from collector.masking import mask
from collector.metrics import METRICS, Dimension
from collector.vocabulary import batch_word
from db.queries.side_rows import CellState
from jobs.output.terminal import one_line

#: Columns of numbers whose heading names no unit.
_NUMBERS = frozenset(("paired", "pass rate", "base", "new", "change", "adjusted", "more runs", "cells", "worker-hours"))
#: Where there is little room the first column, of names, is broken into lines of this length, and columns of words of that.
_NAMES, _FOLDED = 20, 11
#: Wider than any table of ours: what goes to a file is not cut.
_UNLIMITED = 400


@dataclass
class FittingTable:
    """A table that leaves out columns where it finds no room for all, and names them: `spare` ones first, then the last.

    Columns of numbers (by the unit in their heading) are set to the right. `folded` columns of words are broken into lines
    where there is little room.
    """

    headings: Sequence[str]
    spare: Sequence[str] = ()
    folded: Sequence[str] = ()
    rows: list[list[Text]] = field(default_factory=list)

    def add_row(self, *cells: str) -> None:
        """Appends a row of texts."""
        self.rows.append([plain(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draws as many columns as fit."""
        wide = options.update(max_width=10 * _UNLIMITED)

        def fits(table: Table) -> bool:
            return console.measure(table, options=wide).maximum <= options.max_width

        if fits(self._drawn()):
            yield self._drawn()
            return
        order = [*self.spare, *(name for name in reversed(self.headings[2:]) if name not in self.spare)]
        left_out: list[str] = []
        while order and not fits(self._drawn(left_out, _NAMES, is_narrow=True)):
            left_out.append(order.pop(0))
        yield Text("")
        yield self._drawn(left_out, is_narrow=True)
        if left_out:
            names = ", ".join(name for name in self.headings if name in left_out)
            yield Text(f"left out for want of room: {names} (a wider terminal, or a larger COLUMNS, shows all)")

    def _drawn(self, left_out: Sequence[str] = (), first_width: int | None = None, *, is_narrow: bool = False) -> Table:
        """Return the columns that are not left out; the first one has at most `first_width` letters."""
        padding = (0, 0, 0, 0) if is_narrow else (0, 1, 0, 0)
        table = Table(box=box.SIMPLE_HEAD, show_edge=not is_narrow, pad_edge=False, padding=padding)
        shown = [index for index, heading in enumerate(self.headings) if heading not in left_out]
        for index in shown:
            heading, is_first = self.headings[index], index == 0
            is_number = heading.endswith((" x", " s", " ms", "%")) or heading in _NUMBERS
            is_folded = heading in self.folded
            width = first_width if is_first else _FOLDED if is_folded and first_width else None
            justify: JustifyMethod = "right" if is_number else "left"
            no_wrap = not is_first and not is_folded
            table.add_column(heading, justify=justify, no_wrap=no_wrap, overflow="fold", max_width=width)
        for row in self.rows:
            table.add_row(*(row[index] for index in shown))
        return table


def console() -> Console:
    """A console as wide as the terminal, or as COLUMNS says; what goes to a file or a pipe is not cut."""
    terminal = Console()
    return terminal if terminal.is_terminal or os.environ.get("COLUMNS", "").isdigit() else Console(width=_UNLIMITED)


def plain(line: str) -> Text:
    """A text whose brackets are no markup and whose control characters do not reach the terminal."""
    return Text(one_line(line))


def say(out: Console, line: str) -> None:
    """Print a line as it is, but for secrets; what is longer than the terminal is wide goes on in the next one."""
    out.print(plain(str(mask(line))), soft_wrap=True)


#: Columns of the suite tables: metric, heading, digits.
_FIGURES = (
    ("speedup", "speedup x", 2),
    ("device_speedup", "device speedup x", 2),
    ("compile_cold_s", "cold compile s", 1),
    ("compression", "compression x", 2),
)
#: Cells whose status is told in a line each.
_TURNED = (Outcome.BROKE, Outcome.FLAKY, Outcome.FIXED, Outcome.MISSING, Outcome.STILL_FAILING)
#: Findings of cells that pass on both sides, in the order of their tables.
_LISTED = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.ENVIRONMENT_CHANGED, Outcome.UNCHANGED)
#: Missing cells up to this many are named one by one.
_NAMED = 20


def show_summary(out: Console, summary: SideSummary) -> None:
    """The table of a single side: pass rate and averages per suite and config, then the cells that did not pass."""
    say(out, describe_side(summary.side))
    table = FittingTable(("suite", "phase", "config", "pass rate", *(heading for _, heading, _ in _FIGURES)))
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
    """The verdict, the suites, the cells whose status changed, then each change, what is worse and largest first."""
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
    # Device time is the steadier one; some suites have none.
    is_timed = any(suite.figures["device_speedup"].n for suite in comparison.suites)
    noisy = "speedup x" if is_timed else "device speedup x"
    table = FittingTable(headings, spare=("paired", noisy, "compression x", "cold compile s", "pass rate"))
    for suite in comparison.suites:
        name, phase, config = _group(suite.group)
        shown = config if config == suite.base_config else f"{suite.base_config} -> {config}"
        rates = " -> ".join(dict.fromkeys((pass_rate(suite.base), pass_rate(suite.new))))
        figures = [_pair(suite.figures[metric], digits) for metric, _, digits in _FIGURES]
        table.add_row(name, phase, shown, rates, str(suite.figures["speedup"].n), *figures)
    return table


def _common(comparison: Comparison) -> str:
    """What the names of all cells have in common; empty where they differ, or there is one cell."""
    names = [(one.cell.device, one.cell.config) for one in comparison.cells]
    return " ".join(names[0]) if len(names) > 1 and len(set(names)) == 1 else ""


def _cells(rows: Sequence[tuple[CellComparison, Finding]], verdict: Outcome, *, with_config: bool) -> FittingTable:
    """A row for each finding, by the metric that tells it best."""
    # Bundles of earlier versions have no code.
    code = ("code",) if any(one.code for one, _ in rows) else ()
    open_ones = ("settled by",) if verdict is Outcome.INCONCLUSIVE else ("beside",)
    headings = ("cell", "by", "base", "new", "change", "95 %", *open_ones, *code)
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
            _beside(one, finding, verdict) or NOTHING,
            *([one.code or NOTHING] if code else []),
        )
    return table


def _beside(one: CellComparison, finding: Finding, verdict: Outcome) -> str:
    told = undecided_words(one, finding) if verdict is Outcome.INCONCLUSIVE else beside_words(one, finding)
    eager = eager_words(one.new) if finding.dimension is Dimension.LATENCY else ""
    return ", ".join(filter(None, (told, eager)))


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
    """A few missing cells by name; of many, as a night out of time leaves them, only how many of each config."""
    if len(missing) > _NAMED:
        counts = Counter(state.cell.config for state in missing if state.cell)
        of_configs = ", ".join(f"{config} {count}" for config, count in counts.items())
        say(out, f"{words:<18} {len(missing)} cells: {of_configs}")
        return
    for state in missing:
        say(out, f"{words:<18} {_name(state)}")
