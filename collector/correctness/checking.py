"""The correctness stage of a cell: eager against itself, then the compiled program against eager and a reference."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import Any

from collector.correctness.comparing import Agreement, checking, compare, held_once, identical, without_numbers
from collector.correctness.draws import slight, wrong_draws
from collector.correctness.norms import Asking, asking_rms, asking_rmse, is_float, settle
from collector.correctness.pytorch_accuracy import (
    EAGER_DIFFERS,
    NO_VERDICT,
    SMALL_BYTES,
    Tolerance,
    bytes_for,
    pytorch_verdict,
    tolerance_for,
)
from collector.correctness.reference import Reference, Room, reference_of
from collector.correctness.rows import Rows, jumping, part_jumps
from collector.correctness.snapshot import KIND, STATE, Snapshot, other_strides, wrong_form
from collector.correctness.state import changed_inputs
from collector.correctness.ties import FEW, LEAST_SHARE, NUDGES, Nudged, Ties, nudge, part_ties
from collector.device import device_named
from collector.failures import classify, hint_of_status, reason_of
from collector.measure.autotuning import released_while_compiling
from collector.measure.program import IN_A_ROW, SEED, EagerRuns, Subject, deterministic_algorithms
from collector.process.outcome import Outcome
from collector.templates import Effective
from collector.usage_errors import NotCheckedError
from collector.vocabulary import (
    AHEAD_OF_TIME,
    BY_COSINE,
    CHECKED_BY,
    MARKS,
    NEAREST,
    PYTORCH_CHECK,
    Cell,
    Failure,
    Measurement,
    Stage,
    Status,
)

#: The largest share of the allowed error that is recorded: JSON has no infinity.
_LARGEST_SHARE = 1e6
#: The key of a detail: why eager could not be run with other weights.
_NO_TIES = "no_near_ties"
#: The most outputs that are named in a detail, such as outputs that could not be compared or have other strides.
_NAMED = 20
#: Other inputs must move eager's output by so many times the program's error, and by so much of its size, before it counts that
#: the program's moves less: the same edges of a graph in another order move a sum by rounding alone.
_CLEAR, _MUCH = 10, 0.05
#: The change of a tensor by another seed, over its size, up to which a reference may judge it although it draws other numbers.
_HARDLY = 0.01
_LOST = "{}: no longer what it was when it was compiled, and eager does not write to it: an earlier call did"
_MORE_MEMORY = (
    "a limit of the check and no fault of the model: a smaller --batch-size, or a GPU or host with more memory"
)
_NO_NUMBERS = "eager's own numbers overflow or divide by zero, without any compiler: another dtype, or other weights"


def check(
    outcome: Outcome,
    subject: Subject,
    compiled: Callable[[], Any],
    effective: Effective,
    own_tolerance: float | None = None,
    room: Room = Room(),  # noqa: B008 - it is frozen
    let_go: Callable[[], None] | None = None,
) -> None:
    """Compare the compiled program's outputs with eager's, from one state and one seed, and record the result in `outcome`.

    If the outputs depend on random numbers, a second program is compiled that draws as eager does, and is compared in place
    of the timed one. The reference draws other numbers, so it judges only tensors that another seed changes hardly (`_HARDLY`),
    or by less than half of eager's own error. `own_tolerance` is the tolerance of a user's own model (`Tolerance.tol`), if
    there is one. The caller holds the device; `room` is the memory for the reference. `let_go` frees a program that keeps
    memory: all outputs of that program are made first, and `let_go` is called before the reference, which takes most memory.
    Without `let_go` the outputs of later calls are made after the reference.

    If the check itself is impossible, the cell becomes `not_checked`. Raises whatever the model or the compiler raises.
    """
    try:
        with checking():
            lost = subject.state.lost()
            subject.state.keep_rest()
        runs = subject.eager_runs()
        with checking():
            problem = without_numbers(runs.outputs)
        if runs.differ_at:
            _disagree(outcome, Status.NONDETERMINISTIC, f"two eager runs differ at {runs.differ_at}")
            _note_verdict(outcome, lambda: EAGER_DIFFERS)
        elif lost := [path for path in lost if path not in runs.written]:
            _disagree(outcome, Status.FAIL_ACCURACY, _LOST.format(lost[0]))
        elif problem:
            _disagree(outcome, Status.EAGER_FAIL, problem, _NO_NUMBERS)
        else:
            if own_tolerance is not None:
                outcome.measurement.details["tolerance"] = own_tolerance
            _compare(outcome, subject, compiled, effective, runs, own_tolerance, room, let_go)
    except NotCheckedError as error:
        _disagree(outcome, Status.NOT_CHECKED, str(error))
    finally:
        subject.state.drop_rest()
        subject.release_gradients()


def _disagree(outcome: Outcome, status: Status, message: str, hint: str | None = None) -> None:
    failure = Failure(Stage.CORRECTNESS, status.value, message, hint or hint_of_status(status))
    outcome.measurement.status, outcome.measurement.failure = status, failure
    sys.stderr.write(f"{status.value}: {message}\n")  # nothing was raised, and the log is where people look


def _compare(
    outcome: Outcome,
    subject: Subject,
    compiled: Callable[[], Any],
    effective: Effective,
    runs: EagerRuns,
    own_tolerance: float | None,
    room: Room,
    let_go: Callable[[], None] | None,
) -> None:
    eager, seed_errors = runs.outputs, runs.seed_errors
    cell, details = outcome.measurement.cell, outcome.measurement.details
    is_library = cell.config.backend == AHEAD_OF_TIME
    made = subject.outputs(compiled)
    if other := other_strides(runs.layout, subject.layout):
        details["other_strides"] = dict(islice(other.items(), _NAMED))
    problem = wrong_form(runs.layout, subject.layout, minds_memory=not is_library) or _touched(runs, made)
    steady: Snapshot = {}
    # The outputs that PyTorch's runner would compare: of a program that draws as eager does, if numbers are random.
    theirs: Callable[[], Snapshot] | None = None if seed_errors else lambda: made
    with checking():
        slightly = slight(eager, seed_errors)
    if seed_errors and not problem:
        details["random_outputs"] = True
        drawing = _drawing_as_eager(subject, compiled, effective)

        def as_eager(seed: int) -> Snapshot:
            with released_while_compiling(room.release):
                return subject.outputs(drawing, seed)

        theirs = partial(as_eager, SEED)

        random = [path for path in seed_errors if path not in slightly]
        problem = _draws(subject, compiled, as_eager, effective, runs.outputs, random)
        # Tensors that are hardly random are compared as the timed program makes them, all others from `drawing`.
        steady = {path: made[path] for path in eager if path in made and (path not in seed_errors or path in slightly)}
        if not problem:
            made = as_eager(SEED)
    if problem:
        _disagree(outcome, Status.FAIL_ACCURACY, problem)
        _note_verdict(outcome, partial(_verdict_besides, outcome, subject, eager, theirs, own_tolerance, room))
        return
    if is_library:
        # The library changes its own copies of the buffers, so that the model's state is not compared.
        eager, made = _without_state(eager), _without_state(made)
    with checking():
        subject.state.complete([eager, made])
        subject.state.put_back()  # the reference is a copy of the model in this state
    subject.state.drop_rest()
    later = cache(partial(_later, subject, compiled, runs, made, is_library))
    stale = cache(partial(_stale, outcome, subject, compiled, eager, made, is_told=not (is_library or seed_errors)))
    if let_go:
        later()
        stale()
        let_go()
    found = reference_of(outcome, subject, room)
    _note_verdict(outcome, partial(_verdict, cell, eager, made, found, own_tolerance, room))
    reference = found.outputs
    if reference is not None:
        known = settle(_is_judge(path, exact, eager, seed_errors, slightly) for path, exact in reference.items())
        reference = {path: exact for (path, exact), judges in zip(reference.items(), known, strict=True) if judges}
    tolerance = tolerance_for(
        replace(cell, dtype=subject.lowest_dtype), own_tolerance, device_named(cell.device).allows_tf32()
    )
    judge = _Judge(outcome, subject, room, tolerance, reference, slightly, lacked=found.lacked)
    _note(judge, judge.compare(eager, made), found.by)
    _conclude(judge, eager, steady, later, stale)


def _is_judge(
    path: str, exact: object, eager: Snapshot, seed_errors: Mapping[str, float], slightly: Mapping[str, float]
) -> Asking[bool]:
    """Return whether a reference's tensor can judge eager's, although the reference draws other random numbers."""
    if path not in seed_errors:
        return True
    size = yield from asking_rms(exact)
    if slightly.get(path, math.inf) <= _HARDLY * size:
        return True
    own = yield from asking_rmse(eager.get(path), exact)
    return 2 * seed_errors[path] < own


def _verdict(
    cell: Cell, eager: Snapshot, made: Snapshot, found: Reference, own_tolerance: float | None, room: Room
) -> str:
    if found.lacked:
        raise NotCheckedError(f"no reference: {found.lacked}")
    reference = None if found.fails_in_float64 else found.outputs  # the runner knows no other reference
    judge = partial(pytorch_verdict, cell, eager, made, reference, own_tolerance)
    takes = bytes_for(eager)
    if takes <= SMALL_BYTES:
        return judge()
    needs = room.reserved + takes
    if room.is_too_large(needs):
        raise NotCheckedError(f"it would take {takes / 1e9:.1f} GB of device memory beside what is there")
    return room.run(needs, judge)


def _verdict_besides(
    outcome: Outcome,
    subject: Subject,
    eager: Snapshot,
    theirs: Callable[[], Snapshot] | None,
    own_tolerance: float | None,
    room: Room,
) -> str:
    """Return the verdict of PyTorch's check, which compares values only, on outputs that have another problem."""
    if theirs is None:
        raise NotCheckedError("no program that draws numbers as eager does was compiled")
    cell, made = outcome.measurement.cell, theirs()
    subject.state.complete([eager, made])
    subject.state.put_back()
    subject.state.drop_rest()
    found = reference_of(Outcome(Measurement(cell, Status.PASS, "", 0.0)), subject, room)
    return _verdict(cell, eager, made, found, own_tolerance, room)


