"""The course of a check: ask for the code of both sides, then time in turn what is open, until all is decided.

Where the census knows the code of a cell (`jobs.checking.check_sides`), equal code decides it at once, and other code is timed
before the cells of which it is not known; those are compiled on both sides first.
"""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from analysis.compare.cell_comparison import CHANGES, CellComparison, Judged, Outcome
from analysis.compare.compare_sides import compare_named
from analysis.present import finding_words
from collector.bundle import check_bundle
from collector.census.gpu_models import CensusError
from collector.metrics import METRICS, MIN_EFFECT
from collector.process.orphans import PREFIX
from collector.settings import Settings
from collector.usage_errors import BundleError, ExpectedError
from collector.vocabulary import Cell
from db.engine import open_store
from db.queries.side_rows import CellState
from db.store_errors import SideError, counted
from jobs.checking.check_sides import CheckedSide, CodeAnswer, CodeCensus, CodeRecord, OtherOption, serving
from jobs.options import Storage
from jobs.output.terminal import tell
from jobs.plan.planning import Plan
from jobs.pool.session import measure_and_store, storing

#: Compilations of each side after which a compile time that is still open stays open.
MOST_COMPILES = 6
#: Compile times of a pass have their host's load in common, so a change of them needs more rounds before it counts.
CONFIRMED_COMPILING = 4
#: A change counts when so many rounds show it: the first one may be chance.
_CONFIRMED = 2
#: Rounds after which a cell that is too noisy for the rest of the budget is given up: earlier its noise is not known well.
_PATIENCE = 4

#: A change of compile time is what noise looks like if it is less than this part of half its interval, unless it is large.
#: Two passes of one commit on an H200, eight workers each, differed by up to 22 %, and by 31 % beside another GPU's work.
_SUSPICIOUS, _LARGE = 0.6, math.log(1.25)

#: Metrics of compiling, and of running, the one that decides first.
OF_COMPILING = ("compile_cold_s", "compile_instructions")
_OF_RUNNING = ("compiled_ms", "compiled_kernel_ms")


class Need(StrEnum):
    """What is to be done with a cell."""

    NOTHING = "nothing"
    COMPILE = "compile"
    TIME = "time"
    #: The verdict is final, but only one side has a compile time without autotuning. Compile the other side again.
    COMPARE_COMPILING = "compare compiling"


#: What a cell may need that has its verdict.
SETTLED = (Need.NOTHING, Need.COMPARE_COMPILING)


def need(row: CellComparison, timed: int, compiled: int, is_acting: bool) -> Need:
    """Return what a cell needs after it was timed in `timed` rounds and compiled in `compiled` ones.

    `is_acting`: files differ that act at run time, so equal code proves nothing.
    """
    if row.outcome in (Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY):
        if (timed or compiled) >= _CONFIRMED:
            return Need.NOTHING
        return Need.TIME if timed else Need.COMPILE
    if not row.passes:
        # Where only the code is known, and is another one, nothing was measured.
        return Need.TIME if row.outcome is Outcome.INCONCLUSIVE else Need.NOTHING
    if (is_acting or not has_same_code(row)) and _is_time_open(row, timed):
        return Need.TIME
    if lacks_compile_time(row.base) or lacks_compile_time(row.new):
        return Need.COMPARE_COMPILING if compiled <= _CONFIRMED else Need.NOTHING
    return Need.COMPILE if any(_is_open(row, name, compiled) for name in OF_COMPILING) else Need.NOTHING


def has_same_code(row: CellComparison) -> bool:
    """Whether both sides generated the same code. Not known counts as no."""
    return row.code_changed is False


def is_unconfirmed(row: CellComparison, rounds: int) -> bool:
    """Whether the verdict is of a compile time, and too few rounds show it."""
    return row.metric in OF_COMPILING and rounds < CONFIRMED_COMPILING


def lacks_compile_time(state: CellState) -> bool:
    """Whether a side has compiled, but only while it tuned, which is no compile time (`collector.measure.cell`)."""
    return "compile_cold_s" not in state.values


def _is_time_open(row: CellComparison, timed: int) -> bool:
    judged = [row.judged[name] for name in _OF_RUNNING if name in row.judged]
    if not timed or not judged:
        return not timed
    # Wall-clock time decides, and device time where that is inconclusive, as for the verdict of the cell.
    decided = [one for one in judged if one.verdict is not Outcome.INCONCLUSIVE]
    memory = row.judged.get("compiled_peak_bytes")
    changed = {one.verdict for one in (*decided[:1], memory) if one} & set(CHANGES)
    if decided and row.outcome is not Outcome.INCONCLUSIVE:
        return bool(changed) and timed < _CONFIRMED
    return timed < _PATIENCE or any(one.more_runs != float("inf") for one in judged)


