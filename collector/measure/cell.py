"""The measurement of one cell, stage by stage, in this process. Use a separate process for it: it fills caches and may crash."""

from __future__ import annotations

import gc
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

import torch

from collector import configs
from collector.code import known_by
from collector.correctness.checking import check
from collector.correctness.reference import Room
from collector.device import device_named, is_accelerator
from collector.failures import classify
from collector.machine.environment import environment_id, fingerprint
from collector.machine.host import Watcher, available_bytes, throttled
from collector.machine.yardstick import DEVICE_BYTES, SLOW_HOST, GpuYardstick, IdleProbe, NoYardstickError, host_ms
from collector.measure import autotuning, counters, memory, warm
from collector.measure.ahead_of_time import NOT_COUNTED
from collector.measure.autotuning import held_between_compilations
from collector.measure.candidates import others_in
from collector.measure.counters import demand_compiled_calls, demand_compiled_gradients, demand_graphs
from collector.measure.dynamic_shapes import TwoSizes, load
from collector.measure.evidence import Evidence
from collector.measure.generated_code import CodeLog
from collector.measure.program import Subject, allow_determinism_later, seed_everything
from collector.measure.roof import ROOM_BYTES
from collector.measure.timing import (
    Pass,
    Profile,
    Samples,
    counted,
    drift,
    garbage_collection_off,
    interleaved,
    relative_half_width,
    settle,
    timed_s,
)
from collector.measure.tuning import file_name, padding, recorded, shared_where_asked
from collector.measure.tuning import watch as watch_tuning
from collector.own_models import USER, described, own_model
from collector.process.outcome import Outcome, gaps, merged, union_length
from collector.settings import Settings
from collector.templates import Effective, resolve_config
from collector.vocabulary import (
    AHEAD_OF_TIME,
    CHECKED_BY,
    CHECKED_ELSEWHERE,
    INPUT_BATCH,
    OWN_BATCH,
    PADDING,
    SIZES,
    UNCHECKED,
    Cell,
    Measurement,
    Phase,
    Stage,
    Status,
)
from collector.zoo.builders.outside_models import input_batch
from collector.zoo.spec import Built, before_device_use

#: A function that builds a model; a cell with marked dimensions builds its inputs once more, with `shorter=2`.
Builder = Callable[..., Built]


#: Device memory for the first small product of a process: cuBLAS's workspace and the allocator's first block.
_FIRST_PRODUCT_BYTES = 128 << 20
#: Passes of the profiler over both forms; the shorter device time of each form counts. Of 235 measurements on H200s
#: (`data/nights`) six were 3 to 50 % above the program's measurements in all other processes, since the work of another process
#: was not over.
_PASSES = 2
#: Eager is timed in every other round, compiled code in all rounds. On H100s eager took two thirds of the time for which a
#: night's cells had the GPU alone to be timed. Without half of its samples its median moves by 0.3 % (90 % of 446 measurements:
#: by less than 2.2 %), and two processes of a model differ by more.
_EVERY = (2, 1)
#: Device memory that a second process takes before it allocates anything (`jobs.pool.gpu_scheduler`).
_CONTEXT_BYTES = 700_000_000


class Host(Protocol):
    """The services of the parent process for a cell.

    `idle_ms`: the shortest `collector.machine.yardstick` probe of the run on this device so far, 0 if there was none.
    `eager_ms`: the least eager latency of this model in the run so far, 0 if there was none. `room_bytes`: the device memory
    that all cells may use together; None if unknown. `promised_bytes`: the part of it that the parent kept for this cell in its
    last hold, because the cell could not know its needs or because the needs of its check are known; None if nothing is kept.
    """

    idle_ms: float
    eager_ms: float
    room_bytes: int | None
    promised_bytes: int | None

    def stage(self, stage: Stage) -> None:
        """Receive the stage of the cell, so that a crash or a time-out can be attributed."""

    def exclusive(self, purpose: str = "measure", needs: int | None = None) -> AbstractContextManager[None]:
        """Return a context in which to use the device, with `needs` bytes of its memory in all; None if unknown.

        Purposes: `device` beside other cells that use it; `tune` and `measure` while no other cell uses it;
        `choose` and `still` while all other processes stand still.
        """
        return nullcontext()

    def released(self) -> AbstractContextManager[None]:
        """Return a context in which a held device is given back for some time."""
        return nullcontext()


