"""The search, by torch's own compiler bisector, for the part of the compiler with which a cell fails.

The bisector compiles the cell again and again, each time with another back-end or with a part of Inductor switched off.
Each of these steps is a process forked from this one, so that a step that crashes is a bad step and ends nothing else.
The bisector keeps its state in files; the variable with their place is inherited by the fork.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection

from torch._inductor import config as inductor_config
from torch._inductor.compiler_bisector import CompilerBisector

from collector.correctness.checking import check
from collector.correctness.reference import Room
from collector.device import device_named
from collector.failures import EXPLAINABLE, Explanation, classify
from collector.measure.cell import Builder
from collector.measure.dynamic_shapes import TwoSizes, load
from collector.measure.program import Subject, allow_determinism_later, seed_everything
from collector.measure.tuning import shared_where_asked
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.templates import Effective, resolve_config
from collector.vocabulary import Cell, Measurement, Stage, Status

#: The part of the time limit that the steps may use; the rest is for reporting the results so far.
_PART = 0.9
#: The last of the bisector's back-ends.
_INDUCTOR = "inductor"
#: torch's text of an operator.
_OPERATOR = re.compile(r"<OpOverload\(op='(.+)', overload='(.+)'\)>")


class _StoppedError(Exception):
    """A search that cannot go on; the text says why."""


def explain(cell: Cell, build: Builder, settings: Settings) -> Outcome:
    """Run the bisector on a cell; return a measurement that has only the explanation.

    Do not use the device in this process before, since a forked process could not use it then.
    """
    search = _Search(cell, build, settings)
    unfinished, result = "", None
    try:
        result = CompilerBisector.do_bisect(search.passes)
    except (_StoppedError, RuntimeError) as error:  # the bisector raises RuntimeError if steps contradict each other
        unfinished = str(error)
    explanation = Explanation(
        backend=result.backend if result else search.backend,
        subsystem=(result.subsystem if result else search.subsystem) or "",
        number=result.bisect_number if result else None,
        target=_target(result.subsystem, result.debug_info) if result else "",
        status=search.status,
        unfinished=unfinished,
        steps=search.steps,
        seconds=round(time.monotonic() - search.began, 1),
    )
    measurement = Measurement(cell, Status.PASS, search.started_at, explanation.seconds)
    explanation.added_to(measurement)
    return Outcome(measurement)


def _target(subsystem: str | None, info: str | None) -> str:
    """Return torch's name of the application that the bisector found; "" if it only repeats the subsystem's name."""
    if not info or info == subsystem:
        return ""
    operator = _OPERATOR.fullmatch(info)
    return f"{operator[1]}.{operator[2]}" if operator else info


class _Search:
    """The steps of one search, and the results so far: the back-end and the subsystem that the failure needs."""

    def __init__(self, cell: Cell, build: Builder, settings: Settings) -> None:
        self.cell, self.build, self.settings = cell, build, settings
        self.began, self.steps = time.monotonic(), 0
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self.backend = self.subsystem = self.status = ""

    def passes(self) -> bool:
        """Run one step; return whether the cell passes in the bisector's present state."""
        backend, subsystem = CompilerBisector.get_backend() or "", CompilerBisector.get_subsystem() or ""
        status = self._status_in_a_process()
        self.steps += 1
        sys.stdout.write(f"{' '.join(filter(None, (backend, subsystem)))}: {status.value}\n")
        if status is not Status.PASS and status not in EXPLAINABLE:
            raise _StoppedError(f"a step ended in {status.value}")
        if status is not Status.PASS and not subsystem:
            self.backend, self.status = backend, status.value
        elif status is Status.PASS and subsystem:
            self.subsystem = subsystem
        return status is Status.PASS

    def _status_in_a_process(self) -> Status:
        left_s = _PART * self.settings.timeout_s - (time.monotonic() - self.began)
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=self._step, args=(sender,))
        sys.stdout.flush()
        process.start()
        sender.close()
        try:
            if not receiver.poll(max(0.0, left_s)):
                raise _StoppedError(f"not done after {self.settings.timeout_s:g} s: use a longer --timeout")
            return Status(receiver.recv())
        except EOFError:  # it ended without an answer
            return Status.CRASHED
        finally:
            process.kill()
            process.join()
            receiver.close()

    def _step(self, answer: Connection) -> None:
        answer.send(_status(self.cell, self.build, self.settings).value)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # as a worker does: pools and teardown may hang


def _status(cell: Cell, build: Builder, settings: Settings) -> Status:
    """Return the status of the cell in the bisector's present state, without timing anything."""
    outcome = Outcome(Measurement(cell, Status.PASS, "", 0.0))
    stage = Stage.LOAD_MODEL
    try:
        settings.flags.apply()
        allow_determinism_later(cell.device)
        seed_everything()
        subject, sizes = load(cell, build, settings.optimizer)
        stage = Stage.EAGER
        subject.eager()
        stage = Stage.COMPILE
        _compile_and_check(outcome, subject, sizes, settings)
    except Exception as error:
        outcome.measurement.status = classify(error, stage)[0]
        traceback.print_exception(error)
    return outcome.measurement.status


def _compile_and_check(outcome: Outcome, subject: Subject, sizes: TwoSizes | None, settings: Settings) -> None:
    """Compile with the back-end of this step, and check the outputs by the rules for all cells."""
    cell, backend = outcome.measurement.cell, CompilerBisector.get_backend() or _INDUCTOR
    if backend == _INDUCTOR:
        effective = resolve_config(cell.config, cell.device)
        if shared := shared_where_asked(cell, settings.shared_tuning):
            shared.install()
    else:
        effective = Effective(replace(cell.config, backend=backend), {}, {}, {})
    compiled = subject.compiled(effective)
    seed_everything()
    # Other back-ends decompose random operators too; for Inductor, the check compiles a program that draws as eager does anyway.
    with nullcontext() if backend == _INDUCTOR else inductor_config.patch(fallback_random=True):
        for _ in range(1 + settings.warmups):
            compiled()
        device_named(cell.device).synchronize()
        check(outcome, subject, compiled, effective)
        if sizes and outcome.measurement.status is Status.PASS:
            sizes.check_other(outcome, compiled, effective, Room())
