"""Numbers, findings, noise and sides in words, the same on a terminal, in Markdown, in HTML, in pictures and on pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from analysis.compare.adjustment import CONTROL
from analysis.compare.cell_comparison import CHANGES, WORSE, CellComparison, Finding, Judged, Outcome
from analysis.compare.comparison import Comparison
from analysis.compare.cost_parts import byte_words
from analysis.compare.suite_groups import SHOWN_AS_NONE, Counts
from analysis.stats.run_noise import FEWEST_REPEATED
from analysis.stats.verdicts import MOST_RUNS
from collector.metrics import METRICS, MIN_EFFECT, Dimension
from db.nights import device_name
from db.queries.side_rows import CellState
from db.queries.sides import Side
from db.store_errors import counted

#: The text for "not measured".
NOTHING = "-"
#: The names of some outcomes; other outcomes are named by their key, with spaces. Files, JSON and addresses have the key.
_CALLED = {
    Outcome.INCONCLUSIVE.value: "no clear change",
    Outcome.ENTERED.value: "only planned in new",
    Outcome.LEFT.value: "only planned in base",
}
#: Most models that a line names for each verdict, those with the largest changes.
_NAMED = 3
#: A compiled program with a smaller speedup is slower than eager by more than a latency's smallest effect.
_NO_GAIN = 1 / (1 + MIN_EFFECT["compiled_ms"])
#: The order of a sentence's claims.
_CLAIMED = (Outcome.BROKE, Outcome.REGRESSED, Outcome.FIXED, Outcome.IMPROVED)


def value(metric: str | None, number: float | None) -> str:
    """Return a value of a metric with its unit; many bytes are in MB (10^6) or GB (10^9)."""
    if metric is None or number is None or math.isnan(number):
        return NOTHING
    match METRICS[metric].unit:
        case "ms":
            return f"{number:.{1 if number >= 100 else 2 if number >= 10 else 3}f} ms"
        case "J":
            return f"{number:.3g} J"
        case "us":
            return f"{number:.0f} us"
        case "s":
            return f"{number:.1f} s"
        case "B":
            return byte_words(number)
        case "x":
            return f"{number:.2f}x"
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:.3f}"


def percent(change: float | None) -> str:
    """Return a relative change (0.02 is 2 %) with its sign."""
    if change is None or math.isnan(change):
        return NOTHING
    return f"{round(100 * change, 1) + 0.0:+.1f} %"  # no minus before a zero


def interval(low: float | None, high: float | None) -> str:
    """Return both ends of an interval of relative changes."""
    return NOTHING if low is None or high is None else f"{100 * low:+.1f} .. {100 * high:+.1f} %"


def ruled_out(low: float | None, high: float | None) -> str:
    """Return `more than 4 % ruled out`, from both ends of an interval of relative changes; empty where it is not known."""
    ends = [abs(end) for end in (low, high) if end is not None and math.isfinite(end)]
    return f"more than {math.ceil(round(100 * max(ends), 6)):,} % ruled out" if len(ends) == 2 else ""


def further_runs(more: float | None) -> str:
    """Return in words how many further runs of each side would settle a cell; empty where it is not known."""
    if more is None:
        return ""
    if math.isinf(more):
        return f"needs more than {MOST_RUNS} further runs of each side"
    return f"{counted(int(more), 'more run')} of each side" if more else "at the limit of what matters"


def called(outcome: str) -> str:
    """Return the name of an outcome or of another key, as pages and texts show it."""
    return _CALLED.get(outcome, outcome.replace("_", " "))


def tally(counts: Mapping[str, int]) -> str:
    """Return counts in words, `2 regressed, 1 broke`; empty for no counts."""
    return ", ".join(f"{count} {called(word)}" for word, count in counts.items())


def commit_title(side: Side) -> str:
    """Return the title of a side's one commit; empty where it has several, or a title is not known."""
    titles = {run.commit_title or "" for run in side.runs}
    return titles.pop() if len(titles) == len(side.commits) == 1 else ""


