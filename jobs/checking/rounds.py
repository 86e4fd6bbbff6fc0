"""The rounds of a check: compile both sides, then time in turn what is open, until all is decided or the time is over."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace

import click

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.cell_outcome import Outcome
from analysis.compare.compare_sides import compare_named
from analysis.present import finding_words
from collector.bundle import BundleError, check_bundle
from collector.metrics import METRICS
from collector.settings import Settings
from collector.vocabulary import Cell
from db.engine import open_store
from db.errors import SideError, counted
from jobs.checking.deciding import SETTLED, Need, has_same_code, lacks_compile_time, need
from jobs.checking.sides import CheckedSide, keeping_servers
from jobs.options import Storage
from jobs.output.terminal import tell
from jobs.plan.planning import Plan
from jobs.pool.session import measure_and_store, storing

#: Outcomes that a line about a round counts.
_TOLD = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.BROKE, Outcome.FIXED)


@dataclass
class Check:
    """A check under way: the cells in the order of importance, and what both sides have measured so far.

    `acting` are the files that differ and act at run time. Without any, cells of equal code are not timed. `deadline` is of
    `time.monotonic`. `timed` and `compiled` count the rounds in which a cell was, on both sides, and `rows` are the
    comparison's after the last round, both by cell_id.
    """

    base: CheckedSide
    new: CheckedSide
    cells: Sequence[Cell]
    settings: Settings
    storage: Storage
    deadline: float
    acting: Sequence[str] = ()
    timed: Counter[str] = field(default_factory=Counter)
    compiled: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    rows: dict[str, CellComparison] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.deadline - time.monotonic()

    def run(self) -> None:
        """Measures until every cell is decided or the time is over. What an interruption leaves is stored, too."""
        try:
            with _to_stderr(), keeping_servers(self.base, self.new):
                while self.left_s > 0 and (wanted := self._wanted()):
                    self._round(*wanted)
                    self._tell_round()
        except KeyboardInterrupt:
            with _to_stderr():
                self._store_unfinished()
            raise

    def needs(self) -> dict[str, Need]:
        """What each cell of `rows` needs next, by its cell_id."""
        return {
            cell_id: need(row, self.timed[cell_id], self.compiled[cell_id], bool(self.acting))
            for cell_id, row in self.rows.items()
        }

    def _wanted(self) -> tuple[Need, list[Cell]] | None:
        """What the next round is for, and its cells: those to be timed before those to be compiled, new ones at the end."""
        needs = self.needs()
        known = [cell for cell in self.cells if cell.cell_id in needs]
        known.sort(key=lambda cell: self.rows[cell.cell_id].code_changed is not True)
        for word in (Need.TIME, Need.COMPILE, Need.COMPARE_COMPILING):
            if cells := [cell for cell in known if needs[cell.cell_id] is word]:
                return word, cells
        unreached = self._unreached()
        return (Need.TIME if self.acting else Need.COMPILE, unreached) if unreached else None

    def _unreached(self) -> list[Cell]:
        """The cells that no round has measured on both sides."""
        return [cell for cell in self.cells if cell.cell_id not in self.timed.keys() | self.compiled.keys()]

    def _round(self, word: Need, cells: list[Cell]) -> None:
        """A pass of each side; every other round begins with the other one, so that a drift adds to both."""
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
            measured = self._measure(first, cells, self.left_s / passes, word is Need.TIME)
            cells = [cell for cell in cells if cell.cell_id in measured]
            measured &= self._measure(second, cells, self.left_s / (passes - 1), word is Need.TIME)
        (self.timed if word is Need.TIME else self.compiled).update(measured)
        self.rounds += 1

    def _measure(self, side: CheckedSide, cells: Sequence[Cell], budget_s: float, is_timed: bool = False) -> set[str]:
        """Measures cells of a side, none of which starts after so many seconds; returns those measured, by cell_id."""
        if budget_s <= 0 or not cells:
            return set()
        testbeds = [
            replace(testbed, execution=replace(testbed.execution, budget_s=budget_s)) for testbed in side.testbeds
        ]
        settings = self.settings if is_timed else replace(self.settings, code_only=True)
        what = f"{counted(len(cells), 'cell')} to {'time' if is_timed else 'compile'}"
        tell(f"{side.word}: {what}, {self.left_s / 60:.1f} min left")
        plan, storage = Plan(list(cells)), self.storage
        _, progress = measure_and_store(plan, testbeds, side.names, settings, storage.out, storage.target)
        return progress.measured

    def judge(self) -> None:
        """Compares and judges what the store has of both sides. Without a run of each there is nothing to compare."""
        with open_store(self.storage.database, write=False).connect() as connection, suppress(SideError):
            comparison = compare_named(connection, self.base.night, self.new.night)
            self.rows = {row.cell.cell_id: row for row in comparison.cells}

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
        same = sum(has_same_code(row) for row in self.rows.values())
        parts = [f"{len(self.cells) - still} decided, {still} open", *(f"{counts[word]} {word}" for word in _TOLD)]
        parts.append(f"same code in {same} of {counted(len(self.rows), 'cell')}")
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