def _note_verdict(outcome: Outcome, verdict: Callable[[], str]) -> None:
    """Record the verdict of PyTorch's own check, or why there is none. It does not decide the status, so errors are caught."""
    measurement = outcome.measurement
    try:
        measurement.details[PYTORCH_CHECK] = found = verdict()
        measurement.metrics[PYTORCH_CHECK] = float(found == Status.PASS)
    except Exception as error:
        measurement.details[NO_VERDICT] = reason_of(error)


def _conclude(
    judge: _Judge,
    eager: Snapshot,
    steady: Snapshot,
    later: Callable[[], _Later | None],
    stale: Callable[[], str | None],
) -> None:
    """Compare outputs that are not random (`steady`), later calls and other inputs, then require enough firm rows."""
    outcome = judge.outcome
    if outcome.measurement.status is Status.PASS and steady:
        judge.conclude(judge.compare({path: eager[path] for path in steady}, steady))
    if outcome.measurement.status is Status.PASS and (made := later()):
        judge.conclude(_agreement_later(judge, eager, made))
    if outcome.measurement.status is Status.PASS and (problem := stale()):
        _disagree(outcome, Status.FAIL_ACCURACY, problem)
    if outcome.measurement.status is Status.PASS and judge.share < LEAST_SHARE:
        _disagree(outcome, Status.ILL_CONDITIONED, judge.not_firm())


