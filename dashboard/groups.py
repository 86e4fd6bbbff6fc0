"""The overview's tables: groups of cells as rows of configs and columns of suites, one set of tables per phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from analysis.figures import Counts, Figure, Group, PairedFigure
from analysis.results import SuiteChange, SuiteSummary
from dashboard import changes, url
from dashboard.formats import ABSENT, TITLES, number, share
from dashboard.markup import anchor, cell, change, row, span, table, text

#: The averages that have a table of their own, with what the caption adds.
TABLES = {
    "device_speedup": "eager over compiled device time, geometric mean",
    "speedup": "eager over compiled latency, geometric mean",
    "compile_cold_s": "arithmetic mean",
    "compression": "eager over compiled peak memory, geometric mean",
}

Item = SuiteChange | SuiteSummary


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


def section_tables(items: Sequence[Item], bands: dict[tuple[str, str], float | None]) -> str:
    """All tables of one section; `bands` is what `group_bands` found."""
    parts = [_matrix(items, "pass rate", "passing cells of those asked", _pass_cell)]
    for metric, note in TABLES.items():

        def figure(item: Item, metric: str = metric) -> tuple[str, str]:
            return _figure_cell(item, metric, bands.get((_key(item.group), metric)))

        parts.append(_matrix(items, TITLES[metric], note, figure))
    return f'<div class="iw-grid" style="--iw-least: {_least_width(items)}rem">{"".join(parts)}</div>'


def _least_width(items: Sequence[Item]) -> int:
    """How wide a table must be to show all its suites, in rem; where two do not fit side by side there is one a line."""
    each = 7 if isinstance(items[0], SuiteSummary) else 9
    return 8 + each * len({item.group.suite for item in items})


def group_bands(cells: pd.DataFrame) -> dict[tuple[str, str], float | None]:
    """For every group and metric, the median of its cells' bands: see `dashboard.changes.RULE`."""
    found: dict[tuple[str, str], float | None] = {}
    columns = ["suite", "phase", "dtype", "device", "config_id"]
    for names, rows in cells.groupby(columns, sort=False):
        sums = (rows["spread_base"] + rows["spread_new"]).dropna()
        sampled = float(median(sums)) if len(sums) else None
        for metric in TABLES:
            value = sampled if metric in changes.SAMPLED else changes.band(metric, None, None)
            found["\n".join(map(str, names)), metric] = value
    return found


def _key(group: Group) -> str:
    return "\n".join((group.suite, group.phase, group.dtype, group.device, group.config_id))


def _matrix(items: Sequence[Item], title: str, note: str, draw: Callable[[Item], tuple[str, str]]) -> str:
    suites = sorted({item.group.suite for item in items})
    configs = dict(
        sorted({item.group.config_id: item.group.config for item in items}.items(), key=lambda pair: pair[1])
    )
    by_place = {(item.group.config_id, item.group.suite): item for item in items}
    rows = [
        row(text(name), [_place(by_place.get((config_id, suite)), draw) for suite in suites])
        for config_id, name in configs.items()
    ]
    return table(title.capitalize(), ["config", *suites], rows, note=note)


def _place(item: Item | None, draw: Callable[[Item], tuple[str, str]]) -> str:
    if item is None:
        return cell("not planned", "c unplanned")
    inner, css = draw(item)
    group = item.group
    href = url.link(
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
    look = "calm"
    if base.pass_rate is not None and new.pass_rate is not None and base.pass_rate != new.pass_rate:
        look = "better" if new.pass_rate > base.pass_rate else "worse"
    shown = _rate(new) if _same(base, new) else f"{_rate(base)}{_ARROW}{_rate(new)}"
    words = {"better": "more pass", "worse": "fewer pass", "calm": ""}[look]
    return shown + (f"<br>{span(look, words)}" if words else "") + _beside(new), look if look != "calm" else ""


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


def _figure_cell(item: Item, metric: str, band: float | None) -> tuple[str, str]:
    if isinstance(item, SuiteSummary):
        return _alone(metric, item.figures[metric], item.counts), ""
    figure = item.figures[metric]
    if not figure.n:
        return _unpaired(metric, figure, item), ""
    found = changes.change(metric, figure.base, figure.new, band)
    shown = f"{text(number(metric, figure.base))}{_ARROW}{text(number(metric, figure.new))}"
    partial = f" {span('soft', f'n={figure.n}')}" if figure.n != max(item.base.passed, item.new.passed) else ""
    return f"{shown}<br>{change(found)}{partial}", found.look if found and found.look != "calm" else ""


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
