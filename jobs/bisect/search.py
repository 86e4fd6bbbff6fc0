"""The search for the first bad build: the next build to measure, the number of its runs, and a log to continue from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from analysis.history.bisection import Word, looks
from jobs.bisect.judges import Judge, Judged, Reading
from jobs.builds.build_options import BuildError
from jobs.pool.child import ChildError

#: The file of a search's log, in the folder with the bundles.
LOG_NAME = "bisect.jsonl"
#: A function that measures one run of a build, given its name and the number of the run, from 1 on. Raises `ChildError`.
Measure = Callable[[str, int], Reading]


#: A function that returns a build in the mapping that must behave as the given build, or None. The mapping has the code of each
#: build, if it is known. Raises `ChildError` if the given build cannot be made.
SameAs = Callable[[str, Mapping[str, str | None]], str | None]


class EndError(click.ClickException):
    """An error for an end of the range that cannot be judged."""

    exit_code = 3


class BisectionLog:
    """A file of JSON lines, each with `event` and `at`; from its runs a search makes the same decisions again."""

    def __init__(self, path: Path, asked: Mapping[str, Any]) -> None:
        """Open the log, or begin it with the request. Raise `BuildError` for runs of another request, or no log."""
        self.path = path
        self._runs: dict[str, list[Reading]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            events = _read_events(path)
            for event in events:
                if event["event"] == "run":
                    fields = {name: event[name] for name in Reading.__dataclass_fields__ if name in event}
                    self._runs.setdefault(event["build"], []).append(Reading(**fields))
        except (ValueError, KeyError, TypeError) as error:
            raise BuildError(f"{path} is no log of a bisection: name another folder with --out") from error
        if events and events[0].get("asked") != json.loads(json.dumps(asked)):
            if self._runs:
                raise BuildError(f"{path} is the log of another bisection: name another folder with --out")
            path.unlink()  # it failed before any run, and the user corrected the request
            events = []
        decided = [event for event in events if event["event"] == "decided"]
        self._decided = [{name: value for name, value in event.items() if name != "at"} for event in decided]
        if not events:
            self.write("asked", asked=asked)

    def runs_of(self, name: str) -> list[Reading]:
        """Return the runs of a build, in the order in which they were made."""
        return list(self._runs.get(name, ()))

    def add_run(self, name: str, reading: Reading) -> None:
        """Add a run of a build, and write it to the file."""
        self._runs.setdefault(name, []).append(reading)
        self.write("run", build=name, number=len(self._runs[name]), **asdict(reading))

    def decide(self, **decision: Any) -> None:
        """Write a decision, unless it is in the log: a search that continues makes the same decisions again."""
        if (event := {"event": "decided", **decision}) not in self._decided:
            self._decided.append(event)
            self.write(**event)

    def write(self, event: str, **fields: Any) -> None:
        """Append one line, and return when it is on disk."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"event": event, "at": moment, **fields}) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def _read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a log, and cut off an incomplete line that a kill left. Raises `ValueError` for another file."""
    if not path.exists():
        return []
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if complete != data:
        os.truncate(path, len(complete))
    return [json.loads(line) for line in complete.splitlines()]


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a bisection: `ends` compares the two ends, `step` the nearest decided builds around the change.

    `between` has the builds between the nearest decided ones that could not be decided, with the reason: then the first bad
    build is one of them or `first_bad`. `is_open` says that one of them stayed open after all its runs.
    """

    ends: Judged
    last_good: str
    first_bad: str
    step: Judged | None = None
    between: dict[str, str] = field(default_factory=dict)
    is_open: bool = False

    @property
    def word(self) -> str:
        """The answer in a word: `found`, `range` (builds between could not be measured), or `inconclusive`."""
        if self.ends.word is not Word.DIFFERENT or self.is_open:
            return "inconclusive"
        return "range" if self.between else "found"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "answer": self.word,
            "last_good": self.last_good,
            "first_bad": self.first_bad,
            "between": self.between,
            "ends": {"word": self.ends.word.value, **self.ends.figures},
            "step": None if self.step is None else {"word": self.step.word.value, **self.step.figures},
        }


@dataclass
class Bisection:
    """A search over builds (`names`, from the good end to the bad end) by `least` to `most` runs of each.

    `in_turn`: the ends are measured in turn, so that a machine that slows down affects both alike; else all runs of one end come
    first, for builds between which switching is costly. `same_as` saves the runs of builds that behave as a decided build.
    """

    names: Sequence[str]
    measure: Measure
    judge: Judge
    log: BisectionLog
    tell: Callable[[str], None]
    least: int
    most: int
    in_turn: bool = True
    same_as: SameAs | None = None
    #: The side of each decided build, and the measured build that stands for a build that is not measured.
    _sides: dict[str, Word] = field(default_factory=dict)
    _measured: dict[str, str] = field(default_factory=dict)
    #: The number of runs of each build that count so far: the log may have more.
    _counted: dict[str, int] = field(default_factory=dict)
    _undecided: dict[str, str] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def run(self) -> Answer:
        """Bisect, and return the answer. Raises `EndError` if an end cannot be judged, `ChildError` if it cannot be measured."""
        ends = self._compare_ends()
        self._sides |= {self.names[0]: Word.GOOD, self.names[-1]: Word.BAD}
        low, high = 0, len(self.names) - 1
        while ends.word is Word.DIFFERENT and (at := self._next(low, high)) is not None:
            word = self._decide(self.names[at])
            low, high = (at if word is Word.GOOD else low), (at if word is Word.BAD else high)
        good, bad = self.names[low], self.names[high]
        between = {name: self._undecided[name] for name in self.names[low + 1 : high] if name in self._undecided}
        step = None
        if ends.word is Word.DIFFERENT:
            step = self.judge.ends(self._runs(good), self._runs(bad), self._others(good, bad))
        answer = Answer(ends, good, bad, step, between, bool(self._open & between.keys()))
        self.log.write("answer", **answer.to_json())
        return answer

    def _next(self, low: int, high: int) -> int | None:
        """Return the index of the untried build nearest to the middle between two indices; None if there is none."""
        untried = [at for at in range(low + 1, high) if self.names[at] not in self._undecided]
        return min(untried, key=lambda at: abs(2 * at - low - high), default=None)

    def _compare_ends(self) -> Judged:
        good, bad = self.names[0], self.names[-1]
        for size in looks(self.least, self.most):
            # In turn: good, bad, good, bad; or all of good, then all of bad.
            for count in range(1, size + 1) if self.in_turn else [size]:
                for name in (good, bad):
                    self._fill(name, count)
            judged = self.judge.ends(self._runs(good), self._runs(bad), {})
            self.log.decide(build=f"{good}..{bad}", word=judged.word.value, **judged.figures)
            if judged.word is not Word.OPEN:
                break
        shown = [self.judge.shown(self._runs(name)) for name in (good, bad)]
        self.tell(f"ends: good {good} {shown[0]}, bad {bad} {shown[1]}: {judged.word}, {judged.text}")
        return judged

    def _decide(self, name: str) -> Word:
        """Measure a build until its side is known, and return the side; a build that cannot be decided is put aside."""
        try:
            if (same := self._same(name)) is not None:
                return same
            for size in looks(self.least, self.most):
                self._fill(name, size)
                good, bad = self._runs(self.names[0]), self._runs(self.names[-1])
                judged = self.judge.side(self._runs(name), good, bad, self._others(name))
                self.log.decide(build=name, word=judged.word.value, **judged.figures)
                if judged.word is not Word.OPEN:
                    break
        except (ChildError, EndError) as error:
            self._undecided[name] = error.message
            self.log.write("skipped", build=name, why=error.message)
            self.tell(f"{name}: skipped: {error.message}")
            return Word.OPEN
        if judged.word is Word.OPEN:
            self._undecided[name] = f"inconclusive after {len(self._runs(name))} runs: {judged.text}"
            self._open.add(name)
        else:
            self._sides[name] = judged.word
        self.tell(f"{name}: {'inconclusive' if judged.word is Word.OPEN else judged.word}, {judged.text}")
        return judged.word

    def measured(self, name: str) -> str:
        """Return the build whose runs stand for a build: the build itself, unless it was not measured."""
        return self._measured.get(name, name)

    def _same(self, name: str) -> Word | None:
        """Return the side of a build that behaves as a decided build, so that it need not be measured; else None."""
        codes = {
            other: _one({run.code for run in self._runs(other)}) for other in self._sides if other not in self._measured
        }
        other = self.same_as(name, codes) if self.same_as else None
        if other is None:
            return None
        self._measured[name], self._sides[name] = other, self._sides[other]
        self.log.decide(build=name, word=self._sides[name].value, same_as=other)
        self.tell(f"{name}: {self._sides[name]}, the same program as {other}")
        return self._sides[name]

    def _fill(self, name: str, count: int) -> None:
        """Measure runs of a build until it has `count`, and raise `EndError` if they cannot be judged."""
        while (made := self._counted.get(name, 0)) < count:
            if len(self.log.runs_of(name)) <= made:
                reading = self.measure(name, made + 1)
                self.log.add_run(name, reading)
                self.tell(f"{name}, run {made + 1}: {reading}")
            self._counted[name] = made + 1
            if why := self.judge.unfit(self._runs(name)):
                raise EndError(f"{name} cannot be judged: {why}")

    def _others(self, *names: str) -> dict[str, list[Reading]]:
        """Return the runs of each build between the ends, without these builds."""
        left_out = {*map(self.measured, names), *self._measured}
        return {name: self._runs(name) for name in self.names[1:-1] if name not in left_out and self._runs(name)}

    def _runs(self, name: str) -> list[Reading]:
        measured = self.measured(name)
        return self.log.runs_of(measured)[: self._counted.get(measured, 0)]


def _one(codes: set[str | None]) -> str | None:
    """Return the only code in a set; None if a build's runs have several codes."""
    return codes.pop() if len(codes) == 1 else None