@dataclass(slots=True)
class _Judge:
    """The judge of a cell's snapshots. Outputs that do not agree are compared again without rows that hang on near ties.

    `share` is the smallest share of rows that was compared. `lacked` says why a reference lacks: no memory or no time.
    """

    outcome: Outcome
    subject: Subject
    room: Room
    tolerance: Tolerance
    reference: Snapshot | None
    slight: Mapping[str, float]
    share: float = 1.0
    told: dict[str, str] = field(default_factory=dict)
    lacked: str | None = None
    ties_lacked_room: bool = False
    nudged: Nudged | None = None
    margin: float = -1.0

    def conclude(self, agreement: Agreement) -> None:
        """Record the margin, and the status of the cell if the outputs do not agree.

        The status is `fail_accuracy`, or `not_checked` if a reference that lacked memory or time might have decided otherwise.
        """
        self._note_margin(agreement)
        if agreement.problem and self.lacked and agreement.is_unsure:
            problem = f"{agreement.problem}, and no reference can tell: {self.lacked}"
            _disagree(self.outcome, Status.NOT_CHECKED, problem, _MORE_MEMORY)
        elif agreement.problem:
            _disagree(self.outcome, Status.FAIL_ACCURACY, agreement.problem)

    def _note_margin(self, agreement: Agreement) -> None:
        """Record the error that is nearest to its limit, or furthest beyond it, over all comparisons of the cell."""
        margin = -1.0 if agreement.margin is None else agreement.margin
        if agreement.problem and margin <= 1:
            margin = math.inf  # the problem is none of an error over its limit
        if margin <= self.margin:
            return
        self.margin, measurement = margin, self.outcome.measurement
        if math.isfinite(margin):
            measurement.metrics["error_margin"], measurement.details[NEAREST] = margin, agreement.nearest
        else:
            measurement.metrics.pop("error_margin", None)
            measurement.details.pop(NEAREST, None)

    def compare(self, eager: Snapshot, made: Snapshot, known: Snapshot | None = None, calls: int = 1) -> Agreement:
        """Compare the compiled outputs after `calls` calls with eager's; `known` replaces the reference if given."""
        reference = self.reference if known is None else known
        with checking():
            agreement = compare(eager, made, reference, self.tolerance, self.slight)
            doubtful = dict.fromkeys(agreement.wrong)
            if not agreement.problem or doubtful:
                found = jumping(eager, reference)
                if not agreement.problem and (apart := self._without_jumps(eager, made, reference, found)):
                    return apart
                doubtful |= dict.fromkeys(found)
        if not doubtful:
            return agreement
        for runs in (FEW, len(NUDGES)):
            ties = self._ties(eager, made, reference, tuple(doubtful), calls, runs)
            if ties is None and _NO_TIES in self.outcome.measurement.details:
                break  # eager could not be run
            if ties is None:
                continue
            with checking():
                firm = compare(ties.eager, ties.compiled, ties.reference, self.tolerance, self.slight)
            if not firm.problem and not ties.problem and (ties.share >= LEAST_SHARE or runs > FEW):
                self.share = min(self.share, ties.share)
                self.told |= ties.told
                self.outcome.measurement.details["near_ties"] = dict(islice(self.told.items(), _NAMED))
                return firm
        if ties is None:
            return self._without_ties(agreement, eager, reference) if agreement.problem else agreement
        if not ties.problem:
            agreement = replace(agreement, wrong=firm.wrong, unsure=firm.unsure)
        return replace(agreement, problem=ties.problem or firm.problem)

    def _without_jumps(
        self, eager: Snapshot, made: Snapshot, reference: Snapshot | None, found: Mapping[str, Rows]
    ) -> Agreement | None:
        """Compare agreeing outputs again without the rows in which eager jumps; None if only runs of eager can tell more."""
        try:
            parted = part_jumps(eager, made, reference, found) if found and reference else None
            if parted is None:
                return None
            firm = compare(parted.eager, parted.compiled, parted.reference, self.tolerance, self.slight)
        except Exception as error:
            is_full = device_named(self.outcome.measurement.cell.device).is_full()
            if classify(error, Stage.CORRECTNESS, is_full)[0] is not Status.OOM:
                raise
            return None  # the runs of eager that follow ask for their own memory
        return None if firm.problem else firm

    def _without_ties(self, agreement: Agreement, eager: Snapshot, reference: Snapshot | None) -> Agreement:
        """Mark the outputs that may hang on near ties as unsure if eager could not be run to find these."""
        why = self.outcome.measurement.details.get(_NO_TIES)
        self.outcome.lacked_room |= self.ties_lacked_room
        if why is None:
            return agreement
        self.lacked = self.lacked or f"eager could not be run with other weights: {why}"
        return replace(agreement, unsure=(*agreement.unsure, *jumping(eager, reference)))

    def not_firm(self) -> str:
        """Return the message for a cell of which too few rows are left to compare."""
        path, rows = next(iter(self.told.items()))
        return f"eager's own outputs jump when weights move by one unit in the last place: {path}: {rows}"

    def _ties(
        self, eager: Snapshot, made: Snapshot, reference: Snapshot | None, wrong: tuple[str, ...], calls: int, runs: int
    ) -> Ties | None:
        """Set near ties aside by `runs` runs of eager with other weights; None without near ties, or if eager could not run."""
        device = device_named(self.outcome.measurement.cell.device)
        device.give_back_unused()

        def part() -> Ties | None:
            twins: list[Subject] = []

            def run(number: int) -> Snapshot:
                if not twins:
                    twins.append(self.subject.twin())
                nudge(twins[0].model, self.subject.model, number, self.subject.computes_in)
                return twins[0].outputs(twins[0].eager, calls=calls)

            with deterministic_algorithms(strict=False):
                # Outputs that later calls do not change in eager are not changed by them with other weights either.
                if self.nudged is None or not self.nudged.knows(eager, wrong):
                    self.nudged = Nudged.of(eager, reference, wrong, run, runs)
                elif self.nudged.runs < runs:
                    self.nudged.run_more(run, runs)
                return part_ties(eager, made, reference, wrong, self.tolerance, run, self.nudged)

        try:
            return self.room.run(self.room.for_reference(1.0), part)
        except Exception as error:
            self.outcome.measurement.details[_NO_TIES] = reason_of(error)
            if classify(error, Stage.CORRECTNESS, device.is_full())[0] is Status.OOM:
                self.ties_lacked_room = True
            return None
        finally:
            device.give_back_unused()


