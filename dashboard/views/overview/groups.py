"""The overview's tables: groups of cells as rows of configs and columns of suites, one set of tables per phase."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from analysis.compare.suite_groups import Counts, Figure, Group, SuiteChange, SuiteSummary
from analysis.compare.transitions import Transition
from collector.metrics import METRICS
from dashboard import url
from dashboard.components import changes
from dashboard.components.formats import ABSENT, number, share
from dashboard.components.markup import Cell, anchor, joined, lines, span, table

#: The averages that have a table of their own, with what the caption adds.
TABLES = {
    "device_speedup": "eager over compiled device time, geometric mean",
    "speedup": "eager over compiled latency, geometric mean",
    "compile_cold_s": "arithmetic mean",
    "compression": "eager over compiled peak memory, geometric mean",
}
_ARROW = span("arrow", " → ")

Item = SuiteChange | SuiteSummary


def sections(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Groups by phase, dtype and device, under a heading for each, in the order of these names."""
    of_setting: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: (item.group.phase, item.group.dtype, item.group.device)):
        of_setting.setdefault(_setting(item.group), []).append(item)
    return of_setting


def section_tables(items: Sequence[Item]) -> Markup:
    """All tables of one section."""
    tables = [_matrix(items, "pass rate", "passing cells of those measured", _pass_cell)]
    for metric, note in TABLES.items():
        having = [item for item in items if _has(item, metric)]
        if not having:
            continue

        def figure(item: Item, metric: str = metric) -> Cell:
            return _figure_cell(item, metric)

        tables.append(_matrix(having, METRICS[metric].title, note, figure))
    # How wide a table must be to show all its suites, in rem; where two do not fit side by side there is one a line.
    suites = {item.group.suite for item in items}
    least = 8 + (7 if isinstance(items[0], SuiteSummary) else 9) * len(suites)
    return Markup('<div class="iw-grid" style="--iw-least: {}rem">{}</div>').format(least, joined("", tables))


def _has(item: Item, metric: str) -> bool:
    """Whether a side has a value of the metric."""
    figure = item.figures[metric]
    each = (figure,) if isinstance(figure, Figure) else (figure.base_all, figure.new_all)
    return any(one.value is not None for one in each)


def _setting(group: Group) -> str:
    return f"{group.phase.capitalize()}, {group.dtype}, {group.device}"


def _matrix(items: Sequence[Item], title: str, note: str, draw: Callable[[Item], Cell]) -> Markup:
    suites = sorted({item.group.suite for item in items})
    names = {item.group.config_id: item.group.config for item in items}
    by_place = {(item.group.config_id, item.group.suite): item for item in items}
    rows = [
        (names[config_id], *(_linked(by_place.get((config_id, suite)), draw) for suite in suites))
        for config_id in sorted(names, key=names.__getitem__)
    ]
    return table(title.capitalize(), ["config", *suites], rows, note=note, of=_setting(items[0].group))


def _linked(item: Item | None, draw: Callable[[Item], Cell]) -> Cell:
    if item is None:
        return Cell("not planned", "c unplanned")
    drawn, group = draw(item), item.group
    names = {name: getattr(group, name) for name in ("suite", "phase", "dtype", "device", "config")}
    return Cell(anchor(url.link("compare", **names), drawn.content), f"c {drawn.css}".strip())


def _pass_cell(item: Item) -> Cell:
    if isinstance(item, SuiteSummary):
        return Cell(lines(_rate(item.counts), _left_out(item.counts)))
    base, new = item.base, item.new
    if not base.planned:
        return Cell(lines(joined(" ", [_rate(new), span("soft", "new here")]), _left_out(new)))
    if not new.planned:
        return Cell(span("soft", "not planned in new"))
    # Only cells that passed and fail now, or the other way round, are good or bad: a rate also moves as more is measured.
    broke, fixed = (len(item.listed.get(turned, ())) for turned in (Transition.BROKE, Transition.FIXED))
    look = "worse" if broke else "better" if fixed else ""
    words = _tally({"broke": broke, "fixed": fixed})
    same = (base.passed, base.attempted) == (new.passed, new.attempted)
    rates = _rate(new) if same else joined("", [_rate(base), _ARROW, _rate(new)])
    return Cell(lines(rates, span(look, words) if words else "", _left_out(new)), look)


def _rate(counts: Counts) -> Markup:
    if counts.planned == counts.not_applicable:
        return span("soft", "none applicable")
    if not counts.attempted:
        return span("soft", "none measured")
    return joined(" ", [share(counts.passed, counts.attempted), span("soft", f"{counts.passed}/{counts.attempted}")])


def _left_out(counts: Counts) -> str:
    """What a pass rate leaves out or hides."""
    words = _tally({"failed": counts.failed, "missing": counts.missing, "not applicable": counts.not_applicable})
    return span("soft", words) if words else ""


def _tally(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number_of} {word}" for word, number_of in numbers.items() if number_of)


def _figure_cell(item: Item, metric: str) -> Cell:
    if isinstance(item, SuiteSummary):
        return Cell(_average(metric, item.figures[metric], item.counts))
    figure = item.figures[metric]
    if not figure.n:
        # Nothing passes on both sides: what one side has is shown, and no change.
        sides = [_average(metric, figure.base_all, item.base), _average(metric, figure.new_all, item.new)]
        return Cell(joined(_ARROW, dict.fromkeys(sides)))
    change = changes.averaged(item.changes[metric])
    shown = joined(_ARROW, [number(metric, figure.base), number(metric, figure.new)])
    if change is None:
        return Cell(shown)
    partial = f"n={figure.n}" if figure.n != max(item.base.passed, item.new.passed) else ""
    below = " ".join(part for part in (change.interval, partial) if part)
    parts = [shown, span(f"line {change.look}", change.text), span("line soft", below) if below else ""]
    return Cell(joined("", parts), change.look if change.look != "calm" else "")


def _average(metric: str, figure: Figure, counts: Counts) -> Markup:
    """An average of one side, with its number of cells where not all passing ones have it; else why there is none."""
    if figure.value is not None:
        partial = span("soft", f"n={figure.n}") if figure.n != counts.passed else ""
        return joined(" ", [number(metric, figure.value), partial])
    if not counts.planned:
        return span("soft", "not planned")
    if counts.passed:
        return span("soft", f"{ABSENT} not measured")
    if counts.missing == counts.planned:
        return span("soft", "missing")
    return span("soft", "not applicable" if counts.planned == counts.not_applicable else "none pass")
