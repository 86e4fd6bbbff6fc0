"""The first lines of an overview: the verdict in a sentence, the counts by dimension, and the averages of all groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from analysis.compare.cell_comparison import CellComparison, Outcome, Transition
from analysis.compare.comparison import Comparison
from analysis.compare.suite_groups import Counts, Figure, Group, SuiteChange, SuiteSummary
from analysis.elements import charts, wording
from analysis.elements.addresses import cell_query
from analysis.elements.wording import (
    ABSENT,
    OUTCOMES,
    Cell,
    Link,
    anchor,
    count,
    joined,
    lines,
    number,
    share,
    signed,
    span,
    table,
)
from analysis.present import percent, sentence_parts, slower_than_eager, verdict_counts
from analysis.reports.html_report import mark, plot, short_names
from collector.metrics import METRICS


def answer(comparison: Comparison, link: Link) -> Markup:
    """Return the verdict on the whole by dimension: the number of models that changed, and the cell that changed most."""

    def named(one: CellComparison) -> Markup:
        return anchor(link("model", **cell_query(one.cell)), f"{one.cell.model} {one.cell.config}")

    return Markup("").join(sentence_parts(comparison, named))


def dimensions(comparison: Comparison, link: Link) -> list[Markup]:
    """Return a line for each dimension; each number links to its cells."""
    lines = []
    for dimension, counts in verdict_counts(comparison):
        parts = [
            anchor(link("compare", dimension=dimension.value, outcome=verdict.value), words)
            + (f" ({most})" if most else "")
            for verdict, words, most in counts
        ]
        lines.append(Markup("{}: {}").format(dimension.value, joined(", ", parts)))
    slower, named = slower_than_eager(comparison)
    if slower:
        words = anchor(link("compare", columns="speedup", sort="-speedup"), count(slower, "cell") + " of new")
        lines.append(Markup("slower than eager: {} ({})").format(words, named))
    return lines


def compared_sentence(comparison: Comparison, link: Link) -> Markup:
    """Return the number of all cells, then of each outcome; each number links to its cells."""
    counted = Counter(one.outcome.value for one in comparison.cells)
    parts = [
        anchor(link("compare", outcome=name), f"{counted[name]:,} {words}")
        + (_advice(comparison.of(Outcome.INCONCLUSIVE)) if name == Outcome.INCONCLUSIVE else "")
        for name, words in OUTCOMES.items()
        if counted[name]
    ]
    return Markup("{}: {}.").format(count(len(comparison.cells), "cell"), joined(", ", parts))


def _advice(cells: Sequence[CellComparison]) -> str:
    """Return how many more runs would settle more than half of the inconclusive cells; empty if no cell's number is known."""
    more = [one.more_runs for one in cells]
    if all(number is None for number in more):
        return ""
    needed = sorted(number or math.inf for number in more)[len(more) // 2]
    if math.isinf(needed):
        return " (even 50 more runs of each side would not settle most)"
    return f" ({count(int(needed), 'more run')} of each side would settle most)"


#: The averages that have a table of their own, with the note in its caption.
TABLES = {
    "device_speedup": "eager over compiled device time, geometric mean; not judged: device time is",
    "speedup": "eager over compiled latency, geometric mean; not judged: latency is",
    "compile_cold_s": "arithmetic mean",
    "compression": "eager over compiled peak memory, geometric mean; not judged: peak memory is",
}
#: Titles of metrics in the grid that differ from the sections' titles.
_SHORT = {"compression": "memory, eager over compiled"}
#: Most configs that have a link beside the config with most cells.
_MOST_CONFIGS = 6
_ARROW = span("arrow", " → ")

Item = SuiteChange | SuiteSummary


def sections(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Return the groups by phase, dtype and device, under a heading for each, in the order of these names."""
    of_setting: dict[str, list[Item]] = {}
    for item in sorted(items, key=lambda item: (item.group.phase, item.group.dtype, item.group.device)):
        of_setting.setdefault(_setting(item.group), []).append(item)
    return of_setting


def grid(items: Sequence[Item], link: Link) -> Markup:
    """Return tables of pass rate, speedup, compile time and memory of all groups; each entry links to the group's cells.

    The speedup is of device time where it was measured. The pointer shows base and new with the interval.
    """
    speedup = next((name for name in ("device_speedup", "speedup") if any(_has(item, name) for item in items)), "")
    metrics = [
        name for name in (speedup, "compile_cold_s", "compression") if any(name and _has(i, name) for i in items)
    ]
    tables = [_short_table(items, "pass rate", _short_rate, link)]
    for metric in metrics:

        def figure(item: Item, metric: str = metric) -> tuple[Markup, str, str]:
            return _short_figure(item, metric)

        tables.append(_short_table(items, _SHORT.get(metric, METRICS[metric].title), figure, link))
    # The width in rem that the grid needs to show all columns; where two tables do not fit side by side, each has its own line.
    columns, rows = _layout(items)
    least = 0.37 * max(len(" ".join(key[:2])) for key in rows) + 5.4 * len(columns)
    return Markup('<div class="iw-grid iw-short" style="--iw-least: {:.1f}rem">{}</div>').format(
        least, joined("", tables)
    )


def config_links(items: Sequence[Item], link: Link) -> Markup:
    """Return links that compare two configs of new: the one with most cells against each other one; empty for one config."""
    cells: Counter[str] = Counter()
    for item in items:
        cells[item.group.config] += (item.counts if isinstance(item, SuiteSummary) else item.new).planned
    first, *others = sorted(+cells, key=lambda name: (-cells[name], name != "default", name)) or [""]
    if not others:
        return Markup()
    shown = others[:_MOST_CONFIGS]
    links = [anchor(link("compare", mode="configs", **{"from": first, "to": name}), name) for name in shown]
    if len(others) > len(shown):
        links.append(anchor(link("compare", mode="configs"), "other configs"))
    return joined("", [span("soft", f"{first} against "), joined(", ", links)])


def _short_table(
    items: Sequence[Item], title: str, draw: Callable[[Item], tuple[Markup, str, str]], link: Link
) -> Markup:
    columns, rows = _layout(items)
    varies = [len({key[at] for key in rows}) > 1 for at in range(4)]
    shared = ["" if varies[at] else next(iter(rows))[at] for at in range(4)]
    dtypes = sorted({(key[1], key[2]) for key in rows})
    if varies[1] and varies[2] and len(dtypes) == len(dict(dtypes)):  # each phase has one dtype
        varies[2], shared[2] = False, ", ".join(" ".join(phase_dtype) for phase_dtype in dtypes)
    shown = [
        (
            " ".join(key[at] for at in range(4) if varies[at]) or key[0],
            *(_short_cell(by_column.get(column), draw, link) for column in columns),
        )
        for key, by_column in rows.items()
    ]
    return table(
        title.capitalize(), ["config", *columns], shown, note=", ".join(filter(None, shared)) if any(varies) else ""
    )


def _layout(items: Sequence[Item]) -> tuple[list[str], dict[tuple[str, ...], dict[str, Item]]]:
    """Return the columns of the grid, and by row (config, phase, dtype, device and config's id) its items by column.

    Columns are suites. Where that takes less room, groups in another dtype than most groups of their phase and device have a
    column of their own beside their suite's, and no rows of their own.
    """
    dtypes: dict[tuple[str, str], Counter[str]] = {}
    for item in items:
        dtypes.setdefault((item.group.phase, item.group.device), Counter())[item.group.dtype] += 1
    layouts = []
    for is_merged in (False, True):
        rows: dict[tuple[str, ...], dict[str, Item]] = {}
        for item in sorted(items, key=lambda item: (item.group.phase, item.group.device, item.group.config)):
            group = item.group
            usual = dtypes[group.phase, group.device].most_common(1)[0][0] if is_merged else group.dtype
            column = group.suite if group.dtype == usual else f"{group.suite} {group.dtype}"
            rows.setdefault((group.config, group.phase, usual, group.device, group.config_id), {})[column] = item
        rows = dict(sorted(rows.items(), key=lambda row: (row[0][1:4], row[0][0])))
        layouts.append((sorted({column for of_row in rows.values() for column in of_row}), rows))
    return min(layouts, key=lambda layout: len(layout[0]) * len(layout[1]))


def _short_cell(item: Item | None, draw: Callable[[Item], tuple[Markup, str, str]], link: Link) -> Cell:
    if item is None:
        return Cell(span("soft", ABSENT), "c")
    shown, title, look = draw(item)
    linked = Markup('<a href="{}" target="_self" title="{}">{}</a>').format(_link_of(item, link), title, shown)
    return Cell(linked, f"c {look}".strip())


def _short_rate(item: Item) -> tuple[Markup, str, str]:
    if isinstance(item, SuiteSummary):
        rate = joined(" ", [_rate(item.counts), _missing(item.counts), _pytorchs(item.counts)])
        return rate, f"{item.counts.passed} of {item.counts.attempted} measured cells pass", ""
    look, turned = _turned(item)
    words = f"base {item.base.passed} of {item.base.attempted}, new {item.new.passed} of {item.new.attempted} measured cells"
    parts = [_rate(item.new), span(look, turned) if turned else "", _missing(item.new), _pytorchs(item.new)]
    return joined(" ", parts), words, look


def _missing(counts: Counts) -> str:
    return span("soft", f"{counts.missing} missing") if counts.missing else ""


def _pytorchs(counts: Counts) -> str:
    """Return how many cells PyTorch's own check passes, if its rate differs; else an empty text."""
    words = f"PyTorch's {counts.pytorch_passed}/{counts.pytorch_judged}"
    return span("soft", words) if counts.pytorch_differs else ""


def _short_figure(item: Item, metric: str) -> tuple[Markup, str, str]:
    if isinstance(item, SuiteSummary):
        figure = item.figures[metric]
        return joined(" ", [number(metric, figure.value), _below(metric, figure.value)]), f"{figure.n} cells", ""
    paired = item.figures[metric]
    if not paired.n:
        alone = paired.new_all.value if paired.new_all.value is not None else paired.base_all.value
        side = "" if alone is None else "new" if paired.new_all.value is not None else "base"
        return joined(" ", [number(metric, alone), span("soft", side)]), "no cell has it on both sides", ""
    change = wording.averaged(item.changes[metric])
    sides = " → ".join(number(metric, value) for value in (paired.base, paired.new))
    moved = signed(None if paired.change is None else 100 * paired.change)
    look = change.look if change and change.look != "calm" else ""
    about = ", ".join(
        filter(None, (sides, change.text if change else "", change.interval if change else "", f"n={paired.n}"))
    )
    return (
        joined(" ", [number(metric, paired.new), span(look or "soft", moved), _below(metric, paired.new)]),
        about,
        look,
    )


def _below(metric: str, average: float | None) -> str:
    """Return the mark of an average that PyTorch's dashboard marks, too: it is below a threshold."""
    threshold = METRICS[metric].hud_threshold
    is_below = threshold is not None and average is not None and average < threshold
    return span("soft", f"below {threshold}x") if is_below else ""


def section_tables(items: Sequence[Item], link: Link) -> Markup:
    """Return all tables of one section."""
    tables = [_matrix(items, "pass rate", "passing cells of those measured", _pass_cell, link)]
    for metric, note in TABLES.items():
        having = [item for item in items if _has(item, metric)]
        if not having:
            continue

        def figure(item: Item, metric: str = metric) -> Cell:
            return _figure_cell(item, metric)

        tables.append(_matrix(having, METRICS[metric].title, note, figure, link))
    # The width in rem that a table needs to show all suites; where two tables do not fit side by side, each has its own line.
    suites = {item.group.suite for item in items}
    least = 8 + (7 if isinstance(items[0], SuiteSummary) else 9) * len(suites)
    return Markup('<div class="iw-grid" style="--iw-least: {}rem">{}</div>').format(least, joined("", tables))


def _has(item: Item, metric: str) -> bool:
    """Return whether a side has a value of the metric."""
    figure = item.figures[metric]
    each = (figure,) if isinstance(figure, Figure) else (figure.base_all, figure.new_all)
    return any(one.value is not None for one in each)


def _setting(group: Group) -> str:
    return f"{group.phase.capitalize()}, {group.dtype}, {group.device}"


def _matrix(items: Sequence[Item], title: str, note: str, draw: Callable[[Item], Cell], link: Link) -> Markup:
    suites = sorted({item.group.suite for item in items})
    names = {item.group.config_id: item.group.config for item in items}
    by_place = {(item.group.config_id, item.group.suite): item for item in items}
    rows = [
        (names[config_id], *(_linked(by_place.get((config_id, suite)), draw, link) for suite in suites))
        for config_id in sorted(names, key=names.__getitem__)
    ]
    return table(title.capitalize(), ["config", *suites], rows, note=note, of=_setting(items[0].group))


def _linked(item: Item | None, draw: Callable[[Item], Cell], link: Link) -> Cell:
    if item is None:
        return Cell("not planned", "c unplanned")
    drawn = draw(item)
    return Cell(anchor(_link_of(item, link), drawn.content), f"c {drawn.css}".strip())


def _link_of(item: Item, link: Link) -> str:
    names = {name: getattr(item.group, name) for name in ("suite", "phase", "dtype", "device", "config")}
    return link("compare", **names)


def _pass_cell(item: Item) -> Cell:
    if isinstance(item, SuiteSummary):
        return Cell(lines(_rate(item.counts), _left_out(item.counts)))
    base, new = item.base, item.new
    if not base.planned:
        return Cell(lines(joined(" ", [_rate(new), span("soft", "new here")]), _left_out(new)))
    if not new.planned:
        return Cell(span("soft", "not planned in new"))
    # Only cells that passed and fail now, or the other way round, are good or bad: a rate also moves if more is measured.
    look, words = _turned(item)
    same = (base.passed, base.attempted) == (new.passed, new.attempted)
    rates = _rate(new) if same else joined("", [_rate(base), _ARROW, _rate(new)])
    return Cell(lines(rates, span(look, words) if words else "", _left_out(new)), look)


def _turned(item: SuiteChange) -> tuple[str, str]:
    """Return the look of a group's pass rate, and how many cells broke or were fixed."""
    broke, fixed = (len(item.listed.get(turned, ())) for turned in (Transition.BROKE, Transition.FIXED))
    return "worse" if broke else "better" if fixed else "", _tally({"broke": broke, "fixed": fixed})


def _rate(counts: Counts) -> Markup:
    if counts.planned == counts.not_applicable:
        return span("soft", "none applicable")
    if not counts.attempted:
        return span("soft", "none measured")
    return joined(" ", [share(counts.passed, counts.attempted), span("soft", f"{counts.passed}/{counts.attempted}")])


def _left_out(counts: Counts) -> str:
    """Return the numbers of cells that a pass rate leaves out or hides: failed, missing and not applicable."""
    words = _tally({"failed": counts.failed, "missing": counts.missing, "not applicable": counts.not_applicable})
    return span("soft", words) if words else ""


def _tally(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number_of} {word}" for word, number_of in numbers.items() if number_of)


def _figure_cell(item: Item, metric: str) -> Cell:
    if isinstance(item, SuiteSummary):
        return Cell(_average(metric, item.figures[metric], item.counts))
    figure = item.figures[metric]
    if not figure.n:
        # No cell passes on both sides: each side's average is shown, and no change.
        sides = [_average(metric, figure.base_all, item.base), _average(metric, figure.new_all, item.new)]
        return Cell(joined(_ARROW, dict.fromkeys(sides)))
    change = wording.averaged(item.changes[metric])
    shown = joined(_ARROW, [number(metric, figure.base), number(metric, figure.new)])
    if change is None:
        return Cell(shown)
    partial = f"n={figure.n}" if figure.n != max(item.base.passed, item.new.passed) else ""
    below = " ".join(part for part in (change.interval, partial) if part)
    parts = [shown, span(f"line {change.look}", change.text), span("line soft", below) if below else ""]
    return Cell(joined("", parts), change.look if change.look != "calm" else "")


def _average(metric: str, figure: Figure, counts: Counts) -> Markup:
    """Return an average of one side, with its number of cells if not all passing ones have it; else why there is none."""
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


#: The verdicts of findings that the chart of changes shows, in this order, and most findings that it shows.
_ORDER = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.INCONCLUSIVE, Outcome.UNCHANGED)
_ROWS = 25
#: Pixels: a row, and the space around the rows.
_LANE, _AROUND = 22, 90


def changes_figure(comparison: Comparison, colors: charts.Colors) -> charts.Figure | None:
    """Return the chart of the largest changes on one machine, by each finding's leading metric; None without an interval."""
    found = [(one, finding) for one, finding in comparison.ranked_findings(_ORDER) if one.is_comparable]
    known = [(one, finding) for one, finding in found if finding.judged and finding.judged.low is not None]
    if not (shown := known[:_ROWS]):
        return None
    names = short_names([one.cell for one, _ in shown])
    marks = [mark(row, finding, "") for row, (_, finding) in enumerate(shown)]
    drawn = plot(marks, names, {"worse": colors.bad, "better": colors.series[0], "calm": charts.NEUTRAL})
    drawn = drawn.properties(height=_LANE * len(names) + _AROUND)
    ends = f"{names[0]} from {percent(marks[0].low)} to {percent(marks[0].high)}"
    words = f"Changes with 95 % intervals, {len(shown)} of {len(known)}: {ends}"
    return charts.Figure("intervals", drawn, words)