def _note(judge: _Judge, agreement: Agreement, by: str) -> None:
    """Record the measures of a comparison, and the status if outputs do not agree or could not be compared."""
    outcome = judge.outcome
    details = outcome.measurement.details
    if agreement.rmse_ratio is not None:
        outcome.measurement.metrics["error_rmse_ratio"] = agreement.rmse_ratio
    if agreement.cosine is not None:
        outcome.measurement.metrics["cosine"] = agreement.cosine
    details |= {"tensors_compared": agreement.compared, CHECKED_BY: BY_COSINE if agreement.by_cosine else by}
    if agreement.by_cosine:
        details["compared_by_cosine"] = agreement.by_cosine
    if agreement.noisy:
        details["noisy_gradients"] = agreement.noisy
    if agreement.tails:
        details["tails"] = {name: round(min(share, _LARGEST_SHARE), 3) for name, share in agreement.tails.items()}
    if agreement.unchecked:
        details["not_compared"] = dict(islice(agreement.unchecked.items(), _NAMED))
    if not agreement.problem and agreement.unchecked:
        path, why = next(iter(agreement.unchecked.items()))
        more = f" (and {len(agreement.unchecked) - 1} more)" if len(agreement.unchecked) > 1 else ""
        _disagree(outcome, Status.NOT_CHECKED, f"{path}: {why}{more}")
    judge.conclude(agreement)