def describe_side(side: Side) -> str:
    """Return a side in one line: branch, commit, night or runs, where and when, and the title of its one commit."""
    newest = side.runs[0]
    names = ", ".join([*side.releases, *side.run_ids[:3]]) + (", ..." if len(side.runs) > 3 else "")
    what = side.title if len(side.nights) == 1 else f"{newest.branch}@{newest.commit[:10]} ({names})"
    device = device_name(newest.testbed) or "unknown testbed"
    labels = sorted({run.label for run in side.runs if run.label})
    label = f" [{', '.join(labels)}]" if labels else ""
    title = f": {titled}" if (titled := commit_title(side)) else ""
    return f"{what}, {side.started_at:%Y-%m-%d %H:%M} UTC, {device}{label}{title}"


def whole_percent(part: int, whole: int) -> int:
    """Return a share in whole percent, never rounded up to 100."""
    percents = 100 * part / whole
    return math.floor(percents) if percents > 99 else round(percents)


def pass_rate(counts: Counts) -> str:
    """Return `92% 11/12` of the measured cells, then missing and not applicable cells; `-` where none was measured.

    PyTorch's own pass rate is added where it differs.
    """
    rate = f"{whole_percent(counts.passed, counts.attempted)}% " if counts.attempted else ""
    text = f"{rate}{counts.passed}/{counts.attempted}" if rate else NOTHING
    if counts.pytorch_differs:
        text += f" (PyTorch's {counts.pytorch_passed}/{counts.pytorch_judged})"
    if counts.missing:
        text += f" ({counts.missing} missing)"
    return f"{text} ({counts.not_applicable} n/a)" if counts.not_applicable else text


def finding_words(finding: Finding) -> str:
    """Return `device time +37.5 %`, with `host overhead` where only wall time moved; the dimension where no metric decided."""
    if finding.metric is None:
        return finding.dimension.value
    title = METRICS[finding.metric].title
    change = f" {percent(finding.change)}" if finding.change is not None else ""
    return f"{title}{change}{', host overhead' if finding.is_host_overhead else ''}"


def beside_words(one: CellComparison, finding: Finding) -> str:
    """Return the text beside a finding: the other latency; beside compile time the tuning time, and the other way round."""
    if finding.is_host_overhead:
        return "host overhead"
    if finding.dimension is Dimension.COMPILE and finding.metric:
        return _beside_compile_time(one, "compile_cold_s" if finding.metric == "tuning_s" else "tuning_s")
    other = finding.beside
    return f"{METRICS[other.metric].title} {percent(other.adjusted)}" if other and other.adjusted is not None else ""


def measured_words(one: CellComparison, judged: Judged | None, write: Callable[[float | None], str] = percent) -> str:
    """Return `measured -16.0 %, eager -16.0 %` where the machine's part was removed from the change that is shown; else "".

    `write` writes a relative change.
    """
    change, adjusted = (judged.change, judged.adjusted) if judged else (None, None)
    if judged is None or change is None or adjusted is None or abs(change - adjusted) < SHOWN_AS_NONE:
        return ""
    eager = one.ratio(CONTROL[judged.metric]) if judged.metric in CONTROL else None
    return f"measured {write(change)}" + ("" if eager is None else f", eager {write(eager - 1)}")


def _beside_compile_time(one: CellComparison, metric: str) -> str:
    """Return `tuning 0.0 s -> 8.4 s`; empty where neither side is above the metric's floor."""
    values = [state.values.get(metric) for state in (one.base, one.new)]
    if max((number for number in values if number is not None), default=0.0) <= METRICS[metric].floor:
        return ""
    return f"{METRICS[metric].title} {_both_sides(one, metric)}"


def undecided_words(one: CellComparison, finding: Finding) -> str:
    """Return a text on a cell without a clear change: the changes that are ruled out, and the runs that would settle it."""
    if one.testbed_changed:
        return "measured on another testbed"
    judged = finding.judged
    if judged is None:
        return ""
    return ", ".join(filter(None, (ruled_out(judged.low, judged.high), further_runs(judged.more_runs))))


