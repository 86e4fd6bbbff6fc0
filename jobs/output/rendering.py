"""Comparisons and summaries as tables on a terminal; numbers only, units in the headings, `-` for "not measured"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Console

from analysis.compare.tables import Comparison, Figure, PairedFigure, SideSummary, Transition, percent, summarise
from analysis.compare.verdicts import Judgement
from analysis.reports.words import describe_side, pass_rate
from db.engine import open_store
from db.queries.sides import resolve_side
from jobs.output.tables import NOTHING, add_row, console, make_table, plain, signed
from jobs.output.verdict_table import show_verdicts

#: Columns of the suite tables: metric, heading, digits.
_FIGURES = (
    ("speedup", "speedup x", 2),
    ("device_speedup", "device x", 2),
    ("compile_cold_s", "compile s", 1),
    ("compression", "compression x", 2),
)
#: Missing cells up to this many are named one by one.
_NAMED = 20


def print_summary(database: str, side_text: str) -> None:
    """Prints one side's suites and what failed there."""
    with open_store(database, write=False).connect() as connection:
        show_summary(console(), summarise(connection, resolve_side(connection, side_text)))


def show_summary(out: Console, summary: SideSummary) -> None:
    """The table of a single side: pass rate and averages per suite and config, then the cells that did not pass."""
    out.print(plain(f"{describe_side(summary.side)}"), soft_wrap=True)
    table = make_table("suite", "phase", "config", "pass rate", *(heading for _, heading, _ in _FIGURES))
    for suite in summary.suites:
        group = suite.group
        figures = [_number(suite.figures[name], digits) for name, _, digits in _FIGURES]
        add_row(table, group.suite, _phase(group.phase, group.dtype), group.config, pass_rate(suite.counts), *figures)
    out.print(table)
    _print_notes(out, summary.notes)
    _print_failures(out, summary.cells)


def show_comparison(out: Console, comparison: Comparison, judgement: Judgement, limit: int) -> None:
    """The suites of both sides, then the cells whose status changed, then the verdicts, changes that are real first."""
    out.print(plain(f"base  {describe_side(comparison.base)}"), soft_wrap=True)
    out.print(plain(f"new   {describe_side(comparison.new)}"), soft_wrap=True)
    _print_notes(out, comparison.notes)
    for difference in comparison.environment:
        out.print(
            plain(f"environment: {difference.key}: {_joined(difference.base)} -> {_joined(difference.new)}"),
            soft_wrap=True,
        )
    headings = ("suite", "phase", "config", "pass rate", "paired", *(heading for _, heading, _ in _FIGURES))
    table = make_table(*headings, spare=("paired", "device x", "compression x", "pass rate"))
    for suite in comparison.suites:
        group = suite.group
        rates = f"{pass_rate(suite.base)} -> {pass_rate(suite.new)}"
        config = group.config if group.config == suite.base_config else f"{suite.base_config} -> {group.config}"
        paired = suite.figures["speedup"].n
        figures = [_pair(suite.figures[name], digits) for name, _, digits in _FIGURES]
        add_row(table, group.suite, _phase(group.phase, group.dtype), config, rates, str(paired), *figures)
    out.print(table)
    _print_status_changes(out, comparison)
    show_verdicts(out, comparison, judgement, limit)


def _phase(phase: str, dtype: str) -> str:
    return f"{phase} {dtype}"


def _joined(values: Sequence[str]) -> str:
    return ", ".join(values) or "nothing"


def _number(figure: Figure, digits: int) -> str:
    return NOTHING if figure.value is None else f"{figure.value:.{digits}f}"


def _pair(figure: PairedFigure, digits: int) -> str:
    if figure.base is None or figure.new is None:
        return NOTHING
    change = percent(figure.ratio)
    return f"{figure.base:.{digits}f} -> {figure.new:.{digits}f} {signed(change)}"


def _print_notes(out: Console, notes: Sequence[str]) -> None:
    for note in notes:
        out.print(plain(f"note: {note}"), soft_wrap=True)


def _print_failures(out: Console, cells: pd.DataFrame) -> None:
    failing = cells[cells["status"].notna() & (cells["status"] != "pass")]
    missing = cells[cells["status"].isna()]
    for row in failing.itertuples():
        out.print(plain(f"{row.status:<18} {_name(row)}"), soft_wrap=True)
    _print_not_reached(out, missing, "missing")


def _print_not_reached(out: Console, missing: pd.DataFrame, words: str) -> None:
    """A few missing cells by name; of many, as a night out of time leaves them, only how many of each config."""
    if len(missing) > _NAMED:
        counts = missing["config"].value_counts(sort=False)
        text = ", ".join(f"{config} {count}" for config, count in counts.items())
        out.print(plain(f"{words:<18} {len(missing)} cells: {text}"), soft_wrap=True)
        return
    for row in missing.itertuples():
        out.print(plain(f"{words:<18} {_name(row)}"), soft_wrap=True)


def _name(row: Any) -> str:
    return f"{row.suite}/{row.model} {row.phase} {row.dtype} {row.config}"


def _print_status_changes(out: Console, comparison: Comparison) -> None:
    for transition in (Transition.BROKE, Transition.FIXED, Transition.MISSING, Transition.STILL_FAILING):
        for row in comparison.with_transition(transition).itertuples():
            before, after = (
                status if isinstance(status, str) else "missing" for status in (row.status_base, row.status_new)
            )
            out.print(plain(f"{transition.replace('_', ' '):<14} {row.cell}: {before} -> {after}"), soft_wrap=True)
    _print_not_reached(out, comparison.with_transition(Transition.MISSING_IN_BOTH), "missing in both")