class Alone(Host):
    """A host for a cell that has the machine to itself."""

    idle_ms = eager_ms = 0.0
    room_bytes = promised_bytes = None

    def stage(self, stage: Stage) -> None:
        """Do nothing."""


def measure(cell: Cell, build: Builder, settings: Settings, host: Host | None = None) -> Outcome:
    """Measure one cell. Errors of the model or the compiler become the status and are not raised."""
    run = _Run(cell, settings, host or Alone())
    try:
        run.all_stages(build)
    except Exception as error:
        run.measurement.status, failure = classify(error, run.at, run.device.is_full())
        failure.message = f"{run.where}{failure.message}"
        run.measurement.failure = failure
        # The stack goes to the log, whose end is kept with the failure.
        traceback.print_exception(error)
    return run.finish()


class _Calls(NamedTuple):
    """A call of the eager model and a call of the compiled program."""

    eager: Callable[[], Any]
    compiled: Callable[[], Any]

    def passes(self, passes: Sequence[Pass]) -> dict[str, Sequence[Pass]]:
        """Return the passes of each form, by its name; `passes` has those of both forms in turn."""
        return {name: passes[place::2] for place, name in enumerate(self._fields)}


@dataclass(frozen=True, slots=True)
class _Taken:
    """The samples of both forms, the allocated bytes before and after them, and the profile that followed, if any."""

    eager: Samples
    compiled: Samples
    before: int | None
    after: int | None
    profile: Profile | None = None

    @property
    def eager_ms(self) -> float:
        return median(self.eager.ms)