def eager_words(state: CellState) -> str:
    """Return `slower than eager (0.59x)` if the compiled program is slower than eager; else an empty text."""
    speedup = state.values.get("speedup") if state.passes else None
    return f"slower than eager ({speedup:.2f}x)" if speedup is not None and speedup < _NO_GAIN else ""


def remarks(one: CellComparison, finding: Finding) -> str:
    """Return the text beside a finding in a table: the other latency or what would settle it, and how it is to eager."""
    told = undecided_words(one, finding) if finding.verdict is Outcome.INCONCLUSIVE else beside_words(one, finding)
    eager = eager_words(one.new) if finding.dimension is Dimension.LATENCY else ""
    return ", ".join(filter(None, (told, measured_words(one, finding.judged), eager)))


def slower_than_eager(comparison: Comparison) -> tuple[int, str]:
    """Return how many cells of new are slower than eager, and a text that names the worst; 0 and "" for none."""
    worst = sorted((one for one in comparison.cells if eager_words(one.new)), key=lambda one: one.new.values["speedup"])
    if not worst:
        return 0, ""
    named = _first_of_models((one, f"{one.new.values['speedup']:.2f}x") for one in worst)
    before = sum(bool(eager_words(one.base)) for one in comparison.cells)
    return len(worst), f"{named}; {before} of base"


def verdict_counts(comparison: Comparison) -> list[tuple[Dimension, list[tuple[Outcome, str, str]]]]:
    """Return for each dimension its verdicts, each in words, `3 regressed`, and with the cells that changed most.

    The text on the cells is empty for a verdict that is no change.
    """
    return [
        (
            dimension,
            [
                (Outcome(word), f"{count} {called(word)}", _most_changed(comparison, dimension, Outcome(word)))
                for word, count in counts.items()
            ],
        )
        for dimension, counts in comparison.dimensions().items()
    ]


def dimension_lines(comparison: Comparison) -> list[str]:
    """Return a line for each dimension: the number of cells of each verdict, and the cells that changed most.

    The last line names the cells that are slower than eager, if any are.
    """
    lines = [
        f"{dimension.value}: " + ", ".join(f"{words} ({most})" if most else words for _, words, most in counts)
        for dimension, counts in verdict_counts(comparison)
    ]
    slower, named = slower_than_eager(comparison)
    return [*lines, *([f"slower than eager: {counted(slower, 'cell')} of new ({named})"] if slower else [])]


def _most_changed(comparison: Comparison, dimension: Dimension, verdict: Outcome) -> str:
    if verdict not in CHANGES:
        return ""
    found = _of(comparison, dimension, verdict)
    return _first_of_models((one, _change_words(one, finding)) for one, finding in found)


def _change_words(one: CellComparison, finding: Finding) -> str:
    """Return `+37.5 %`, or `0 -> 6` where the metric began at 0."""
    if finding.change is not None or finding.metric is None:
        return percent(finding.change)
    return _both_sides(one, finding.metric)


def _both_sides(one: CellComparison, metric: str) -> str:
    return " -> ".join(value(metric, state.values.get(metric)) for state in (one.base, one.new))


def _first_of_models(values: Iterable[tuple[CellComparison, str]]) -> str:
    """Return the models with their first value: a model counts once, however many configs it has."""
    first: dict[str, str] = {}
    for one, value in values:
        first.setdefault(_model(one), f"{_model(one)} {value}")
    return ", ".join([*islice(first.values(), _NAMED), *(["..."] if len(first) > _NAMED else [])])


def _of(comparison: Comparison, dimension: Dimension, verdict: Outcome) -> list[tuple[CellComparison, Finding]]:
    found = [
        (one, finding)
        for one in comparison.cells
        for finding in one.findings
        if (finding.dimension, finding.verdict) == (dimension, verdict)
    ]
    return sorted(found, key=lambda item: item[0].rank(item[1]))


