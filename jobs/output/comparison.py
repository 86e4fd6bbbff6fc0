"""A comparison and a side alone on a terminal: suites, statuses that changed, verdicts, the cells that changed most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console

from analysis.compare.ranking import ranked
from analysis.compare.results import Comparison, Figure, Group, PairedFigure, SideSummary
from analysis.compare.transitions import Transition
from analysis.compare.verdicts import Judgement, Outcome
from analysis.reports.finding_lines import dimension_lines
from analysis.reports.words import (
    NOTHING,
    called,
    describe_side,
    interval,
    pass_rate,
    percent,
    ruled_out,
    tally,
    value,
)
from analysis.stats.shrinkage import FEWEST
from analysis.stats.verdicts import MOST_RUNS
from collector.metrics import METRICS
from jobs.output.tables import FittingTable, say

#: Columns of the suite tables: metric, heading, digits.
_FIGURES = (
    ("speedup", "speedup x", 2),
    ("device_speedup", "device speedup x", 2),
    ("compile_cold_s", "cold compile s", 1),
    ("compression", "compression x", 2),
)
_CHANGED = (Transition.BROKE, Transition.FIXED, Transition.MISSING, Transition.STILL_FAILING)
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
    cells = summary.cells
    for row in cells[cells["status"].notna() & (cells["status"] != "pass")].to_dict("records"):
        say(out, f"{row['status']:<18} {_name(row)}")
    _say_missing(out, cells[cells["status"].isna()], "missing")


def show_comparison(out: Console, comparison: Comparison, judgement: Judgement, limit: int) -> None:
    """The suites of both sides, then the cells whose status changed, then the verdicts, changes that are real first."""
    say(out, f"base  {describe_side(comparison.base)}")
    say(out, f"new   {describe_side(comparison.new)}")
    _say_notes(out, comparison.notes)
    for item in comparison.environment:
        values = (", ".join(side) or "nothing" for side in (item.base, item.new))
        say(out, f"environment: {item.key}: {' -> '.join(values)}")
    out.print(_suites(comparison))
    for transition in _CHANGED:
        for row in comparison.with_transition(transition).to_dict("records"):
            statuses = (_status(row["status_base"]), _status(row["status_new"]))
            say(out, f"{transition.replace('_', ' '):<14} {row['cell']}: {' -> '.join(statuses)}")
    _say_missing(out, comparison.with_transition(Transition.MISSING_IN_BOTH), "missing in both")
    counts = judgement.counts()
    if not counts:
        say(out, "no cell passes on both sides: nothing to compare in time")
        return
    say(out, f"verdicts: {tally(counts)}")
    for line in dimension_lines(comparison.cells.join(judgement.cells)):
        say(out, f"  {line}")
    say(out, _noise(judgement))
    rows = ranked(comparison, judgement).head(limit)
    if not rows.empty:
        out.print(_cells(rows.to_dict("records")))


def _suites(comparison: Comparison) -> FittingTable:
    headings = ("suite", "phase", "config", "pass rate", "paired", *(heading for _, heading, _ in _FIGURES))
    table = FittingTable(headings, spare=("paired", "device speedup x", "compression x", "pass rate"))
    for suite in comparison.suites:
        name, phase, config = _group(suite.group)
        shown = config if config == suite.base_config else f"{suite.base_config} -> {config}"
        rates = f"{pass_rate(suite.base)} -> {pass_rate(suite.new)}"
        figures = [_pair(suite.figures[metric], digits) for metric, _, digits in _FIGURES]
        table.add_row(name, phase, shown, rates, str(suite.figures["speedup"].n), *figures)
    return table


def _cells(rows: Sequence[Mapping[Any, Any]]) -> FittingTable:
    """A row for each cell, by the metric that it is ranked by."""
    values = ("base", "new", "change", "adjusted", "95 %", "ruled out", "more runs")
    # Bundles of earlier versions have no code.
    code = ("code",) if any(isinstance(row["code"], str) for row in rows) else ()
    headings = ("cell", "verdict", *code, "by", *values, "speedup x", "cold compile s")
    table = FittingTable(
        headings, spare=("cold compile s", "speedup x", "base", "new", "more runs", "ruled out", "code")
    )
    for row in rows:
        # A cell that its code decided was not timed: there is nothing to show but the verdict.
        metric = row["by"] if isinstance(row["by"], str) else "compiled_ms"
        base, new, ratio, adjusted, low, high = (
            _known(row[f"{metric}_{name}"]) for name in ("base", "new", "ratio", "adjusted", "low", "high")
        )
        table.add_row(
            str(row["cell"]),
            called(str(row["verdict"])),
            *(row[name] if isinstance(row[name], str) else NOTHING for name in code),
            METRICS[metric].title if row["by"] else NOTHING,
            value(metric, base),
            value(metric, new),
            percent(None if ratio is None else ratio - 1),
            percent(adjusted),
            interval(low, high),
            _ruled_out(row, low, high),
            _runs(row, metric),
            _arrow(_known(row["speedup_base"]), _known(row["speedup_new"]), 2),
            _arrow(_known(row["compile_cold_s_base"]), _known(row["compile_cold_s_new"]), 1),
        )
    return table


def _noise(judgement: Judgement) -> str:
    known = {name: noise for name, noise in judgement.noise.items() if noise is not None}
    own = {name: count for name, count in judgement.repeats.items() if count}
    if not known and own:
        parts = ", ".join(f"{METRICS[name].title} {count:.0f}" for name, count in own.items())
        return (
            f"noise from run to run: fewer than {FEWEST} cells have repeats, each is judged by its own (degrees of freedom: "
            f"{parts}); of a cell without any only a change by a factor of two or more is judged"
        )
    if not known:
        return (
            "noise: not known, no cell was measured twice at one commit: only statuses, leaks and what doubled or "
            "halved can be judged; measure one of the sides again"
        )
    parts = ", ".join(
        f"{METRICS[name].title} {100 * noise:.1f} % ({judgement.repeats[name]:.0f})" for name, noise in known.items()
    )
    drift = ", ".join(f"{METRICS[name].title} {percent(drift)}" for name, drift in judgement.drift.items() if drift)
    removed = f"; corrected for machine drift: {drift}" if drift else ""
    return f"noise from run to run (degrees of freedom behind it): {parts}{removed}"


def _ruled_out(row: Mapping[Any, Any], low: float | None, high: float | None) -> str:
    """How large a change is ruled out where none is clear, or that the sides were measured on two testbeds."""
    if row["verdict"] == Outcome.INCONCLUSIVE and row["testbed_changed"] is True:
        return "another testbed"
    limit = ruled_out(low, high) if row["verdict"] == Outcome.INCONCLUSIVE else ""
    return limit.removesuffix(" ruled out") or NOTHING


def _runs(row: Mapping[Any, Any], metric: str) -> str:
    """Further runs that would settle a cell without a clear change."""
    more = row[f"{metric}_more_runs"]
    if row["verdict"] != Outcome.INCONCLUSIVE or row["testbed_changed"] is True or pd.isna(more):
        return NOTHING  # on another testbed no number of runs would do
    if more == 0:
        return "at the limit"
    return f"> {MOST_RUNS}" if more == float("inf") else f"{more:.0f}"


def _group(group: Group) -> tuple[str, str, str]:
    return group.suite, f"{group.phase} {group.dtype}", group.config


def _number(figure: Figure, digits: int) -> str:
    return NOTHING if figure.value is None else f"{figure.value:.{digits}f}"


def _pair(figure: PairedFigure, digits: int) -> str:
    shown = _arrow(figure.base, figure.new, digits)
    return shown if shown == NOTHING or figure.ratio is None else f"{shown} {percent(figure.ratio - 1)}"


def _arrow(base: float | None, new: float | None, digits: int) -> str:
    return NOTHING if base is None or new is None else f"{base:.{digits}f} -> {new:.{digits}f}"


def _known(number: float) -> float | None:
    return None if pd.isna(number) else float(number)


def _status(status: Any) -> str:
    return status if isinstance(status, str) else "missing"


def _name(row: Mapping[Any, Any]) -> str:
    return f"{row['suite']}/{row['model']} {row['phase']} {row['dtype']} {row['config']}"


def _say_notes(out: Console, notes: Sequence[str]) -> None:
    for note in notes:
        say(out, f"note: {note}")


def _say_missing(out: Console, missing: pd.DataFrame, words: str) -> None:
    """A few missing cells by name; of many, as a night out of time leaves them, only how many of each config."""
    if len(missing) > _NAMED:
        counts = missing["config"].value_counts(sort=False)
        of_configs = ", ".join(f"{config} {count}" for config, count in counts.items())
        say(out, f"{words:<18} {len(missing)} cells: {of_configs}")
        return
    for row in missing.to_dict("records"):
        say(out, f"{words:<18} {_name(row)}")
