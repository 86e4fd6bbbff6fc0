"""The overview's tables: groups of cells as rows of configs and columns of suites, one set of tables per phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.compare.figures import FIGURES, Counts, Figure, Group, PairedFigure
from analysis.compare.results import SuiteChange, SuiteSummary
from analysis.compare.transitions import Transition
from analysis.stats.bootstrap import Interval, geomean_interval, sums_interval
from dashboard import url
from dashboard.components import changes
from dashboard.components.formats import ABSENT, TITLES, number, share
from dashboard.components.markup import anchor, cell, row, span, table, text

#: The averages that have a table of their own, with what the caption adds.
TABLES = {
    "device_speedup": "eager over compiled device time, geometric mean",
    "speedup": "eager over compiled latency, geometric mean",
    "compile_cold_s": "arithmetic mean",
    "compression": "eager over compiled peak memory, geometric mean",
}

Item = SuiteChange | SuiteSummary
#: What a cell of a table shows, as HTML, and its class.
Draw = Callable[[Item], tuple[str, str]]
#: Of a group's average: its interval, and whether its cells were measured on the same machines.
Sure = tuple[Interval | None, bool]


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """What the tables of one section have in common."""

    phase: str
    dtype: str
    device: str

    @property
    def title(self) -> str:
        """For a heading."""
        return f"{self.phase.capitalize()}, {self.dtype}, {self.device}"


def sections(items: Iterable[Item]) -> dict[Setting, list[Item]]:
    """Groups by phase, dtype and device, in that order."""
    found: dict[Setting, list[Item]] = {}
    for item in items:
        found.setdefault(Setting(item.group.phase, item.group.dtype, item.group.device), []).append(item)
    return dict(sorted(found.items()))


def section_tables(items: Sequence[Item], intervals: dict[tuple[str, str], Sure]) -> str:
    """All tables of one section; `intervals` is what `group_intervals` found."""
    link = url.linker()
    parts = [_matrix(items, "pass rate", "passing cells of those asked", _pass_cell, link)]
    for metric, note in TABLES.items():

        def figure(item: Item, metric: str = metric) -> tuple[str, str]:
            return _figure_cell(item, metric, intervals.get((_key(item.group), metric), (None, True)))

        parts.append(_matrix(items, TITLES[metric], note, figure, link))
    return f'<div class="iw-grid" style="--iw-least: {_least_width(items)}rem">{"".join(parts)}</div>'


def _least_width(items: Sequence[Item]) -> int:
    """How wide a table must be to show all its suites, in rem; where two do not fit side by side there is one a line."""
    each = 7 if isinstance(items[0], SuiteSummary) else 9
    return 8 + each * len({item.group.suite for item in items})


def group_intervals(cells: pd.DataFrame) -> dict[tuple[str, str], Sure]:
    """For every group and metric of `TABLES` the interval of its change over models, from the cells that pass twice.

    A ratio is formed on one machine; compile times of two machines are shown and not called a change.
    """
    found: dict[tuple[str, str], Sure] = {}
    passing = np.flatnonzero(cells["transition"] == Transition.BOTH_PASS.value)
    # Columns of numbers: a frame a group takes longer than its intervals, and names are drawn more slowly than numbers.
    models = pd.factorize(cells["model"].take(passing), sort=True)[0]
    moved = cells["testbed_changed"].eq(True).to_numpy(dtype=bool)[passing]
    values = {
        metric: [cells[f"{metric}_{side}"].to_numpy(dtype=float)[passing] for side in ("base", "new")]
        for metric in TABLES
    }
    # Of a hundred columns the few that it takes: to pick rows of all of them takes as long as their intervals.
    for names, rows in _grouped(cells[list(_GROUP)].take(passing)):
        for metric, (base, new) in values.items():
            is_mean = FIGURES[metric] == "mean"
            if is_mean:
                within = sums_interval(base[rows], new[rows], models[rows])
            else:
                within = geomean_interval(_ratios(base[rows], new[rows]), models[rows])
            found["\n".join(names), metric] = within, not (is_mean and bool(moved[rows].any()))
    return found


_GROUP = ("suite", "phase", "dtype", "device", "config_id")


def _grouped(cells: pd.DataFrame) -> Iterator[tuple[tuple[str, ...], NDArray[np.intp]]]:
    """The names of every group and the numbers of its rows, in their order."""
    if cells.empty:
        return
    factors = [pd.factorize(cells[name]) for name in _GROUP]
    place = np.ravel_multi_index([codes for codes, _ in factors], [len(names) for _, names in factors])
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order])) + 1
    for rows in np.split(order, starts):
        yield tuple(str(names[codes[rows[0]]]) for codes, names in factors), rows


def _ratios(base: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is not positive is no figure of a geometric mean, on either side."""
    usable = (base > 0) & (new > 0)
    found: NDArray[np.float64] = np.divide(new, base, out=np.full(base.shape, np.nan), where=usable)
    return found


def _key(group: Group) -> str:
    return "\n".join((group.suite, group.phase, group.dtype, group.device, group.config_id))


