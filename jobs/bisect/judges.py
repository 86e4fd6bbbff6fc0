"""What tells good from bad: a metric's level, or whether the cell passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Protocol

from analysis.compare.verdicts import SMALLEST
from analysis.history.bisection import Finding, Word, compare_ends, find_side
from analysis.history.leaks import LEAK
from collector.metrics import METRICS
from collector.vocabulary import Status
from jobs.bisect.log import Reading

#: What is counted, or can be 0: compared as it is. All other metrics are compared by their ln.
COUNTS = frozenset(metric.name for metric in METRICS.values() if metric.is_count) | {LEAK}
#: The smallest relative change that matters of a metric that is not judged elsewhere, and of a count half of one.
_SMALLEST, _HALF = 0.02, 0.5

Others = Mapping[str, Sequence[Reading]]


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision in words and figures: `said` for a person, `figures` for the log."""

    word: Word
    said: str
    figures: dict[str, Any]


class Judge(Protocol):
    """Decides from runs."""

    def shown(self, runs: Sequence[Reading]) -> str:
        """What some runs say, in a few words."""

    def unfit(self, runs: Sequence[Reading]) -> str | None:
        """Why these runs of a build cannot be judged at all; None if they can."""

    def ends(self, good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """`DIFFERENT`, `SAME` or `OPEN`."""

    def side(self, runs: Sequence[Reading], good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """`GOOD`, `BAD` or `OPEN`."""


@dataclass(frozen=True, slots=True)
class MetricJudge:
    """Judges by the level of a metric; `level` is the p that decides, `smallest` the relative change (or count) that matters."""

    metric: str
    level: float
    smallest: float | None = None

    @property
    def is_count(self) -> bool:
        """Whether values are compared as they are."""
        return self.metric in COUNTS

    def unfit(self, runs: Sequence[Reading]) -> str | None:
        """A run that failed, or did not measure the metric."""
        for run in runs:
            if run.status != Status.PASS.value:
                return (
                    f"its cell ends in {run.status}, without {self.metric}: use --metric status to find what broke it"
                )
            if run.value is None or not math.isfinite(run.value) or (not self.is_count and run.value <= 0):
                return f"its run has no {self.metric}"
        return None

    def ends(self, good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """Whether the levels differ by what matters."""
        found = compare_ends(self._values(good), self._values(bad), self.level, self._least, self._all(others))
        return Judged(found.word, f"{self._spell(found)}, p {found.p:.2g}", self._figures(found, [*good, *bad]))

    def side(self, runs: Sequence[Reading], good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """On which side of the middle the level is."""
        values, start, end = (self._values(some) for some in (runs, good, bad))
        found = find_side(values, start, end, self.level, self._all(others))
        part = (fmean(values) - fmean(start)) / (fmean(end) - fmean(start)) if fmean(end) != fmean(start) else math.nan
        said = f"{self.shown(runs)}, {part:.0%} of the way from good to bad, p {found.p:.2g}"
        return Judged(found.word, said, self._figures(found, runs))

    def shown(self, runs: Sequence[Reading]) -> str:
        """The mean of some runs and how many these are."""
        values = self._values(runs)
        mean = fmean(values) if self.is_count else math.exp(fmean(values))
        unit = METRICS[self.metric].unit
        return f"{mean:.4g} {unit or self.metric} ({len(values)} runs)"

    @property
    def _least(self) -> float:
        if self.is_count:
            return _HALF if self.smallest is None else self.smallest
        return math.log1p(SMALLEST.get(self.metric, _SMALLEST) if self.smallest is None else self.smallest)

    def _values(self, runs: Sequence[Reading]) -> list[float]:
        values = [run.value for run in runs if run.value is not None]
        return values if self.is_count else [math.log(value) for value in values]

    def _all(self, others: Others) -> dict[str, list[float]]:
        return {name: self._values(runs) for name, runs in others.items() if runs and not self.unfit(runs)}

    def _spell(self, found: Finding) -> str:
        if self.is_count:
            return f"{found.change:+.3g} ({found.low:+.3g} to {found.high:+.3g})"
        shares = [math.expm1(value) for value in (found.change, found.low, found.high)]
        return "{:+.1%} ({:+.1%} to {:+.1%})".format(*shares)

    def _figures(self, found: Finding, runs: Sequence[Reading]) -> dict[str, Any]:
        numbers = {name: value for name, value in asdict(found).items() if name != "word"}
        plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {"scale": "count" if self.is_count else "ln", **plain, "values": [run.value for run in runs]}


@dataclass(frozen=True, slots=True)
class StatusJudge:
    """Judges by whether the cell passes: good does in every run, bad does in none. Where runs disagree it is open."""

    def unfit(self, runs: Sequence[Reading]) -> str | None:
        """Cells that were not tried say nothing."""
        untried = {run.status for run in runs} & {Status.SKIPPED.value, Status.UNAVAILABLE.value}
        return f"its cell is {untried.pop()} there" if untried else None

    def ends(self, good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """`DIFFERENT` where every run of one end passes and none of the other."""
        words = self._word(good), self._word(bad)
        same = Word.OPEN if Word.OPEN in words else Word.SAME
        word = Word.DIFFERENT if words == (Word.GOOD, Word.BAD) else same
        return Judged(word, f"{self.shown(good)} against {self.shown(bad)}", self._figures([*good, *bad]))

    def side(self, runs: Sequence[Reading], good: Sequence[Reading], bad: Sequence[Reading], others: Others) -> Judged:
        """The side that all runs agree upon."""
        return Judged(self._word(runs), self.shown(runs), self._figures(runs))

    def shown(self, runs: Sequence[Reading]) -> str:
        """How often each status came."""
        counts: dict[str, int] = {}
        for run in runs:
            counts[run.status] = counts.get(run.status, 0) + 1
        return ", ".join(f"{number} x {status}" for status, number in counts.items())

    def _word(self, runs: Sequence[Reading]) -> Word:
        passed = {run.status == Status.PASS.value for run in runs}
        return Word.OPEN if len(passed) != 1 else Word.GOOD if passed.pop() else Word.BAD

    def _figures(self, runs: Sequence[Reading]) -> dict[str, Any]:
        return {"statuses": [run.status for run in runs]}
