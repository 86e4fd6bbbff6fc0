"""The history of one model as `dashboard.components.plots` draws it: quick to show, with what a run was as the title
of its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from collector.metrics import METRICS
from dashboard.components import palette, plots
from dashboard.components.formats import moment, number
from dashboard.pages.model.charts import FEW, kind, metric_title
from dashboard.pages.trends.plots import spread

#: How each way to end looks: a class of the style sheet, and a letter that differs in shape from the others.
_ENDS = {
    "pass": ("", "\N{BLACK CIRCLE}"),
    "failed": ("fail", "\N{MULTIPLICATION X}"),
    "missing": ("", "\N{WHITE SQUARE}"),
    "unavailable or skipped": ("", "\N{WHITE UP-POINTING TRIANGLE}"),
}


def metric(
    history: pd.DataFrame,
    name: str,
    said: str,
    labels: Sequence[str],
    configs: Sequence[str],
    marked: Mapping[str, int],
) -> str:
    """One metric over runs as HTML, a line per config; `marked` names places (base, new) that get a rule."""
    amount = len(labels)
    at = (np.arange(amount) + 0.5) / amount
    scale = 1e9 if METRICS[name].unit == "B" else 1.0
    rows = history.dropna(subset=[name]).sort_values("n", kind="stable")
    lines: list[plots.Line] = []
    told: list[list[str]] = [[] for _ in range(amount)]
    for config, color in zip(configs, palette.series(), strict=False):
        of = rows[rows["config"] == config]
        places, values = of["n"].to_numpy(dtype=int), of[name].to_numpy(dtype=float)
        breaks = np.zeros(len(places), dtype=bool)
        lines.append(plots.Line(color, at[places], values / scale, breaks, 1.6, dots=6.0 if amount <= FEW else 3.6))
        for place, value in zip(places.tolist(), values.tolist(), strict=True):
            told[place].append(f"{config}: {number(name, value)}")
    words = ["\n".join([*head, *values]) for head, values in zip(_heads(history, amount), told, strict=True)]
    ticks = [(float(at[place]), labels[place]) for place in spread(amount)]
    columns = [(1.0, word) for word in words]
    rules = [(float(at[place]), side) for side, place in marked.items()]
    return plots.html(plots.Plot(metric_title(name), said, lines, ticks, columns, rules))


def ends(history: pd.DataFrame, said: str, amount: int, configs: Sequence[str], marked: Mapping[str, int]) -> str:
    """How each run ended as HTML: a lane per config and a letter per run."""
    heads = _heads(history, amount)
    sides = {place: side for side, place in marked.items()}
    rows = []
    for config in configs:
        lane = [("", "", "\n".join(head)) for head in heads]
        of = history[history["config"] == config]
        for place, status in zip(of["n"].tolist(), of["status"].tolist(), strict=True):
            look, glyph = _ENDS[kind(status)]
            word = status if isinstance(status, str) else "missing"
            side = f" ({sides[place]})" if place in sides else ""
            look = f"{look} side".strip() if side else look
            lane[place] = (look, glyph, "\n".join([f"{config}: {word}{side}", *heads[place]]))
        rows.append((config, lane))
    shown = dict.fromkeys(kind(status) for status in history["status"].tolist())
    words = ", ".join(f"{_ENDS[name][1]} {name}" for name in _ENDS if name in shown)
    words += f"; framed: {' and '.join(marked)}" if marked else ""
    return plots.lanes(f"how each run ended: {words}", said, rows)


def _heads(history: pd.DataFrame, amount: int) -> list[list[str]]:
    """When each run began, its commit and its name."""
    found: list[list[str]] = [[] for _ in range(amount)]
    first = history.drop_duplicates("n")
    for place, when, sha, run in zip(
        *(first[name].tolist() for name in ("n", "started_at", "commit", "run_id")), strict=True
    ):
        found[place] = [f"{moment(when)} UTC, commit {str(sha)[:10]}", f"run {run}"]
    return found