def _matrix(items: Sequence[Item], title: str, note: str, draw: Draw, link: Callable[..., str]) -> str:
    suites = sorted({item.group.suite for item in items})
    configs = dict(
        sorted({item.group.config_id: item.group.config for item in items}.items(), key=lambda pair: pair[1])
    )
    by_place = {(item.group.config_id, item.group.suite): item for item in items}
    rows = [
        row(text(name), [_place(by_place.get((config_id, suite)), draw, link) for suite in suites])
        for config_id, name in configs.items()
    ]
    group = items[0].group
    setting = Setting(group.phase, group.dtype, group.device).title
    return table(title.capitalize(), ["config", *suites], rows, note=note, of=setting)


def _place(item: Item | None, draw: Draw, link: Callable[..., str]) -> str:
    if item is None:
        return cell("not planned", "c unplanned")
    inner, css = draw(item)
    group = item.group
    href = link(
        "compare",
        suite=group.suite,
        phase=group.phase,
        dtype=group.dtype,
        device=group.device,
        config=group.config,
    )
    return cell(anchor(href, inner), f"c {css}".strip())


def _pass_cell(item: Item) -> tuple[str, str]:
    if isinstance(item, SuiteSummary):
        return _rate(item.counts) + _beside(item.counts), ""
    base, new = item.base, item.new
    if not base.planned:
        return f"{_rate(new)} {span('soft', 'new here')}{_beside(new)}", ""
    if not new.planned:
        return span("soft", "not planned in new"), ""
    # A rate that moved because more or less was measured is neither good nor bad: only cells that passed and fail now, or
    # the other way round, are.
    turned = {word: len(item.listed.get(which, ())) for word, which in _TURNED.items()}
    look = "worse" if turned["broke"] else "better" if turned["fixed"] else "calm"
    words = ", ".join(f"{number_of} {word}" for word, number_of in turned.items() if number_of)
    shown = _rate(new) if _same(base, new) else f"{_rate(base)}{_ARROW}{_rate(new)}"
    return shown + (f"<br>{span(look, words)}" if words else "") + _beside(new), look if words else ""


_TURNED = {"broke": Transition.BROKE, "fixed": Transition.FIXED}


def _same(base: Counts, new: Counts) -> bool:
    return (base.passed, base.asked) == (new.passed, new.asked)


def _rate(counts: Counts) -> str:
    if not counts.asked:
        return span("soft", "none asked")
    if counts.missing == counts.asked:
        return span("soft", "none measured")
    return f"{text(share(counts.passed, counts.asked))} {span('soft', f'{counts.passed}/{counts.asked}')}"


def _beside(counts: Counts) -> str:
    """What a pass rate leaves out or hides, said."""
    parts = [
        f"{number_of} {what}"
        for number_of, what in (
            (counts.failed, "failed"),
            (counts.missing, "missing"),
            (counts.not_applicable, "unavailable"),
        )
        if number_of
    ]
    return f"<br>{span('soft', ', '.join(parts))}" if parts else ""


def _figure_cell(item: Item, metric: str, sure: Sure) -> tuple[str, str]:
    if isinstance(item, SuiteSummary):
        return _alone(metric, item.figures[metric], item.counts), ""
    figure = item.figures[metric]
    if not figure.n:
        return _unpaired(metric, figure, item), ""
    found = changes.averaged(metric, figure.ratio, sure[0], comparable=sure[1])
    shown = f"{text(number(metric, figure.base))}{_ARROW}{text(number(metric, figure.new))}"
    partial = f"n={figure.n}" if figure.n != max(item.base.passed, item.new.passed) else ""
    if found is None:
        return shown, ""
    below = " ".join(part for part in (found.interval, partial) if part)
    lines = [shown, span(f"line {found.look}", text(found.text)), *([span("line soft", below)] if below else [])]
    # Lines by their style: a break each would be as many elements more, which the browser looks at one by one.
    return "".join(lines), found.look if found.look != "calm" else ""


def _alone(metric: str, figure: Figure, counts: Counts) -> str:
    if figure.value is not None:
        partial = f" {span('soft', f'n={figure.n}')}" if figure.n != counts.passed else ""
        return text(number(metric, figure.value)) + partial
    return span("soft", _why_none(counts))


def _unpaired(metric: str, figure: PairedFigure, item: SuiteChange) -> str:
    """Nothing passes on both sides; what one side has is shown and no change."""
    sides = [
        text(number(metric, side.value)) if side.value is not None else span("soft", _why_none(counts))
        for side, counts in ((figure.base_all, item.base), (figure.new_all, item.new))
    ]
    same = sides[0] == sides[1]
    return sides[0] if same else _ARROW.join(sides)


def _why_none(counts: Counts) -> str:
    if not counts.planned:
        return "not planned"
    if counts.passed:
        return f"{ABSENT} not measured"
    if counts.missing == counts.planned:
        return "missing"
    return "unavailable" if not counts.asked else "none pass"


_ARROW = span("arrow", " → ")
