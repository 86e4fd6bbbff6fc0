"""The search for the first bad build: which one to look at next, how often to measure it, and what is known at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from analysis.history.bisection import Word, looks
from jobs.bisect.judges import Judge, Judged
from jobs.bisect.log import BisectionLog, Reading
from jobs.pool.child import ChildError

#: Measures one run of a build: its name, and which run of it this is, from 1 on. Raises ChildError where it cannot.
Measure = Callable[[str, int], Reading]
Tell = Callable[[str], None]


class EndError(click.ClickException):
    """One of the two ends cannot be judged."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What a bisection found.

    `ends` compares the two ends. Where they differ, `last_good` and `first_bad` are the nearest decided builds around the
    change and `step` compares them; `between` are builds between these two that nobody could decide, with the reason:
    then the first bad one is one of them or `first_bad`.
    """

    ends: Judged
    last_good: str
    first_bad: str
    step: Judged | None = None
    between: dict[str, str] = field(default_factory=dict)
    is_open: bool = False

    @property
    def word(self) -> str:
        """`found`, `range` (builds between could not be had), or `inconclusive`."""
        if self.ends.word is not Word.DIFFERENT or self.is_open:
            return "inconclusive"
        return "range" if self.between else "found"

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "answer": self.word,
            "last_good": self.last_good,
            "first_bad": self.first_bad,
            "between": self.between,
            "ends": {"word": self.ends.word.value, **self.ends.figures},
            "step": None if self.step is None else {"word": self.step.word.value, **self.step.figures},
        }


class Bisection:
    """A search over builds (oldest first, the good end and the bad end among them) by measuring runs of them.

    At least `least` runs of a build are made and `most` at the most. `in_turn`: the ends are measured in turn, so that a
    machine that slows down meets both alike; else each as a whole, where going from one build to another is costly.
    """

    def __init__(
        self,
        names: Sequence[str],
        measure: Measure,
        judge: Judge,
        log: BisectionLog,
        tell: Tell,
        *,
        least: int,
        most: int,
        in_turn: bool = True,
    ) -> None:
        self._names, self._measure, self._judge, self._log, self._tell = list(names), measure, judge, log, tell
        self._looks, self._in_turn = looks(least, most), in_turn
        self._good, self._bad = self._names[0], self._names[-1]
        #: How many runs of each build count so far: a log that is taken up again may have more.
        self._counted: dict[str, int] = {}
        self._undecided: dict[str, str] = {}
        self._open: set[str] = set()

    def run(self) -> Answer:
        """Bisects.

        Raises:
            EndError: an end's cell cannot be judged, e.g. fails where a latency is asked for.
            ChildError: an end cannot be measured.
        """
        ends = self._compare_ends()
        if ends.word is not Word.DIFFERENT:
            return self._answer(ends, 0, len(self._names) - 1)
        low, high = 0, len(self._names) - 1
        while (at := self._next(low, high)) is not None:
            word = self._decide(self._names[at])
            low, high = (at if word is Word.GOOD else low), (at if word is Word.BAD else high)
        return self._answer(ends, low, high)

    def _next(self, low: int, high: int) -> int | None:
        """The untried build nearest to the middle between the two; None where there is none."""
        untried = [at for at in range(low + 1, high) if self._names[at] not in self._undecided]
        return min(untried, key=lambda at: abs(2 * at - low - high), default=None)

    def _compare_ends(self) -> Judged:
        for size in self._looks:
            # In turn: good, bad, good, bad; or all of good, then all of bad.
            for count in range(1, size + 1) if self._in_turn else [size]:
                for name in (self._good, self._bad):
                    self._fill(name, count)
            found = self._judge.ends(self._runs(self._good), self._runs(self._bad), {})
            self._log.decide(build=f"{self._good}..{self._bad}", word=found.word.value, **found.figures)
            if found.word is not Word.OPEN:
                break
        self._tell(f"ends: good {self._shown(self._good)}, bad {self._shown(self._bad)}: {found.word}, {found.said}")
        return found

    def _decide(self, name: str) -> Word:
        """Measures a build until its side is known; what cannot be decided is put aside."""
        try:
            for size in self._looks:
                self._fill(name, size)
                found = self._judge.side(
                    self._runs(name), self._runs(self._good), self._runs(self._bad), self._others(name)
                )
                self._log.decide(build=name, word=found.word.value, **found.figures)
                if found.word is not Word.OPEN:
                    break
        except (ChildError, EndError) as error:
            self._undecided[name] = error.message
            self._log.write("skipped", build=name, why=error.message)
            self._tell(f"{name}: skipped: {error.message}")
            return Word.OPEN
        if found.word is Word.OPEN:
            self._undecided[name] = f"inconclusive after {len(self._runs(name))} runs: {found.said}"
            self._open.add(name)
        self._tell(f"{name}: {'inconclusive' if found.word is Word.OPEN else found.word}, {found.said}")
        return found.word

    def _fill(self, name: str, count: int) -> None:
        """Makes runs of a build until there are so many, and sees that they can be judged."""
        while (made := self._counted.get(name, 0)) < count:
            if len(self._log.runs_of(name)) <= made:
                found = self._measure(name, made + 1)
                self._log.add_run(name, found)
                value = "" if found.value is None else f" {found.value:.4g}"
                self._tell(f"{name}, run {made + 1}: {found.status}{value}")
            self._counted[name] = made + 1
            self._check(name)

    def _check(self, name: str) -> None:
        if why := self._judge.unfit(self._runs(name)):
            raise EndError(f"{name} cannot be judged: {why}")

    def _answer(self, ends: Judged, low: int, high: int) -> Answer:
        good, bad = self._names[low], self._names[high]
        between = {name: self._undecided[name] for name in self._names[low + 1 : high] if name in self._undecided}
        step = None
        if ends.word is Word.DIFFERENT:
            step = self._judge.ends(self._runs(good), self._runs(bad), self._others(good, bad))
        found = Answer(ends, good, bad, step, between, bool(self._open & between.keys()))
        self._log.write("answer", **found.to_json())
        return found

    def _others(self, *names: str) -> dict[str, list[Reading]]:
        """The runs of every other build between the ends."""
        return {name: self._runs(name) for name in self._names[1:-1] if name not in names and self._runs(name)}

    def _runs(self, name: str) -> list[Reading]:
        return self._log.runs_of(name)[: self._counted.get(name, 0)]

    def _shown(self, name: str) -> str:
        return f"{name} {self._judge.shown(self._runs(name))}"