def _model(one: CellComparison) -> str:
    return one.cell.model if one.cell.phase == "inference" else f"{one.cell.model} {one.cell.phase}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Number of models in which a dimension got worse or better; `most` is the cell that changed most, `finding` its change."""

    dimension: Dimension
    verdict: Outcome
    models: int
    most: CellComparison
    finding: Finding

    def parts(self, of: str, named: Callable[[CellComparison], str]) -> list[str]:
        """Return the pieces of `latency in 24 of 56 models (up to +37.5 %, T5Small)`.

        `of` is ` of 56 models`, `named` writes a cell.
        """
        words = f"{self.dimension.value} in {self.models}{of}"
        if self.verdict in (Outcome.BROKE, Outcome.FIXED):
            more = ", ..." if self.models > 1 else ""
            return [f"{counted(self.models, 'model')} {self.verdict} (", named(self.most), f"{more})"]
        if self.finding.change is None:
            return [f"{words} (", named(self.most), ")"]
        most = "up to " if self.models > 1 else ""
        return [f"{words} ({most}{percent(self.finding.change)}, ", named(self.most), ")"]


def claims(comparison: Comparison) -> list[Claim]:
    """Return the claims on changes for the worse, then for the better, each in the order of the dimensions.

    Cells that broke come before other changes for the worse, cells that were fixed before other changes for the better.
    """
    found = []
    for verdict in _CLAIMED:
        for dimension in Dimension:
            if changed := _of(comparison, dimension, verdict):
                found.append(Claim(dimension, verdict, len(_models(one for one, _ in changed)), *changed[0]))
    return found


#: Verdicts that the verdict on the whole counts apart, and verdicts of cells without a judgement.
_SAID_APART = (Outcome.MISSING, Outcome.FLAKY, Outcome.STILL_FAILING, Outcome.ENVIRONMENT_CHANGED)
_NOT_JUDGED = (*_SAID_APART, Outcome.INCONCLUSIVE)


def sentence_parts(comparison: Comparison, named: Callable[[CellComparison], str] = _model) -> list[str]:
    """Return the verdict on the whole by dimension, in pieces to be joined; `named` writes a cell.

    Undecided models are reported as undecided, and never as a sign that nothing got worse. Cells that fail in new, and that
    base says nothing about, are reported, too: base has not planned, not measured or not judged them.
    """
    measured = _models(one for one in comparison.cells if one.findings)
    unjudged = failing_alone(comparison)
    failing = (
        [f"Failing in new, not judged in base: {counted(len(unjudged), 'cell')} ({_named_models(unjudged)}). "]
        if unjudged
        else []
    )
    if not measured:
        return ["".join(["Nothing was measured on both sides. ", *failing]).rstrip()]
    found = claims(comparison)
    worse, better = ([one for one in found if (one.verdict in WORSE) is is_worse] for is_worse in (True, False))
    changed = _models(one for one in comparison.cells if any(f.verdict in WORSE for f in one.findings))
    undecided = _models(comparison.of(Outcome.INCONCLUSIVE)) - changed
    rest = {word: [one for one in comparison.cells if one.outcome.verdict is word] for word in _SAID_APART}
    judged = _models(one for one in comparison.cells if one.findings and one.outcome.verdict not in _NOT_JUDGED)
    missing, elsewhere = rest[Outcome.MISSING], rest[Outcome.ENVIRONMENT_CHANGED]
    parts = [*_claimed("New is worse than base", worse, len(measured), named), *failing]
    if not worse and judged - undecided and not missing:
        parts.append(
            "Nothing is known to have got worse. " if undecided or elsewhere or unjudged else "Nothing got worse. "
        )
    parts += _claimed("Better", better, len(measured), named)
    if undecided:
        parts.append(f"Undecided: {len(undecided)} of {counted(len(measured), 'model')}. ")
    parts += [f"{called(word).capitalize()}: {counted(len(cells), 'cell')}. " for word, cells in rest.items() if cells]
    unchanged = measured - _models(one for cells in rest.values() for one in cells)
    if unchanged and not found and not undecided and not missing and not unjudged:
        parts.append(f"Unchanged: {counted(len(unchanged), 'model')}. ")
    parts[-1] = parts[-1].rstrip()
    return parts


