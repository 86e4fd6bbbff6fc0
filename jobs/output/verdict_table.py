"""The verdicts of a comparison on a terminal: how many of each, the noise behind them, the cells that changed."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.console import Console

from analysis.compare.ranking import ranked
from analysis.compare.tables import Comparison, percent
from analysis.compare.verdicts import Judgement, Outcome
from analysis.reports.words import WORDS, value
from analysis.stats.shrinkage import FEWEST
from analysis.stats.verdicts import MOST_RUNS
from jobs.output.tables import NOTHING, add_row, make_table, plain, signed


def show_verdicts(out: Console, comparison: Comparison, judgement: Judgement, limit: int) -> None:
    """Counts, noise and drift in a line each, then a row for each of the `limit` cells that changed most."""
    counts = judgement.counts()
    if not counts:
        out.print(plain("no cell passes on both sides: nothing to compare in time"))
        return
    spelled = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.items())
    out.print(plain(f"verdicts: {spelled}"), soft_wrap=True)
    out.print(plain(_noise(judgement)), soft_wrap=True)
    rows = ranked(comparison, judgement).head(limit)
    if rows.empty:
        return
    headings = (
        "cell",
        "verdict",
        "by",
        "base",
        "new",
        "change %",
        "adjusted %",
        "95 %",
        "more runs",
        "speedup x",
        "compile s",
    )
    table = make_table(*headings, spare=("compile s", "speedup x", "base", "new", "more runs"))
    for row in rows.to_dict("records"):
        metric = str(row["by"])
        add_row(
            table,
            str(row["cell"]),
            str(row["verdict"]).replace("_", " "),
            WORDS[metric],
            value(metric, _known(row[f"{metric}_base"])),
            value(metric, _known(row[f"{metric}_new"])),
            signed(percent(row[f"{metric}_ratio"])),
            signed(percent(1 + row[f"{metric}_adjusted"])),
            _interval(row[f"{metric}_low"], row[f"{metric}_high"]),
            _runs(row, metric),
            _arrow(row, "speedup", 2),
            _arrow(row, "compile_cold_s", 1),
        )
    out.print(table)


def _noise(judgement: Judgement) -> str:
    known = {name: value for name, value in judgement.noise.items() if value is not None}
    own = {name: count for name, count in judgement.repeats.items() if count}
    if not known and own:
        parts = ", ".join(f"{WORDS[name]} {count:.0f}" for name, count in own.items())
        return (
            f"noise from run to run: fewer than {FEWEST} cells have repeats, each is judged by its own (degrees of freedom: "
            f"{parts}); without any it is inconclusive"
        )
    if not known:
        return (
            "noise: not known, no cell was measured twice at one commit: only leaks and statuses can be judged; "
            "measure one of the sides again"
        )
    parts = ", ".join(
        f"{WORDS[name]} {100 * value:.1f} % ({judgement.repeats[name]:.0f})" for name, value in known.items()
    )
    drift = ", ".join(f"{WORDS[name]} {100 * value:+.1f} %" for name, value in judgement.drift.items() if value)
    removed = f"; drift of the eager runs, removed from the adjusted changes: {drift}" if drift else ""
    return f"noise from run to run (degrees of freedom behind it): {parts}{removed}"


def _known(found: float) -> float | None:
    return None if pd.isna(found) else float(found)


def _interval(low: float, high: float) -> str:
    return NOTHING if pd.isna(low) else f"{100 * low:+.1f} .. {100 * high:+.1f}"


def _runs(row: dict[Any, Any], metric: str) -> str:
    more = row[f"{metric}_more_runs"]
    if row["verdict"] != Outcome.INCONCLUSIVE or row["testbed_changed"] is True or pd.isna(more):
        return NOTHING  # on another testbed no number of runs would do
    if more == 0:
        return "at the limit"
    return f"> {MOST_RUNS}" if more == float("inf") else f"{more:.0f}"


def _arrow(row: dict[Any, Any], metric: str, digits: int) -> str:
    base, new = row[f"{metric}_base"], row[f"{metric}_new"]
    return NOTHING if pd.isna(base) or pd.isna(new) else f"{base:.{digits}f} -> {new:.{digits}f}"