def _draws(
    subject: Subject,
    compiled: Callable[[], Any],
    as_eager: Callable[[int], Snapshot],
    effective: Effective,
    first: Snapshot,
    random: Iterable[str],
) -> str | None:
    """Return how the timed program draws these tensors otherwise than eager, or None. Only Inductor's programs are compared."""
    if not effective.config.is_inductors:
        return None  # other back-ends call eager's operators
    eager, timed = partial(subject.outputs, subject.eager), partial(subject.outputs, compiled)
    return wrong_draws(eager, timed, as_eager, first, random, SEED + 2)


def _drawing_as_eager(subject: Subject, compiled: Callable[[], Any], effective: Effective) -> Callable[[], Any]:
    """Return a program that draws from eager's generator, as all programs that PyTorch's runner compares do."""
    if not effective.config.is_inductors:
        return compiled  # other back-ends call eager's operators
    return subject.compiled(replace(effective, options={**effective.options, "fallback_random": True}))


def _touched(runs: EagerRuns, made: Snapshot) -> str | None:
    """Return a message on the first tensor of the state that the compiled program changed and eager did not write to, or None."""
    left_alone = (path for path in made if path.startswith(STATE) and path not in runs.outputs)
    touched = next((path for path in left_alone if path.removesuffix(KIND) not in runs.written), None)
    return f"{touched}: the compiled program changes it, eager leaves it alone" if touched else None