class _Run:
    """The state of one cell while it goes through the stages."""

    def __init__(self, cell: Cell, settings: Settings, host: Host) -> None:
        self.cell, self.settings, self.host = cell, settings, host
        self.device = device_named(cell.device)
        self.measurement = Measurement(cell, Status.PASS, datetime.now(UTC).isoformat(timespec="seconds"), 0.0)
        self.metrics, self.details = self.measurement.metrics, self.measurement.details
        self.outcome = Outcome(self.measurement)
        #: The stage, and the prefix of messages at another size than the cell's own.
        self.at, self.where = Stage.START, ""
        self.yardstick: GpuYardstick | None = None
        #: Whether an earlier process of the cell has compiled the program, so that it is found in the caches.
        self.is_found = False
        self.evidence = Evidence(self.outcome, settings)
        self.log, self.code = counters.CompilerLog().attach(), CodeLog()
        self.clock = time.monotonic()

    def all_stages(self, build: Builder) -> None:
        """Run every stage in order; a stage that fails raises and ends the cell."""
        self._enter(Stage.START)
        self.settings.flags.apply()
        model = described(self.cell.suite, self.cell.model, self.settings.own_models)
        self.outcome.environment = fingerprint(self.cell.device) | self.settings.testbed() | model
        self.measurement.environment_id = environment_id(self.outcome.environment)
        self._enter(Stage.RESOLVE_CONFIG)
        effective = resolve_config(self.cell.config, self.cell.device)
        self.outcome.program, self.measurement.program_id = effective.program, effective.program_id
        self.evidence.asks_for_graphs = bool(effective.options.get("triton.cudagraphs"))
        if effective.ignored:
            self.details["ignored_options"] = effective.ignored
        configs.check_availability(effective, self.cell.device, self.cell.phase, self.cell.dtype)
        self._enter(Stage.LOAD_MODEL)
        with ExitStack() as stack:
            subject, sizes = self._load(build, stack)
        self._enter(Stage.EAGER)
        with self._as_promised():
            self._eager(subject)
        self._enter(Stage.COMPILE)
        compiled = self._compile(subject, effective)
        if self.settings.code_only or self._code_is_known():
            self.details["only"] = "code"
            self._enter(Stage.DONE)
            return
        # Latencies come first: a profiler or a deterministic setting makes every later call of a process slower.
        compare_sizes = partial(self._compare_sizes, compiled, effective, sizes) if sizes else None
        before = {*self.metrics, *self.details}
        self._measure(subject, compiled, compare_sizes)
        self.outcome.timed = sorted({*self.metrics, *self.details} - before)
        self._look_into_memory(subject, compiled)
        if self.metrics.get("fallbacks"):
            demand_compiled_calls(compiled)
        if self.is_found and self.settings.passed_code and self.settings.passed_code == self.measurement.code_id:
            self.details[CHECKED_ELSEWHERE] = True
        elif self.settings.unchecked:
            self.details[CHECKED_BY] = UNCHECKED
        else:
            self._check(subject, compiled, effective, sizes)
        if sizes:
            self.details[SIZES] = sizes.details
        if self.settings.warm_compile:
            del subject, compiled, sizes, compare_sizes
            self._compile_again()
        self._enter(Stage.DONE)

    def _check(
        self, subject: Subject, compiled: Callable[[], Any], effective: Effective, sizes: TwoSizes | None
    ) -> None:
        self._enter(Stage.CORRECTNESS)
        room = self._room()

        def let_go() -> None:
            torch.compiler.reset()
            memory.free_copies(self.device)

        # Graphs keep as much as activations take. A dynamic program is called once more, at another size.
        keeps_memory = self.evidence.asks_for_graphs and not sizes
        with self._holding("device", room.for_calls()):
            own = self._own_tolerance()
            check(self.outcome, subject, compiled, effective, own, room, let_go if keeps_memory else None)
            if sizes and self.measurement.status is Status.PASS:
                sizes.check_other(self.outcome, compiled, effective, room)

    @property
    def on_accelerator(self) -> bool:
        """Return whether the device is separate from the host's processor."""
        return is_accelerator(self.cell.device)

    def _own_tolerance(self) -> float | None:
        """Return the tolerance that the user gives their own model, or None."""
        if self.cell.suite != USER:
            return None
        return own_model(self.cell.model, self.settings.own_models).tolerance

    def _code_is_known(self) -> bool:
        """Return whether the cell was measured before with this code, program and environment (`Settings.known_code`)."""
        known, measurement = self.settings.known_code, self.measurement
        return known != "" and known == known_by(measurement.code_id, measurement.program_id, self.outcome.environment)

    def _room(self) -> Room:
        """Return the memory that this cell's correctness stage may use."""
        peak = int(self.metrics.get("eager_peak_bytes", 0))
        total, host_memory = self.device.total_bytes(), available_bytes if self.on_accelerator else None
        return Room(
            self._holding,
            self.cell.device,
            eager_peak=peak,
            total=total,
            for_cells=self.host.room_bytes,
            release=self._released,
            host_memory=host_memory,
            promised=lambda: self.host.promised_bytes,
        )

    def _calls_need(self) -> int | None:
        """Return an estimate in bytes of the most device memory of eager and compiled calls; None before eager's peak is known.

        It is the memory that is reserved now, plus the memory of an eager call above what stays between calls, plus half of
        eager's whole peak for a cudagraph's pool and for memory that the allocator cannot reuse.
        """
        peak = self.metrics.get("eager_peak_bytes")
        if peak is None:
            return None
        above = max(0, int(peak) - (self.device.allocated() or 0))
        return self.device.reserved() + above + int(peak) // 2

    def _note_reserved(self) -> None:
        """Record the most device memory that the allocator reserved, by stage and in all; the next run plans with it."""
        if most := self.device.most_reserved():
            by_stage = self.details.setdefault("stage_bytes", {})
            by_stage[self.at.value] = max(most, by_stage.get(self.at.value, 0))
            self.details["device_bytes"] = max(most, self.details.get("device_bytes", 0))

    def finish(self) -> Outcome:
        """Return the outcome up to the stage in which the cell ended."""
        self._note_reserved()
        self.measurement.wall_s = round(time.monotonic() - self.clock, 3)
        # JSON has no infinity and no NaN: such a value counts as not measured.
        self.measurement.metrics = {name: value for name, value in self.metrics.items() if math.isfinite(value)}
        return self.outcome

    @contextmanager
    def _holding(self, purpose: str, needs: int | None = None) -> Iterator[None]:
        """Hold the device for this cell; wait for its work and free unused memory before giving it back."""
        with self.host.exclusive(purpose, needs):
            yield
            self.device.synchronize()
            self.device.give_back_unused()

    @contextmanager
    def _as_promised(self) -> Iterator[None]:
        """Hold the device with the promised memory as a limit, since this process cannot know its needs yet."""
        with self._holding("device"), self.device.limited(lambda: self.host.promised_bytes):
            yield

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Give a held device back in this context, together with unused memory."""
        self.device.synchronize()
        self.device.give_back_unused()
        with self.host.released():
            yield

    def _enter(self, stage: Stage) -> None:
        now = time.monotonic()
        self._note_reserved()
        self.device.forget_peaks()
        spent = self.details.setdefault("stage_s", {})
        spent[self.at.value] = round(spent.get(self.at.value, 0.0) + now - getattr(self, "_since", now), 3)
        self._since, self.at = now, stage
        self.host.stage(stage)

    def _load(self, build: Builder, stack: ExitStack) -> tuple[Subject, TwoSizes | None]:
        """Build the model; enter the hold of the device in `stack` only once it is used, since most work is on the CPU."""
        with self._holding("device", _FIRST_PRODUCT_BYTES):
            allow_determinism_later(self.cell.device)
        held: list[None] = []

        def hold() -> None:
            if not held:
                held.append(stack.enter_context(self._as_promised()))

        def built(*args: Any, **options: Any) -> Built:
            with before_device_use(hold):
                made = build(*args, **options)
            hold()  # the caller moves the model to the device next
            return made

        seed_everything()
        subject, sizes = load(self.cell, built, self.settings.optimizer)
        if self.cell.batch_size == OWN_BATCH and (batch := input_batch(subject.inputs.args, subject.inputs.kwargs)):
            self.details[INPUT_BATCH] = batch
        self.details["parameters"] = sum(parameter.numel() for parameter in subject.model.parameters())
        return subject, sizes

    def _eager(self, subject: Subject) -> None:
        seed_everything()
        for _ in range(2):
            subject.eager()
        self.device.synchronize()
        if self.on_accelerator:
            self._peak("eager_peak_bytes", subject, subject.eager)

    def _peak(self, name: str, subject: Subject, call: Callable[[], Any], calls: int = 1) -> None:
        self._note_reserved()
        subject.release_gradients()
        resident = [*subject.model.parameters(), *subject.model.buffers()]
        if (peak := self.device.peak_bytes(call, resident, calls)) is not None:
            self.metrics[name] = float(peak)
        elif self.on_accelerator:
            self.details["no_peak_bytes"] = f"torch does not count the most memory that was held on {self.cell.device}"

    def _compile(self, subject: Subject, effective: Effective) -> Callable[[], Any]:
        counters.reset()
        # Asked before anything is written into the caches here.
        self.is_found = self.settings.compiled != "" and any(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).iterdir())
        shared = None
        if effective.config.is_inductors:
            autotuning.listen()
            watch_tuning()
            self.code.attach()
            if shared := shared_where_asked(self.cell, self.settings.shared_tuning):
                shared.install()
        compiled = subject.compiled(effective)
        seed_everything()
        begin, cpu_begin = time.monotonic(), time.process_time()
        candidates = Path(self.settings.candidates, file_name(self.cell)) if self.settings.candidates else None
        with (
            held_between_compilations(lambda: self._holding("device", self._calls_need())),
            recorded(candidates) as tuning,
        ):
            first_s, instructions = counted(lambda: timed_s(compiled, self.cell.device))
        if instructions is not None:
            self.metrics["compile_instructions"] = float(instructions - tuning.instructions)
        window = begin, time.monotonic()
        tuned = merged(tuning.spans, window)
        self.outcome.compile_windows |= {"tuning_s": tuned, "compile_cold_s": gaps(tuned, window)}
        self.details["compile_cpu_s"] = round(time.process_time() - cpu_begin, 3)
        with self._holding("device", self._calls_need()):
            if self.on_accelerator:
                # The next calls record cudagraphs, whose allocations belong to the program.
                self._peak("compiled_peak_bytes", subject, compiled, self.settings.warmups)
            else:
                for _ in range(self.settings.warmups):
                    compiled()
            warm_s = median(timed_s(compiled, self.cell.device) for _ in range(3))
        self.metrics["tuning_s"] = union_length(tuned)
        self.metrics["compile_cold_s"] = max(0.0, first_s - warm_s - self.metrics["tuning_s"])
        self._count()
        self._take_code()
        self._demand_compiled(subject, compiled)
        if self.is_found:
            self.details["compiled_before"] = True
            for name in ("compile_cold_s", "compile_instructions", "tuning_s"):
                self.metrics.pop(name, None)
        if shared:
            self.details["shared_tuning"] = shared.keep()
            if candidates and (others := others_in(candidates)):
                self.details["shared_tuning"]["candidates_of"] = others
        return compiled

    def _demand_compiled(self, subject: Subject, compiled: Callable[[], Any]) -> None:
        """Raise `NotCompiledError` if the compiled program is in fact eager."""
        config, fallbacks = self.cell.config, self.details.get(counters.FALLBACK_REASONS, [])
        demand_graphs(config, self.metrics, self.measurement.code_id is not None, fallbacks)
        if self.cell.phase is Phase.TRAINING:
            with self._holding("device", self._calls_need()):
                demand_compiled_gradients(config, subject.gradient_graph(compiled))

    def _take_code(self) -> None:
        code, self.outcome.texts = self.code.take()
        if code:
            self.outcome.code, self.measurement.code_id = code.to_json(), code.code_id
            self.evidence.take_lines(code)
            if padded := padding():
                self.details[PADDING] = padded

    def _look_into_memory(self, subject: Subject, compiled: Callable[[], Any]) -> None:
        """Record the tensors saved for the backward pass, and on a GPU the memory alive at the peak; errors fail no cell."""
        watched = {"saved_tensors": self.evidence.take_saved} if self.cell.phase is Phase.TRAINING else {}
        if self.on_accelerator:
            watched["peak_lines"] = self.evidence.take_peak_lines
        for key, watch in watched.items():
            with self.evidence.absent_where_failing(key), self._holding("device", self._calls_need()):
                watch(subject, compiled)

    def _count(self) -> None:
        found, details = counters.read(self.log)
        if self.cell.config.backend == AHEAD_OF_TIME:
            found = {name: value for name, value in found.items() if name not in NOT_COUNTED}
        self.metrics |= found
        self.details |= details | autotuning.results()

    def _measure(self, subject: Subject, compiled: Callable[[], Any], compare_sizes: Callable[[], None] | None) -> None:
        """Sample and profile. Both hold the device, so all other work is done outside of the holds."""
        calls = _Calls(subject.eager, compiled)
        self._enter(Stage.TIMING)
        watcher = Watcher(self.device.uuid())
        gc.collect()
        probe = None
        if self.on_accelerator:
            if not compare_sizes:
                self.evidence.expect_calls()
            with self._holding("device", self._calls_need()):
                probe = self.device.idle_probe(self.host.idle_ms)
                if probe is None:
                    self.details["no_idle_probe"] = (
                        f"there is no probe that tells whether others use {self.cell.device}"
                    )
                self._open_yardstick()
        is_profiled = self.on_accelerator and not compare_sizes
        taken = self._samples("measure", calls, probe, watcher, is_profiled)
        if self._is_slow(taken.eager_ms):
            # The model's eager form was faster before, so the host was slow: sample again while all other cells stand still.
            again = self._samples("still", calls, probe, watcher, is_profiled)
            self.details["sampled_again"] = round(taken.eager_ms / again.eager_ms, 3)
            taken = replace(min(taken, again, key=attrgetter("eager_ms")), profile=again.profile)
        self._take_samples(taken.eager.ms, taken.compiled.ms)
        self.evidence.returned_ms = median(taken.compiled.returned_ms)
        if not self.on_accelerator:
            # On a CPU the profiler counts memory, so this comes after the samples.
            self._peak("eager_peak_bytes", subject, subject.eager)
            self._peak("compiled_peak_bytes", subject, compiled)
        self._ratio("compression", "eager_peak_bytes", "compiled_peak_bytes")
        self._count_again()
        self._take_leak(compiled, taken.before, taken.after)
        profile = taken.profile
        if compare_sizes:
            compare_sizes()
            profile = self._profile_alone(calls, probe) if self.on_accelerator else None
        if self.settings.energy and self.on_accelerator:
            # Last, since it heats the GPU, and with garbage collection, since it makes thousands of calls.
            with self._holding("measure", self._calls_need()):
                if probe:
                    probe.wait()
                self.evidence.take_energy(compiled, watcher)
        self.evidence.take_profiles(calls.passes(profile.passes()) if profile else {})
        self._ratio("device_speedup", "eager_kernel_ms", "compiled_kernel_ms")
        self.evidence.take_busy_shares()

    def _is_slow(self, eager_ms: float) -> bool:
        """Return whether this host is slow, as another process of the run timed the model's eager form."""
        return bool(self.host.eager_ms) and eager_ms > SLOW_HOST * self.host.eager_ms

    def _samples(
        self, purpose: str, calls: _Calls, probe: IdleProbe | None, watcher: Watcher, is_profiled: bool
    ) -> _Taken:
        """Sample eager and compiled calls in one hold of the device, and profile them there unless they are sampled again."""
        device, settings, needs = self.cell.device, self.settings, self._calls_need()
        if needs is not None and self.yardstick is not None:
            needs += DEVICE_BYTES
        if needs is not None and is_profiled:
            needs += ROOM_BYTES
        # What is entered in the stack is left after the hold: a profile takes as long to end as its calls.
        with ExitStack() as after, self._holding(purpose, needs), garbage_collection_off():
            idle = {"before_ms": probe.wait()} if probe else {}
            if self.on_accelerator:  # no other work on the device may make a launch wait
                self.evidence.count_instructions(calls.compiled)
            self.details["settled_after"] = settle(calls.eager, calls.compiled, device)
            held, before = self.device.allocated(), watcher.read()
            limits = settings.rounds, settings.sample_limit_s, settings.precision
            eager, compiled = interleaved((calls.eager, calls.compiled), device, *limits, every=_EVERY)
            self._take_yardstick()
            surroundings, kept = watcher.read(), self.device.allocated()
            if probe:
                self.details["idle_probe"] = idle | {"after_ms": probe.ms(), "idle_ms": probe.idle_ms}
            taken = _Taken(eager, compiled, held, kept)
            if is_profiled and not (purpose == "measure" and self._is_slow(taken.eager_ms)):
                self._record(profile := after.enter_context(Profile(device)), calls, probe)
                taken = replace(taken, profile=profile)
        self._note_surroundings(before, surroundings)
        return taken

    def _profile_alone(self, calls: _Calls, probe: IdleProbe | None) -> Profile:
        """Profile a marked program, after it was called at its second size."""
        self.evidence.expect_calls()
        needs = self._calls_need()
        needs = None if needs is None else needs + ROOM_BYTES
        with Profile(self.cell.device) as profile, self._holding("measure", needs):
            if probe:
                probe.wait()
            with garbage_collection_off():
                self._record(profile, calls, probe)
        return profile

    def _record(self, profile: Profile, calls: _Calls, probe: IdleProbe | None) -> None:
        """Record passes of both forms while no other cell uses the device.

        Other cells go on compiling: a late launch by a busy host does not change a kernel's duration.
        """
        self._enter(Stage.PROFILE)
        for call in calls * _PASSES:
            profile.record(call, self.settings.profile_calls)
        if probe:
            self.details["idle_probe"] |= {"after_profile_ms": probe.ms(), "idle_ms": probe.idle_ms}
        self.evidence.measure_ceilings()

    def _open_yardstick(self) -> None:
        try:
            self.yardstick = self.device.yardstick()
        except NoYardstickError as error:
            self.details["no_yardstick"] = str(error)
        else:
            if self.yardstick is None:
                self.details["no_yardstick"] = f"there is no fixed work for {self.cell.device}"

    def _take_yardstick(self) -> None:
        """Time the fixed work right after the samples, while the machine is equally quiet and warm."""
        self.metrics["yardstick_host_ms"] = host_ms()
        if self.yardstick is None:
            return
        self.device.give_back_unused()  # torch's allocator may hold the memory that the work needs
        try:
            product_ms, copy_ms = self.yardstick.times_ms()
        except NoYardstickError as error:
            self.yardstick, self.details["no_yardstick"] = None, str(error)
            return
        self.metrics["yardstick_gpu_ms"], self.metrics["yardstick_copy_ms"] = product_ms, copy_ms

    def _compare_sizes(self, compiled: Callable[[], Any], effective: Effective, sizes: TwoSizes) -> None:
        """Measure a marked program at the second size, and compare it with static programs at both sizes."""
        self._enter(Stage.COMPILE)
        own, self.where = self.metrics.get("recompiles", 0.0), f"at {sizes.other}: "
        sizes.enter_other(compiled, self.settings.warmups, self.cell.device, self._holding)
        self.where = ""
        # All other counters keep their values at the cell's own size, as in a static cell.
        found, details = counters.read(self.log)
        if "recompiles" in found:
            self.metrics["recompiles"] = found["recompiles"]
            self.details |= {key: reasons for key, reasons in details.items() if key == "recompile_reasons"}
            sizes.own.measured["recompiles"] = int(own)
            sizes.other.measured["recompiles"] = int(found["recompiles"] - own)
        sizes.compare_with_static(compiled, effective, self.settings, self.cell.device, self._holding)
        if (ratio := sizes.over_static()) is not None:
            self.metrics["over_static"] = ratio
        self.details[SIZES] = sizes.details

    def _note_surroundings(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        self.details["surroundings"] = {"before": before, "after": after}
        if reasons := throttled([before, after]):
            self.details["throttled"] = reasons

    def _take_leak(self, compiled: Callable[[], Any], before: int | None, after: int | None) -> None:
        if before is None or after is None:
            return
        self.metrics["leak_bytes_per_call"] = 0.0
        if after > before:  # rare, and only then is the device requested
            with self._holding("device", self._calls_need()):
                self.metrics["leak_bytes_per_call"] = memory.leaked_bytes_per_call(compiled, self.device.allocated)

    def _compile_again(self) -> None:
        """Record the compile time of a new process that finds this process's caches, or the reason why there is none."""
        self._enter(Stage.COMPILE)
        torch._dynamo.reset()
        gc.collect()
        self.device.give_back_unused()
        try:
            # The new process runs the model on the device before and after it compiles, which must not be beside a cell that
            # measures. The time for which it is stopped does not count as compile time.
            needs = self._calls_need()
            with self._holding("device", None if needs is None else needs + _CONTEXT_BYTES):
                found = warm.compile_again(self.cell, self.settings)
        except warm.NoWarmCompileError as error:
            self.details["no_warm_compile"] = str(error)
            return
        self.metrics["compile_warm_s"] = found.seconds
        self.outcome.compile_windows["compile_warm_s"] = [found.window]
        self.details["warm_cache_hits"] = found.cache_hits

    def _take_samples(self, eager_ms: list[float], compiled_ms: list[float]) -> None:
        # A nanosecond is far below the clock's resolution.
        samples = {"eager_ms": [round(ms, 6) for ms in eager_ms], "compiled_ms": [round(ms, 6) for ms in compiled_ms]}
        self.measurement.samples = samples
        self.metrics["eager_ms"], self.metrics["compiled_ms"] = median(eager_ms), median(compiled_ms)
        self._ratio("speedup", "eager_ms", "compiled_ms")
        for detail, judge in (("precision", relative_half_width), ("drift", drift)):
            judged = {name: judge(values) for name, values in samples.items()}
            if known := {name: round(value, 5) for name, value in judged.items() if value is not None}:
                self.details[detail] = known

    def _count_again(self) -> None:
        before = self.metrics.get("recompiles")
        self._count()
        if before is not None and self.metrics.get("recompiles", before) > before:
            self.details["recompiled_while_timed"] = self.metrics["recompiles"] - before

    def _ratio(self, name: str, over: str, under: str) -> None:
        """Set a metric to the ratio of two others if both were measured and the denominator is not zero."""
        if self.metrics.get(under) and over in self.metrics:
            self.metrics[name] = self.metrics[over] / self.metrics[under]