def failing_alone(comparison: Comparison) -> list[CellComparison]:
    """Return the cells that fail in new, and that are no finding, since base has no result that could be better or as bad."""
    return [one for one in comparison.cells if one.new.fails and one.outcome.verdict is None]


def _named_models(cells: Sequence[CellComparison]) -> str:
    """Name the models of cells, at most `_NAMED` of them."""
    models = list(dict.fromkeys(one.cell.model for one in cells))
    return ", ".join(models[:_NAMED]) + (", ..." if len(models) > _NAMED else "")


def sentence(comparison: Comparison) -> str:
    """Return the verdict on the whole by dimension, as a text."""
    return "".join(sentence_parts(comparison))


def _claimed(head: str, found: Sequence[Claim], of: int, named: Callable[[CellComparison], str]) -> list[str]:
    if not found:
        return []
    parts, whole = [f"{head}: "], f" of {counted(of, 'model')}"
    for place, claim in enumerate(found):
        parts += [", "] if place else []
        parts += claim.parts(whole, named)
        whole = whole if claim.dimension is Dimension.CORRECTNESS else ""  # only the first number needs "of 56 models"
    return [*parts, ". "]


def _models(cells: Iterable[CellComparison]) -> set[tuple[str, str]]:
    return {(one.cell.suite, one.cell.model) for one in cells}


def noise_line(comparison: Comparison, metrics: Iterable[str] | None = None) -> str:
    """Return the typical noise per metric, its number of repeats, and the drift that was removed; if unknown, what to do."""
    facts = comparison.noise
    names = tuple(facts) if metrics is None else tuple(metrics)
    known = {name: noise for name in names if (noise := facts[name].typical) is not None}
    latencies = {name for name in names if METRICS[name].dimension is Dimension.LATENCY}
    if not known or (latencies and not latencies & known.keys()):
        return _NOISE_OWN if any(facts[name].repeats for name in names) else _NOISE_UNKNOWN
    typical = ", ".join(f"{METRICS[name].title} {100 * noise:.1f} %" for name, noise in known.items())
    repeats = [int(facts[name].repeats) for name in known]
    few, many = min(repeats), max(repeats)
    learned = counted(many, "repeat") if few == many else f"{few:,} to {many:,} repeats"
    source = f"learned from {learned}" if many else "assumed, since nothing was measured twice (docs/statistics.md)"
    return " ".join((f"Noise from run to run: {typical}, {source}.", *drift_lines(comparison, known)))


def drift_lines(comparison: Comparison, metrics: Iterable[str] | None = None) -> list[str]:
    """Return a sentence with the drift of the machine that was removed from each metric; an empty list where none was."""
    facts = comparison.noise
    names = tuple(facts) if metrics is None else tuple(metrics)
    drifts = {name: drift for name in names if abs(drift := (facts[name].drift or 0.0)) >= SHOWN_AS_NONE}
    corrected = ", ".join(f"{METRICS[name].title} {percent(drift)}" for name, drift in drifts.items())
    by = " by the yardsticks" if comparison.eager and comparison.eager.by_yardstick else ""
    return [f"Corrected for machine drift{by}: {corrected}."] if corrected else []


_NOISE_UNKNOWN = (
    "The noise from run to run is not known yet: no cell was measured twice at one commit. Only statuses, leaks and what "
    "doubled or halved can be judged. Measure one side again: run inductor-watch nightly on the same commit and machine."
)
_NOISE_OWN = (
    f"Noise from run to run: fewer than {FEWEST_REPEATED} cells have repeats. Each cell is judged by its own repeats. Of a cell "
    "without repeats only a change by a factor of two or more is judged."
)