def _stale(
    outcome: Outcome, subject: Subject, compiled: Callable[[], Any], eager: Snapshot, made: Snapshot, *, is_told: bool
) -> str | None:
    """Return a message on an output that other inputs move in eager and hardly in the program, or None.

    A recorded graph that keeps the inputs of an earlier call is right as long as all calls have the same. Nothing is concluded
    where other inputs tell nothing (`is_told` is false then), or if a form does not run with them.
    """
    own, details = subject.inputs, outcome.measurement.details
    # Other tensors would lack the marks of a dynamic program, which runs at two sizes anyway.
    if not is_told or outcome.measurement.cell.config.dynamic in MARKS:
        return None
    try:
        with checking():
            errors = _moves(made, eager)
            sizes = dict(zip(errors, settle(asking_rms(eager[path]) for path in errors), strict=True))
        others = zip(*(changed_inputs((own.args, own.kwargs)) for _ in range(2)), strict=True)
        for for_eager, for_program in others:  # a call may write to its inputs
            subject.place(replace(own, args=for_program[0], kwargs=for_program[1]))
            by_program = _moves(subject.outputs(compiled), made)
            subject.place(replace(own, args=for_eager[0], kwargs=for_eager[1]))
            for path, move in _moves(subject.outputs(subject.eager), eager).items():
                is_clear = max(_CLEAR * errors[path], _MUCH * sizes[path]) < move < math.inf
                if is_clear and by_program[path] < move / 2:
                    moves = f"move it by {move:.3g} in eager and by {by_program[path]:.3g} in the program"
                    return f"{path}: other inputs {moves}, which keeps something of an earlier call"
    except Exception as error:
        details["no_other_inputs"] = reason_of(error)
    finally:
        subject.place(own)
    return None


def _moves(made: Snapshot, first: Snapshot) -> dict[str, float]:
    """Return how far each floating output (RMSE) is from the first one; infinite if it is missing or has another shape."""
    paths = [path for path, value in first.items() if is_float(value) and not path.startswith(STATE)]
    return dict(zip(paths, settle(asking_rmse(made.get(path), first[path]) for path in paths), strict=True))


@dataclass(frozen=True, slots=True)
class _Later:
    """The outputs of the last of several calls in a row, of eager and of the program, or a problem besides their values."""

    eager: Snapshot
    made: Snapshot
    problem: str | None = None


def _later(
    subject: Subject, compiled: Callable[[], Any], runs: EagerRuns, made: Snapshot, is_library: bool
) -> _Later | None:
    """Call the program several times in a row; return None if that shows nothing more than its first call.

    That is so if each call draws other numbers, for a library, which keeps its own buffers from call to call, and if calls
    change parameters, which are kept for the first calls only. Tensors that equal the first call's are held once.
    """
    parameters = {path for path, _ in subject.state.parameters()}
    if runs.seed_errors or is_library or parameters & runs.written:
        return None
    later = subject.outputs(compiled, calls=IN_A_ROW)
    with checking():
        if problem := _touched(runs, later) or next((_LOST.format(path) for path in subject.state.lost()), None):
            return _Later({}, {}, problem)
        eager = dict(runs.later or runs.outputs)
        subject.state.complete([eager, later])
        if runs.later is None and not identical(made, later):
            return None
        return _Later(eager, held_once(later, made))


def _agreement_later(judge: _Judge, first: Snapshot, later: _Later) -> Agreement:
    """Compare the last of several compiled calls in a row; `first` are the outputs of eager's first one."""
    if later.problem:
        agreement = Agreement(later.problem, None, None, 0)
    else:
        # Outputs that depend on the state would need a reference that is called as often.
        reference = judge.reference or {}
        known = {path: exact for path, exact in reference.items() if later.eager.get(path) is first.get(path)}
        agreement = judge.compare(later.eager, later.made, known, IN_A_ROW)
    problem = agreement.problem and f"after {IN_A_ROW} calls in a row: {agreement.problem}"
    return replace(agreement, problem=problem)


def _without_state(snapshot: Snapshot) -> Snapshot:
    return {path: value for path, value in snapshot.items() if not path.startswith(STATE)}
