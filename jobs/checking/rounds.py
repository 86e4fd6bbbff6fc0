"""The course of a check: ask the census for the code of both sides, and time open cells in turns until all are decided.

If the census knows the code of a cell (`jobs.checking.check_sides`), equal code decides the cell at once, and a cell whose code
differs is timed before the cells whose code is not known, which are compiled on both sides first. The census goes on meanwhile.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sqlalchemy import Engine

from analysis.compare.cell_comparison import CHANGES, CellComparison, Outcome
from analysis.compare.compare_sides import compare_named
from analysis.present import called, finding_words
from collector.census.gpu_models import CensusError
from collector.device import is_accelerator
from collector.metrics import METRICS
from collector.process.orphans import PREFIX
from collector.process.outcome import Outcome as MeasuredOutcome
from collector.settings import Settings
from collector.vocabulary import Cell, Measurement, Stage, Status, is_unchecked
from db.engine import open_store
from db.store_errors import SideError, counted
from jobs.checking.check_sides import CheckedSide, CodeAnswer, CodeCensus, OtherOption, SideRecord, serving, soonest
from jobs.checking.deciding import SETTLED, Need, change_of_model, has_same_code, lacks_compile_time, need
from jobs.checking.kept_programs import KeptPrograms, folder_for
from jobs.options import Storage
from jobs.output.terminal import tell
from jobs.plan.cost import CostModel, is_whole, read_history
from jobs.plan.spared_cells import tunes_long
from jobs.pool.device_slots import off_quiet_cores
from jobs.pool.gpu_scheduler import GpuScheduler, Job, Server
from jobs.pool.runner import Pool, meter_of, scheduler_for, server_for
from jobs.pool.session import Store, describe, memory_of, storing
from jobs.pool.testbeds import Testbed, cell_variables

#: Rounds after which a cell that is still open waits until all other cells have had as many.
_DEEP = 2
#: With more cells to time than this, outputs of base are checked only where new's are wrong: new's then say as much, and base's
#: checks were a twelfth of the time of all processes on an H200. Ten cells go on at once on 16 cores, and lose no time by it.
_FEW = 10
#: The number of cells of equal code, the most important ones, that are compiled for their compile time if it may have changed.
_SAMPLE = 4
#: The fork servers import beside the census on a machine with at least so many cores. With fewer cores they would slow down the
#: census, and may never be needed: they begin when the code of a cell differs.
_ENOUGH_CORES = 8
#: The cells that begin before the census has answered at all.
_EARLY = 2
#: The census ends once so many more answers say that the code differs than say anything else: compiling both sides says as
#: much, and measures, too.
_LEAD = 4
#: Seconds after the budget in which turns that are under way may still end.
_GRACE_S = 30.0
#: The time of both sides of a cell as a multiple of one side's: at once, or if the second one begins when the first has compiled.
_AT_ONCE, _IN_TURN = 1.1, 1.7
#: The time of a process as a multiple of its known work before any process has compiled here, since it waits and is stopped, too.
_PACE = 1.3
#: A cell goes before others if it would be too late after so many seconds. The longest cells must begin early, or the check ends
#: with few long processes on idle cores: with 30 s a check on an H200 used half of its places in its last minute.
_SOON_S = 120.0
#: Stages of a cell that has compiled.
_COMPILED = (Stage.TIMING, Stage.PROFILE, Stage.CORRECTNESS, Stage.DONE)
#: Outcomes of decided cells that are counted.
_TOLD = (Outcome.REGRESSED, Outcome.IMPROVED, Outcome.BROKE, Outcome.FIXED)


def has_cores_for_all() -> bool:
    """Return whether this machine has cores for the fork servers beside the census."""
    return len(os.sched_getaffinity(0)) >= _ENOUGH_CORES


@dataclass(eq=False, slots=True)
class _Round:
    """A round of a cell under way: the sides still to begin, the jobs of the other sides, and the names of the sides measured.

    In the first round of a cell that tunes long the second side begins when the first one has compiled, to find its choices.
    """

    need: Need
    cell: Cell
    sides: list[CheckedSide]
    jobs: list[Job] = field(default_factory=list)
    measured: set[str] = field(default_factory=set)

    @property
    def is_timed(self) -> bool:
        """Return whether the cell is timed, not only compiled."""
        return self.need is Need.TIME


@dataclass
class Check:
    """A check under way: the cells in the order of importance, and what both sides have measured so far.

    Census and GPU work at the same time: a cell goes to the GPU as soon as its code is known to differ, or cannot be known.
    There its two sides go together, round after round, until it is decided, before more cells begin than there are workers.

    `acting` are the files that differ and act at run time. Without any, cells of equal code are not timed. `deadline` is a time
    of `time.monotonic`. With a `census` the code of the cells is asked for first; `answers` are its answers. `other` has the
    options of Inductor in which new differs from base, if the sides differ by options. `compares_compiling`: compile times may
    differ, so the compile time of some cells of equal code is measured at the end. With a `cache` the compiled programs are kept
    for later checks. `timed` counts the rounds in which both sides timed a cell, `compiled` the rounds in which they compiled it
    and did not find it compiled. `rows` are the rows of the comparison after the last outcomes were stored. All keys are the
    `cell_id` of base's cell.
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
    cache: Path | None = None
    answers: dict[str, CodeAnswer] = field(default_factory=dict)
    timed: Counter[str] = field(default_factory=Counter)
    compiled: Counter[str] = field(default_factory=Counter)
    rows: dict[str, CellComparison] = field(default_factory=dict)
    _under_way: dict[str, _Round] = field(default_factory=dict)
    #: Cells whose last round is not in `rows` yet, and the records with outcomes that are not stored.
    _unjudged: set[str] = field(default_factory=set)
    _unstored: set[SideRecord] = field(default_factory=set)
    _codes: dict[str, SideRecord] = field(default_factory=dict)
    #: By side a record for the first turn of each cell, one for the second, and so on: each is a run, and so a repeat.
    _turns: dict[str, list[SideRecord]] = field(default_factory=lambda: {"base": [], "new": []})
    _sides_of: dict[Job, tuple[CheckedSide, SideRecord]] = field(default_factory=dict)
    _taken: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: The places of the cells in the order in which they began.
    _ranks: dict[str, int] = field(default_factory=dict)
    _servers: dict[str, Server] = field(default_factory=dict)
    #: By side the testbed whose server imports only what the first cells need so far, and all cells there.
    _to_import: dict[str, tuple[Testbed, Sequence[Cell]]] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _launchers: ExitStack = field(default_factory=ExitStack)
    _programs: dict[str, KeptPrograms] = field(default_factory=dict)
    #: The census has ended early: cells without an answer are timed as if their code differed.
    _times_rest: bool = False
    #: Seconds for which a worker works on one side of a cell, estimated from earlier runs.
    _takes_s: Callable[[Cell], float] = lambda _: 0.0
    #: The times of processes that compiled, as multiples of their estimated work.
    _paces: list[float] = field(default_factory=list)
    #: Cells whose base passed without a check of its outputs, and cells whose new did not pass.
    unchecked: set[str] = field(default_factory=set)
    _wrong: set[str] = field(default_factory=set)
    #: Disturbed outcomes of jobs that measure again. They would widen the noise of all cells, and count only if no repeat ends
    #: and no earlier round timed the cell.
    _disturbed: dict[Job, MeasuredOutcome] = field(default_factory=dict)
    #: Jobs of cells that were decided by their code afterwards: what they measure does not count, and nobody waits for it.
    _needless: set[Job] = field(default_factory=set)
    _told: dict[str, Outcome] = field(default_factory=dict)
    #: The last line on all cells: how many were decided, and its other counts.
    _told_of_all: tuple[int, str] = (0, "")

    @cached_property
    def on_new(self) -> dict[str, Cell]:
        """New's cells by the `cell_id` of base's cells, if the sides differ by options; else empty."""
        return self.other.cells(self.cells) if self.other else {}

    @cached_property
    def _put(self) -> Store:
        return storing(self.storage.database)

    @cached_property
    def _reader(self) -> Engine:
        """The database, read after each round: an engine keeps the statements that it has compiled."""
        return open_store(self.storage.database, write=False)

    @property
    def rounds(self) -> int:
        """The most rounds that a cell had."""
        return max((self.timed | self.compiled).values(), default=0)

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
        """Measure until every cell is decided or the time is over; store everything, also after an interruption or a lost GPU."""
        with _to_stderr():
            try:
                with TemporaryDirectory(prefix=PREFIX) as scratch, ExitStack() as self._stack:
                    for side in (self.base, self.new):
                        found = folder_for(side, self.settings, self.cache) if self.cache else Path(scratch, side.word)
                        self._programs[side.word] = self._stack.enter_context(KeptPrograms(found))
                    self._work()
            finally:
                self._store_all()

    def _work(self) -> None:
        """Take the answers of the census and the outcomes of the GPU as they come, and start the next turns."""
        testbed = self.base.testbeds[0]
        model = CostModel.of_history(read_history(self.storage.out))
        self._takes_s = lambda cell: model.estimate(cell).worker_s
        scheduler = scheduler_for(testbed, [], self.settings, {}, memory_of(model))
        scheduler.keeps_slow_host = True  # device times decide, and a cell that is open has another round anyway
        pool, meter = Pool([scheduler], self.left_s, tell), meter_of(testbed)
        self._stack.enter_context(off_quiet_cores([testbed.slot]))
        self._stack.enter_context(self._launchers)
        store = self._stack.enter_context(ThreadPoolExecutor(1))
        asking = self._stack.enter_context(closing(self._ask_census()))
        if self.census:
            scheduler.neighbours = [self.census]
            if has_cores_for_all():
                self._serve(sorted(filter(lambda cell: is_accelerator(cell.device), self.cells), key=soonest)[:_EARLY])
        self._stack.enter_context(closing(scheduler))
        self._stack.enter_context(meter)
        try:
            for _, job, outcome in self._outcomes(pool, scheduler, asking, store):
                meter.took(outcome.measurement)
                self._took(job, outcome, scheduler)
        except KeyboardInterrupt:
            pool.tell_under_way("under way:")
            raise
        if self.timed or self.compiled:
            tell(f"used {meter.usage()}")

    def _outcomes(
        self, pool: Pool, scheduler: GpuScheduler, asking: Iterator[bool], store: ThreadPoolExecutor
    ) -> Iterator[tuple[int, Job, MeasuredOutcome]]:
        """Yield the outcomes as they come. Meanwhile start the next turns, and store and judge the outcomes yielded before."""
        judging: Future[tuple[dict[str, CellComparison], set[str]]] | None = None
        while self.left_s > -_GRACE_S:
            if judging and judging.done():
                self._take_rows(*judging.result())
                judging = None
            is_asking = next(asking, False)
            for job in [job for job in self._disturbed if not scheduler.has(job)]:
                self._record(job, self._disturbed.pop(job), counts=self._is_better_than_none(job))
            self._start_next(scheduler, is_asking)
            if self._unstored and not judging:
                judging = store.submit(self._store_new, self._unstored, set(self._unjudged))
                self._unstored = set()
            is_busy = scheduler.busy and not (self._needless and not self._under_way)
            if not (is_asking or is_busy or judging or self._unstored):
                return
            yield from pool.turn()
        pool.tell_under_way("the time is over; ended, though under way:")

    @property
    def same_code(self) -> list[Cell]:
        """The cells that the census decided: both sides get the same code, and no other file that acts at run time differs."""
        return [] if self.acting else [cell for cell in self.cells if self._is_same(cell) is True]

    def _is_same(self, cell: Cell) -> bool | None:
        answer = self.answers.get(cell.cell_id)
        return answer.is_same if answer else None

    def _ask_census(self) -> Generator[bool]:
        """Take the answers of the census that are there, and yield as long as there may be more.

        If no census can be taken, a line reports it.
        """
        if self.census is None:
            return
        tell(f"census: the code of {counted(len(self.cells), 'cell')} on both sides, {self.left_s / 60:.1f} min left")
        began = time.monotonic()
        try:
            with closing(self.census.ask(self.cells, self.deadline)) as found:
                for answer in found:
                    if answer is None:
                        yield True
                        continue
                    self._take_answer(answer)
                    if self._is_most_other_code():
                        self._times_rest = True
                        tell(
                            "most cells have other code: the others are compiled and timed without asking for it first"
                        )
                        break
        except CensusError as error:
            tell(f"no census: {error}")
        counts = Counter(self._is_same(cell) for cell in self.cells)
        words = f"{counts[True]} unchanged, {counts[False]} with other code, {counts[None]} not known"
        tell(f"census: {words} ({time.monotonic() - began:.0f} s)")

    def _is_most_other_code(self) -> bool:
        other = sum(answer.is_same is False for answer in self.answers.values())
        return 2 * other - len(self.answers) >= _LEAD

    def _take_answer(self, answer: CodeAnswer) -> None:
        self.answers[answer.cell.cell_id] = answer
        if answer.is_same:
            if not self.acting and (early := self._under_way.pop(answer.cell.cell_id, None)):
                self._needless.update(early.jobs)
            self._record_code(answer)
            tell(f"unchanged: {answer.cell}, same code")
        else:
            self._serve()
            tell(f"other code: {answer.cell}" if answer.is_same is False else f"{answer.cell}: {answer.reason}")

    def _serve(self, first: Sequence[Cell] = ()) -> None:
        """Start the fork servers of both sides, if they do not run yet; they import what all cells need, or the `first` ones.

        What the others need is imported when the first ones have begun, since imports of all libraries take 7 s longer.
        """
        if self._servers:
            return
        cells = {side.word: [self._on(side, cell) for cell in self.cells] for side in (self.base, self.new)}
        asked = [(side, [self._on(side, cell) for cell in first or self.cells]) for side in (self.base, self.new)]
        for side in self._launchers.enter_context(serving(asked)):
            (testbed, *_), variables = side.testbeds, cell_variables(side.testbeds[0].execution.start)
            self._servers[side.word] = server_for(testbed, cells[side.word], variables)
            if first:
                self._to_import[side.word] = testbed, cells[side.word]

    def _import_rest(self, scheduler: GpuScheduler, is_asking: bool) -> None:
        """Make each fork server import what all cells need once the first cells have begun on it, or will not begin first."""
        for word in list(self._to_import):
            jobs = [job for one in self._under_way.values() for job in one.jobs if self._sides_of[job][0].word == word]
            have_begun = bool(jobs) and all(scheduler.stage_of(job) for job in jobs)
            if have_begun or self.answers or not is_asking:
                testbed, cells = self._to_import.pop(word)
                testbed.import_for(cells)

    def _record_code(self, answer: CodeAnswer) -> None:
        for side, outcome in ((self.base, answer.base), (self.new, answer.new)):
            if side.word not in self._codes:
                self._codes[side.word] = self._new_record(side, is_census=True)
            self._codes[side.word].add(outcome)

    def _new_record(self, side: CheckedSide, *, is_census: bool = False, is_first: bool = True) -> SideRecord:
        planned = [self._on(side, cell) for cell in self.cells] if is_first else []
        return SideRecord(side, planned, self.settings, self.storage.out, is_census)

    def _record_of(self, side: CheckedSide, number: int) -> SideRecord:
        """Return the record for a cell's next turn on a side after `number` turns. The first record plans all cells."""
        records = self._turns[side.word]
        if number == len(records):
            records.append(self._new_record(side, is_first=not records))
        return records[number]

    def _store_all(self) -> None:
        """Store the measurements and the answers of the census, also for cells whose code differs and that were not measured."""
        put = self._put
        for job in filter(self._is_better_than_none, self._disturbed):
            self._sides_of[job][1].add(self._disturbed[job])
        for kept in (*self._turns["base"], *self._turns["new"]):
            if path := kept.close():
                put(path)
                tell(f"bundle {path}")
        for path in filter(None, (kept.path for kept in self._codes.values())):
            put(path)  # a side may have no other bundle, and is compared all the same
        self.judge()
        for cell_id, answer in self.answers.items():
            row = self.rows.get(cell_id)
            statuses = {row.base.status, row.new.status} if row else {None}
            if answer.is_same is False and statuses == {None}:
                self._record_code(answer)
            elif answer.is_same and len(statuses) > 1 and {None, Status.NOT_CHECKED} & statuses:
                self._record_code(answer.taken_now())  # the measurement of one side alone can be compared with nothing
        for kept in self._codes.values():
            if path := kept.close():
                put(path)
                tell(f"bundle {path}")

    def needs(self) -> dict[str, Need]:
        """Return the next step of each cell of `rows`, by `cell_id`."""
        shown = Counter[object]()
        for cell_id, row in self.rows.items():
            shown[change_of_model(row)] += self.timed[cell_id]
        needs = {
            cell_id: need(
                row,
                timed := self.timed[cell_id],
                self.compiled[cell_id],
                bool(self.acting),
                shown[change_of_model(row)] - timed,
                is_told=self._told.get(cell_id) is row.outcome,
            )
            for cell_id, row in self.rows.items()
        }
        return needs | dict.fromkeys(self.unproven & needs.keys(), Need.TIME)

    @property
    def unproven(self) -> set[str]:
        """The cells that fail on new where base's outputs were not checked: they may fail there, too."""
        return self.unchecked & self._wrong

    def count_open(self) -> int:
        """Count the cells that are not decided."""
        is_open = {cell_id for cell_id, word in self.needs().items() if word not in SETTLED}
        return len(is_open | {cell.cell_id for cell in self._unreached()})

    def _start_next(self, scheduler: GpuScheduler, is_asking: bool) -> None:
        """Give the free workers their next turns: first the second sides of cells under way, then further cells."""
        self._import_rest(scheduler, is_asking)
        if self.left_s <= 0:
            return
        # The cell that began first goes first, so that a first verdict comes early.
        for one in sorted(self._under_way.values(), key=lambda one: self._ranks[one.cell.cell_id]):
            if one.sides and scheduler.free_places > 0 and self._may_go_on(one, scheduler):
                self._begin_turn(one, scheduler)
        # A place is kept for each cell that is being judged, since it may need another round.
        while (free := scheduler.free_places) > 0 and (
            chosen := self._choose(scheduler, is_asking, is_new_too=free > self._places_kept())
        ):
            need, cell = chosen
            row = self.rows.get(cell.cell_id)
            # Every other round begins with the other side, so that a drift adds to both.
            sides = [self.base, self.new] if self._had(cell) % 2 == 0 else [self.new, self.base]
            if need is Need.COMPARE_COMPILING and row:
                states = {"base": row.base, "new": row.new}
                sides = [side for side in sides if lacks_compile_time(states[side.word])]
            self._under_way[cell.cell_id] = one = _Round(need, cell, sides)
            self._begin_turn(one, scheduler)
            if one.sides and scheduler.free_places > 0 and self._may_go_on(one, scheduler):
                self._begin_turn(one, scheduler)
        if self.census:
            self.census.leave(scheduler.busy_cores, _LEAD if self._is_first_awaited() else None)

    def _is_first_awaited(self) -> bool:
        """Return whether the first verdict is awaited of the cells that began first, as the code of all cells seems to differ.

        Then the census goes on with as many cells as can end it. More would slow the first cells down, for nothing.
        """
        has_begun = bool(self._under_way) and has_cores_for_all() and is_accelerator(self.cells[0].device)
        return has_begun and not self._told and all(answer.is_same is False for answer in self.answers.values())

    def _places_kept(self) -> int:
        """Return how many places are kept for cells that are being judged, since they may need another round.

        Before the first verdict, which is to come early, no more cells begin than there are workers.
        """
        return len(self._unjudged) + (0 if self._told else self.base.testbeds[0].slot.extra_cells)

    def _had(self, cell: Cell) -> int:
        """Return how many turns a cell had, on the side with more turns."""
        return max(self._taken[word, cell.cell_id] for word in ("base", "new"))

    def _may_go_on(self, one: _Round, scheduler: GpuScheduler) -> bool:
        """Return whether the second side of a round may begin.

        Both sides go on at once if they find their programs compiled, or if both are to be timed: of two
        processes that choose for a model at a time the second one takes the first one's choices (`collector.measure.tuning`).
        The second side of a cell that tunes long begins when the first one has compiled, and saves its candidates.
        """
        if one.is_timed and self.timed[one.cell.cell_id]:
            return True
        is_early = not self.answers and not self.compiled[one.cell.cell_id]  # begun for the first verdict
        is_certain = self.acting or self._times_rest or is_early or self._is_same(one.cell) is False
        if one.is_timed and is_certain and not tunes_long(one.cell.config, one.cell.device):
            return True
        has_compiled = all(self._has_job_compiled(one, job, scheduler) for job in one.jobs)
        return has_compiled and not self._is_tuned_now(one.sides[0], one.cell, scheduler)

    def _has_job_compiled(self, one: _Round, job: Job, scheduler: GpuScheduler) -> bool:
        has_ended = self._sides_of[job][0].word in one.measured or job in self._disturbed
        return has_ended or scheduler.stage_of(job) in _COMPILED

    def _is_tuned_now(self, side: CheckedSide, cell: Cell, scheduler: GpuScheduler) -> bool:
        """Return whether another cell of the model has yet to compile on this side: this cell will take its choices."""
        return any(
            self._sides_of[job][0] is side and replace(self._on(side, cell), config=job.cell.config) == job.cell
            for one in self._under_way.values()
            for job in one.jobs
            if one.cell != cell and not self._has_job_compiled(one, job, scheduler)
        )

    def _choose(self, scheduler: GpuScheduler, is_asking: bool, is_new_too: bool) -> tuple[Need, Cell] | None:
        """Return the next cell to measure, and its need; None if there is none now. `is_asking`: the census goes on.

        Cells that began go through their first rounds first. Cells that are open after these rounds wait for all new cells whose
        two sides can end in time. At the end some cells of equal code are compiled, for their compile time. What is compiled for
        that takes a free core, or waits. Without `is_new_too` only cells in their first rounds may begin.
        """
        needs, busy = self.needs(), self._under_way.keys() | self._unjudged
        known = [cell for cell in self.cells if cell.cell_id in needs and not busy & {cell.cell_id, *self._alike(cell)}]
        known.sort(key=lambda cell: self.rows[cell.cell_id].code_changed is not True)
        by_need = {word: [cell for cell in known if needs[cell.cell_id] is word] for word in Need}
        young = [cell for cell in by_need[Need.TIME] if 0 < self.timed[cell.cell_id] < _DEEP]
        if young := young or [cell for cell in by_need[Need.TIME] if not self.timed[cell.cell_id]]:
            alike = self._alike(young[0])
            confirming = [cell for cell in self._unreached() if cell.cell_id in alike]
            return Need.TIME, (confirming or young)[0]
        if not is_new_too:
            return None
        unreached = [cell for cell in self._unreached() if cell.cell_id not in busy]
        unreached = [cell for cell in unreached if not self._is_tuned_now(self.base, cell, scheduler)]
        if new := self._choose_new([cell for cell in unreached if self._slack_s(cell) >= 0], is_asking):
            return new
        has_core = scheduler.free_places > self.base.testbeds[0].slot.extra_cells
        for word in (Need.TIME, Need.COMPILE, Need.COMPARE_COMPILING) if has_core else (Need.TIME,):
            if by_need[word]:
                return word, min(by_need[word], key=self._had)
        if new := self._choose_new(unreached, is_asking):
            return new
        sample = self.same_code[:_SAMPLE] if self.compares_compiling and not is_asking and has_core else []
        return next(((Need.COMPILE, cell) for cell in self._not_measured(sample) if cell.cell_id not in busy), None)

    def _choose_new(self, unreached: Sequence[Cell], is_asking: bool) -> tuple[Need, Cell] | None:
        """Return the next of these cells, none of which was measured before, and its need; None if none may begin now.

        Cells whose code differs are timed, in the order of the census's answers, but first those whose two sides would soon be
        too late to end in time; then cells whose code is not known are compiled.
        Before the first answer of the census, the cells that it will answer first are begun if there are cores for that: the
        first verdict is theirs if their code differs.
        """
        order = {cell_id: number for number, cell_id in enumerate(self.answers)}
        unreached = sorted(unreached, key=lambda cell: order.get(cell.cell_id, len(order)))
        is_timed = self.acting or (self._times_rest and not is_asking)
        if other := [cell for cell in unreached if is_timed or self._is_same(cell) is False]:
            urgent = [cell for cell in other if 0 <= self._slack_s(cell) < _SOON_S]
            return Need.TIME, min(urgent, key=self._slack_s, default=other[0])
        if unknown := [cell for cell in unreached if cell.cell_id in order or not is_asking]:
            return Need.COMPILE, unknown[0]
        # On a CPU the census pauses whenever a cell is measured.
        early = [cell for cell in unreached if is_accelerator(cell.device)]
        if early and not self.answers and len(self._under_way) < _EARLY and has_cores_for_all():
            return Need.TIME, min(early, key=soonest)
        return None

    def _slack_s(self, cell: Cell) -> float:
        """Return the seconds for which a cell can wait and its two sides still end in time; negative if it is too late."""
        times = _IN_TURN if tunes_long(cell.config, cell.device) else _AT_ONCE
        return self.left_s + _GRACE_S - times * self._takes_s(cell) * median(self._paces or [_PACE])

    def _alike(self, cell: Cell) -> list[str]:
        """Return the ids of the model's cells under other configs, which may confirm the cell's change; empty if it has none."""
        if self.rows[cell.cell_id].outcome not in CHANGES:
            return []
        return [other.cell_id for other in self.cells if other != cell and replace(other, config=cell.config) == cell]

    def _unreached(self) -> list[Cell]:
        """Return the cells that are not decided by their code and that no round has measured on both sides."""
        decided = set(self.same_code)
        return [cell for cell in self._not_measured(self.cells) if cell not in decided]

    def _not_measured(self, cells: Sequence[Cell]) -> list[Cell]:
        return [cell for cell in cells if cell.cell_id not in self.timed.keys() | self.compiled.keys()]

    def _begin_turn(self, one: _Round, scheduler: GpuScheduler) -> None:
        """Start the next side of a round: it measures its cell in a new process.

        The process finds the program that an earlier process of its side has kept, unless compiling is to be measured again.
        """
        self._serve()
        side, cell_id = one.sides.pop(0), one.cell.cell_id
        is_kept = one.is_timed or (one.need is Need.COMPILE and not self.compiled[cell_id])
        programs, on_side = self._programs[side.word], self._on(side, one.cell)
        settings = replace(
            self.settings,
            code_only=not one.is_timed,
            compiled=str(programs.folder) if is_kept else "",
            passed_code=programs.passed(on_side.cell_id) if one.is_timed else "",
            unchecked=side is self.base and self._spares_check(cell_id),
        )
        # Both sides of the cell that began first have the device first: its verdict is the first one. What had its rounds waits.
        rank = self._ranks.setdefault(cell_id, len(self._ranks))
        rank += len(self.cells) * (self.timed[cell_id] >= _DEEP)
        job = Job(on_side, settings, self._servers[side.word], rank)
        self._sides_of[job] = side, self._record_of(side, self._taken[side.word, cell_id])
        self._taken[side.word, cell_id] += 1
        one.jobs.append(job)
        scheduler.add(job)

    def _spares_check(self, cell_id: str) -> bool:
        """Return whether base's outputs need no check: so far new's pass, and many cells are to be timed."""
        return cell_id not in self._wrong and len(self.cells) - len(self.same_code) > _FEW

    def _took(self, job: Job, outcome: MeasuredOutcome, scheduler: GpuScheduler) -> None:
        """Take an outcome of a job: it counts, unless the job was disturbed and measures again, or nobody needs it any more."""
        if job in self._needless:
            return
        found = outcome.measurement
        tell(f"{self._sides_of[job][0].word}: {found.cell_name}  {describe(found)}  ({found.wall_s:.0f} s)")
        if scheduler.has(job):
            self._disturbed[job] = outcome
        else:
            self._disturbed.pop(job, None)
            self._record(job, outcome)

    def _is_better_than_none(self, job: Job) -> bool:
        """Return whether a job's disturbed outcome counts although no repeat of it ended."""
        return not any(job in one.jobs and self.timed[one.cell.cell_id] for one in self._under_way.values())

    def _record(self, job: Job, outcome: MeasuredOutcome, *, counts: bool = True) -> None:
        """Record the outcome of a job, if it counts. It ends a round if it is the last one of it."""
        side, kept = self._sides_of[job]
        if counts:
            kept.add(outcome)
            self._unstored.add(kept)
        found = outcome.measurement
        if "compiled_ms" in found.metrics and is_whole(found) and (usual_s := self._takes_s(found.cell)):
            self._paces.append(found.wall_s / usual_s)
        one = next((one for one in self._under_way.values() if job in one.jobs), None)
        if one is None:
            return
        one.measured.add(side.word)
        if one.is_timed:
            self._note_outputs(side, one.cell.cell_id, found)
        if one.sides or len(one.measured) < len(one.jobs):
            return
        cell_id = one.cell.cell_id
        del self._under_way[cell_id]
        self._unjudged.add(cell_id)
        if not one.is_timed or not self.compiled[cell_id]:
            self.compiled[cell_id] += 1
        self.timed[cell_id] += one.is_timed

    def _note_outputs(self, side: CheckedSide, cell_id: str, found: Measurement) -> None:
        """Note whether the outputs of a timed process passed a check."""
        if is_unchecked(found.details):
            self.unchecked.add(cell_id)
            return
        if side is self.base:
            self.unchecked.discard(cell_id)
        elif found.status is not Status.PASS:
            self._wrong.add(cell_id)
        if found.status is Status.PASS and found.code_id:
            self._programs[side.word].note_passed(found.cell.cell_id, found.code_id)

    def _on(self, side: CheckedSide, cell: Cell) -> Cell:
        """Return the cell of a side that corresponds to a cell of base."""
        return self.on_new.get(cell.cell_id, cell) if side.word == "new" else cell

    @property
    def against(self) -> dict[str, str]:
        """The `config_id` of new that each `config_id` of base is compared with; empty if both sides have the same configs."""
        cells = ((cell, self.on_new.get(cell.cell_id)) for cell in self.cells)
        return {cell.config.config_id: other.config.config_id for cell, other in cells if other}

    def judge(self) -> None:
        """Compare and judge the stored runs of both sides. Keep the old rows if a side has no run yet."""
        self.rows = self._compare() or self.rows

    def _compare(self) -> dict[str, CellComparison]:
        with self._reader.connect() as connection, suppress(SideError):
            comparison = compare_named(connection, self.base.night, self.new.night, against=self.against)
            of_base = {other.cell_id: cell_id for cell_id, other in self.on_new.items()}
            return {of_base.get(row.cell.cell_id, row.cell.cell_id): row for row in comparison.cells}
        return {}

    def _store_new(self, records: Iterable[SideRecord], cells: set[str]) -> tuple[dict[str, CellComparison], set[str]]:
        """Store records that are still written to, and compare both sides. Runs in a thread, so that the device need not wait.

        Return the rows, and `cells`, whose last rounds are in these rows.
        """
        for path in filter(None, (kept.path for kept in records)):
            self._put(path)
        return self._compare(), cells

    def _take_rows(self, rows: Mapping[str, CellComparison], cells: set[str]) -> None:
        """Take new rows, and print a line for each cell that is newly decided, and one that counts the decided cells."""
        self.rows = dict(rows) or self.rows
        self._unjudged -= cells
        needs = self.needs()
        for cell_id, row in self.rows.items():
            if cell_id in self._unjudged or cell_id in self._under_way:
                continue  # these rows may lack one side of its last round
            is_decided = needs[cell_id] in SETTLED and (self.timed[cell_id] or self.compiled[cell_id])
            if is_decided and self._told.get(cell_id) is not row.outcome:
                self._told[cell_id] = row.outcome
                tell(f"{called(row.outcome)}: {row.cell}{_change(row)}")
        if not cells:
            return
        still = self.count_open()
        counts = Counter(row.outcome for cell_id, row in self.rows.items() if needs[cell_id] in SETTLED)
        same = {cell_id for cell_id, row in self.rows.items() if has_same_code(row)}
        same |= {cell.cell_id for cell in self.same_code}
        decided, parts = len(self.cells) - still, [f"{counts[word]} {word}" for word in _TOLD]
        words = ", ".join([*parts, f"same code in {len(same)} of {counted(len(self.cells), 'cell')}"])
        # Measurements of other cells change the noise estimate, and may reopen a cell for a moment: that alone is not reported.
        told, told_words = self._told_of_all
        if decided > told or words != told_words:
            self._told_of_all = decided, words
            tell(f"{decided} decided, {still} open, {words}; {max(0.0, self.left_s) / 60:.1f} min left")


def _change(row: CellComparison) -> str:
    """Return the changes as `, device time +4.1 %`, the most important first, counts with both values; empty if none."""
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
    """Redirect standard output to standard error: measuring prints progress, and standard output is for the answer."""
    with redirect_stdout(sys.stderr):
        yield