def _is_open(row: CellComparison, name: str, rounds: int) -> bool:
    """Whether a metric of compiling differs by what matters, and another compilation may show that it is no chance."""
    judged = row.judged.get(name)
    if judged is None or judged.change is None or abs(judged.change) <= MIN_EFFECT[name]:
        return False
    if judged.verdict in CHANGES:
        return rounds < CONFIRMED_COMPILING
    return judged.verdict is Outcome.INCONCLUSIVE and rounds < MOST_COMPILES and _is_suspicious(judged)


def _is_suspicious(judged: Judged) -> bool:
    likely = math.inf  # the noise may not be known yet
    if judged.low is not None and judged.high is not None:
        likely = _SUSPICIOUS * (math.log1p(judged.high) - math.log1p(judged.low)) / 2
    return abs(math.log1p(judged.adjusted or 0.0)) >= min(likely, _LARGE)


#: After so many rounds a cell that is still open waits until the others have had as many.
_DEEP = 2
#: So many cells of equal code are compiled for their compile time, where that may have changed: the most important ones.
_SAMPLE = 4
#: Outcomes that a line about a round counts.
_TOLD = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.BROKE, Outcome.FIXED)


@dataclass
class Check:
    """A check under way: the cells in the order of importance, and what both sides have measured so far.

    `acting` are the files that differ and act at run time. Without any, cells of equal code are not timed. `deadline` is of
    `time.monotonic`. With a `census` the code of the cells is asked for first; `answers` are what it said. `other` is an
    option of Inductor that new has, where the sides differ by that. `compares_compiling`: compile times may differ, so that of
    some cells of equal code is measured at the end. `timed` and `compiled` count the rounds in which a cell was timed, and
    those in which it was compiled and not found compiled, on both sides. `rows` are the comparison's after the last round, all
    by cell_id of base.
    """

    base: CheckedSide
    new: CheckedSide
    cells: Sequence[Cell]
    settings: Settings
    storage: Storage
    deadline: float
    acting: Sequence[str] = ()
    census: CodeCensus | None = None
    other: OtherOption | None = None
    compares_compiling: bool = True
    answers: dict[str, CodeAnswer] = field(default_factory=dict)
    timed: Counter[str] = field(default_factory=Counter)
    compiled: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    rows: dict[str, CellComparison] = field(default_factory=dict)
    _records: list[CodeRecord] = field(default_factory=list)
    _servers: ExitStack = field(default_factory=ExitStack)
    _serves: bool = False
    _programs: str = ""

    @cached_property
    def on_new(self) -> dict[str, Cell]:
        """The cells of new by the cell_id of those of base, where an option is the other side; else empty."""
        return self.other.cells(self.cells) if self.other else {}

    @property
    def sides_words(self) -> list[str]:
        """The words of the command that name the sides."""
        return (
            [*filter(None, [self.base.ref]), "--against", self.other.text]
            if self.other
            else [self.base.ref, self.new.ref]
        )

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.deadline - time.monotonic()

    def run(self) -> None:
        """Measures until every cell is decided or the time is over. What an interruption or a lost GPU leaves is stored, too."""
        try:
            with _to_stderr(), TemporaryDirectory(prefix=PREFIX) as self._programs, ExitStack() as self._servers:
                self._ask_census()
                while self.left_s > 0 and (wanted := self._wanted()):
                    self._round(*wanted)
                    self._tell_round()
                self._store_answers()
        except (KeyboardInterrupt, SystemExit, ExpectedError):
            with _to_stderr():
                self._store_answers()
                self._store_unfinished()
            raise

    @property
    def same_code(self) -> list[Cell]:
        """The cells that the census decided: both sides get the same code, and nothing acts beside it."""
        return [] if self.acting else [cell for cell in self.cells if self._is_same(cell) is True]

    def _is_same(self, cell: Cell) -> bool | None:
        answer = self.answers.get(cell.cell_id)
        return answer.is_same if answer else None

    def _ask_census(self) -> None:
        """Ask for the code of all cells; a census that cannot be taken is told in a line."""
        if self.census is None:
            return
        tell(f"census: the code of {counted(len(self.cells), 'cell')} on both sides, {self.left_s / 60:.1f} min left")
        began = time.monotonic()
        try:
            with closing(self.census.ask(self.cells, self.deadline)) as found:
                for answer in found:
                    self._take_answer(answer)
        except CensusError as error:
            tell(f"no census: {error}")
        counts = Counter(self._is_same(cell) for cell in self.cells)
        words = f"{counts[True]} unchanged, {counts[False]} with other code, {counts[None]} not known"
        tell(f"census: {words} ({time.monotonic() - began:.0f} s)")

    def _take_answer(self, answer: CodeAnswer) -> None:
        self.answers[answer.cell.cell_id] = answer
        if answer.is_same:
            self._record(answer)
            tell(f"unchanged: {answer.cell}, same code")
        else:
            self._serve()  # they import while the census goes on
            tell(f"other code: {answer.cell}" if answer.is_same is False else f"{answer.cell}: {answer.reason}")

    def _serve(self) -> None:
        """Start the processes from which cells are forked, if they do not run yet."""
        if not self._serves:
            self._serves = True
            self.base, self.new = self._servers.enter_context(serving(self.base, self.new))

    def _record(self, answer: CodeAnswer) -> None:
        if not self._records:
            sides = (self.base, self.new)
            planned = [[self._on(side, cell) for cell in self.cells] for side in sides]
            parts = zip(sides, planned, strict=True)
            self._records = [CodeRecord(*part, self.settings, self.storage.out) for part in parts]
        for kept, outcome in zip(self._records, (answer.base, answer.new), strict=True):
            kept.add(outcome)

    def _store_answers(self) -> None:
        """Store what the census said, also of cells with other code that nothing has measured."""
        self.judge()
        for cell_id, answer in self.answers.items():
            row = self.rows.get(cell_id)
            statuses = {row.base.status, row.new.status} if row else {None}
            if answer.is_same is False and statuses == {None}:
                self._record(answer)
            elif answer.is_same and len(statuses) > 1 and None in statuses:
                self._record(answer.taken_now())  # what one side has measured compares with nothing
        put = storing(self.storage.database)
        for path in [path for kept in self._records if (path := kept.close())]:
            click.echo(put(path))

    def needs(self) -> dict[str, Need]:
        """What each cell of `rows` needs next, by its cell_id."""
        return {
            cell_id: need(row, self.timed[cell_id], self.compiled[cell_id], bool(self.acting))
            for cell_id, row in self.rows.items()
        }

    def _wanted(self) -> tuple[Need, list[Cell]] | None:
        """What the next round is for, and its cells.

        A few cells at a time go through their first rounds: of new ones those that have other code are timed, then those whose
        code is not known are compiled. What is open after that waits for all others. At the end some cells of equal code are
        compiled, for their compile time.
        """
        needs = self.needs()
        known = [cell for cell in self.cells if cell.cell_id in needs]
        known.sort(key=lambda cell: self.rows[cell.cell_id].code_changed is not True)
        by_need = {word: [cell for cell in known if needs[cell.cell_id] is word] for word in Need}
        if young := [cell for cell in by_need[Need.TIME] if self.timed[cell.cell_id] < _DEEP]:
            return Need.TIME, young[: self._at_once]
        unreached = self._unreached()
        if other := [cell for cell in unreached if self.acting or self._is_same(cell) is False]:
            return Need.TIME, other[: self._at_once]
        if unreached:
            return Need.COMPILE, unreached[: self._at_once]
        for word in (Need.TIME, Need.COMPILE, Need.COMPARE_COMPILING):
            if by_need[word]:
                return word, by_need[word]
        sample = self.same_code[:_SAMPLE] if self.compares_compiling else []
        return (Need.COMPILE, sample) if sample and self._not_measured(sample) == sample else None

    @property
    def _at_once(self) -> int:
        """How many cells go through their first rounds together: one for each worker."""
        return next((testbed.execution.workers for testbed in self.base.testbeds if testbed.execution.workers), 1)

    def _unreached(self) -> list[Cell]:
        """The cells that are not decided by their code and that no round has measured on both sides."""
        decided = set(self.same_code)
        return [cell for cell in self._not_measured(self.cells) if cell not in decided]

    def _not_measured(self, cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in cells if cell.cell_id not in self.timed.keys() | self.compiled.keys()]

    def _round(self, word: Need, cells: list[Cell]) -> None:
        """A pass of each side; every other round begins with the other one, so that a drift adds to both."""
        self._serve()
        first, second = (self.base, self.new) if self.rounds % 2 == 0 else (self.new, self.base)
        if word is Need.COMPARE_COMPILING:
            for side in (first, second):
                rows = {cell.cell_id: self.rows[cell.cell_id] for cell in cells}
                states = {key: row.base if side.word == "base" else row.new for key, row in rows.items()}
                lacking = [cell for cell in cells if lacks_compile_time(states[cell.cell_id])]
                self._measure(side, lacking, self.left_s)
            measured = {cell.cell_id for cell in cells}
        else:
            # Time is left for the other side, and for a second round where cells are timed: the first one decides none.
            passes = 2 if self.rounds or word is Need.COMPILE else 4
            is_timed, is_first = word is Need.TIME, not any(self.compiled[cell.cell_id] for cell in cells)
            measured = self._measure(first, cells, self.left_s / passes, is_timed, is_timed or is_first)
            cells = [cell for cell in cells if cell.cell_id in measured]
            measured &= self._measure(second, cells, self.left_s / (passes - 1), is_timed, is_timed or is_first)
        if word is Need.TIME:
            self.timed.update(measured)
        self.compiled.update(cell_id for cell_id in measured if word is not Need.TIME or not self.compiled[cell_id])
        self.rounds += 1

    def _measure(
        self,
        side: CheckedSide,
        cells: Sequence[Cell],
        budget_s: float,
        is_timed: bool = False,
        keeps_program: bool = False,
    ) -> set[str]:
        """Measures cells of a side, none of which starts after so many seconds; returns those measured, by cell_id.

        With `keeps_program` a cell is found compiled where an earlier round has kept its program, which is kept else.
        """
        if budget_s <= 0 or not cells:
            return set()
        testbeds = [
            replace(testbed, execution=replace(testbed.execution, budget_s=budget_s)) for testbed in side.testbeds
        ]
        programs = str(Path(self._programs, side.word)) if keeps_program else ""
        settings = replace(self.settings, code_only=not is_timed, compiled=programs)
        what = f"{counted(len(cells), 'cell')} to {'time' if is_timed else 'compile'}"
        tell(f"{side.word}: {what}, {self.left_s / 60:.1f} min left")
        on_side = {self._on(side, cell).cell_id: cell for cell in cells}
        plan, storage = Plan([self._on(side, cell) for cell in cells]), self.storage
        _, progress = measure_and_store(plan, testbeds, side.names, settings, storage.out, storage.target)
        return {on_side[cell_id].cell_id for cell_id in progress.measured}

    def _on(self, side: CheckedSide, cell: Cell) -> Cell:
        """Return a cell of base as a side has it."""
        return self.on_new.get(cell.cell_id, cell) if side.word == "new" else cell

    @property
    def against(self) -> dict[str, str]:
        """Which config of new is compared with which of base, by config_id; empty where both have the same."""
        cells = ((cell, self.on_new.get(cell.cell_id)) for cell in self.cells)
        return {cell.config.config_id: other.config.config_id for cell, other in cells if other}

    def judge(self) -> None:
        """Compares and judges what the store has of both sides. Without a run of each there is nothing to compare."""
        with open_store(self.storage.database, write=False).connect() as connection, suppress(SideError):
            comparison = compare_named(connection, self.base.night, self.new.night, against=self.against)
            of_base = {other.cell_id: cell_id for cell_id, other in self.on_new.items()}
            self.rows = {of_base.get(row.cell.cell_id, row.cell.cell_id): row for row in comparison.cells}

    def _tell_round(self) -> None:
        """The partial answer: how many cells are decided, and a line for each that has just got a verdict to look at."""
        before = self.rows
        self.judge()
        for cell_id, row in self.rows.items():
            was = before[cell_id].outcome if cell_id in before else None
            if row.outcome in _TOLD and row.outcome is not was:
                tell(f"{row.outcome}: {row.cell}{_change(row)}")
        still = sum(word not in SETTLED for word in self.needs().values()) + len(self._unreached())
        counts = Counter(row.outcome for row in self.rows.values())
        same = {cell_id for cell_id, row in self.rows.items() if has_same_code(row)}
        same |= {cell.cell_id for cell in self.same_code}
        parts = [f"{len(self.cells) - still} decided, {still} open", *(f"{counts[word]} {word}" for word in _TOLD)]
        parts.append(f"same code in {len(same)} of {counted(len(self.cells), 'cell')}")
        tell(f"round {self.rounds}: {', '.join(parts)}; {max(0.0, self.left_s) / 60:.1f} min left")

    def _store_unfinished(self) -> None:
        put = storing(self.storage.database)
        for path in self.storage.out.glob("*.jsonl"):
            try:
                night = check_bundle(path).night
            except BundleError:
                continue
            if night in (self.base.night, self.new.night):
                click.echo(put(path))


def _change(row: CellComparison) -> str:
    """`, device time +4.1 %`: each change, what matters most first, of a count both values; else empty."""
    parts = [""]
    for finding in row.changes:
        name = finding.metric or ""
        values = (row.base.values.get(name), row.new.values.get(name))
        if METRICS[name].is_count and None not in values:
            parts.append(f"{METRICS[name].title} {values[0]:.0f} -> {values[1]:.0f}")
        else:
            parts.append(finding_words(finding))
    return ", ".join(parts)


@contextmanager
def _to_stderr() -> Iterator[None]:
    """What measuring prints is progress here; standard output is for the answer."""
    with redirect_stdout(sys.stderr):
        yield
