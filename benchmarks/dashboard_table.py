"""The table of the dashboard's benchmarks: a line a kind of step with count, median, 95th percentile and worst, and its goal."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence

#: ms: the median and the 95th percentile of any interaction, a warm and a cold load.
MEDIAN, P95, WARM, COLD = 300, 400, 1500, 2500

#: ms by kind.
Times = dict[str, list[float]]


def print_table(times: Times, title: str = "one person", spent: Times | None = None) -> None:
    """A line for each kind of load and step, and one for all steps; `spent` is processor time by who and kind."""
    heads = f"{'server':>8}{'browser':>8}" if spent else ""
    print(f"\n{title + ', wall time in ms':42}{'count':>7}{'median':>8}{'p95':>8}{'worst':>8}{heads}  goal")
    every: list[float] = []
    for kind, found in times.items():
        goal = {"load: warm": WARM, "load: cold": COLD}.get(kind)
        is_step = not kind.startswith(("load", "server"))
        every += found if is_step else []
        told = f"{goal}" if goal else f"median {MEDIAN}, p95 {P95}" if is_step else ""
        _print_line(kind, found, _of_both(spent, kind) + "  " + told)
    if every:
        _print_line("all interactions", every, _of_both(spent, "") + f"  median {MEDIAN}, p95 {P95}")


def _of_both(spent: Times | None, kind: str) -> str:
    """The median processor time of server and browser for a kind of step, or of all for no kind; nothing if not known."""
    if spent is None:
        return ""
    found = [
        [value for name, values in spent.items() if name.startswith(f"{who} {kind}") for value in values]
        for who in ("server", "browser")
    ]
    return "".join(f"{statistics.median(values):>8.0f}" if values else f"{'':8}" for values in found)


def _print_line(kind: str, found: Sequence[float], told: str) -> None:
    if found:
        p95 = sorted(found)[math.ceil(0.95 * len(found)) - 1]
        print(f"{kind:42}{len(found):>7}{statistics.median(found):>8.0f}{p95:>8.0f}{max(found):>8.0f}{told}")


def load_average() -> str:
    """That of this machine, over one, five and fifteen minutes."""
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())
