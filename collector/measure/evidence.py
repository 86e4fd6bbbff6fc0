"""Evidence that explains a cell: its kernels' source lines, the roof, the host's time, cudagraphs, memory and energy.

Evidence decides nothing. Each part is taken from a profile or from a few more calls; if that fails, the part is absent and the
reason is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from collector.code import Code
from collector.device import device_named
from collector.failures import reason_of
from collector.machine.host import Watcher
from collector.measure import memory, roof, timing
from collector.measure.energy import NoEnergyError, joules_of
from collector.measure.generated_code import kernel_lines, saved_operators
from collector.measure.host_time import host_time
from collector.measure.program import Subject
from collector.measure.timing import Pass, device_events
from collector.metrics import LAUNCH_BOUND_BELOW
from collector.process.outcome import Outcome
from collector.settings import Settings

#: The largest share of a call for which the host may wait for the device; with more, its own work cannot be separated.
_MOST_WAITING = 0.01
#: The most characters of the reason why there is no evidence.
_MESSAGE_LENGTH = 300


class Evidence:
    """The evidence of a cell, which is added to the metrics and details of its measurement. Callers hold the device if needed.

    `returned_ms` is the median time until a compiled call returned to the host, from the samples; `asks_for_graphs` says
    whether the program requests cudagraphs.
    """

    def __init__(self, outcome: Outcome, settings: Settings) -> None:
        self.outcome, self.settings = outcome, settings
        self.cell = outcome.measurement.cell
        self.metrics, self.details = outcome.measurement.metrics, outcome.measurement.details
        self.device = device_named(self.cell.device)
        self.returned_ms, self.asks_for_graphs = 0.0, False
        self.expected: list[roof.Expected] = []
        self.ceilings: roof.Ceilings | None = None

    @contextmanager
    def absent_where_failing(self, name: str) -> Iterator[None]:
        """Catch an error in this context and record it as the reason why this evidence is absent, under `no_NAME`."""
        try:
            yield
        except Exception as error:
            self.details[f"no_{name}"] = reason_of(error, _MESSAGE_LENGTH)

    def take_lines(self, code: Code) -> None:
        """Record the source lines from which kernels come."""
        with self.absent_where_failing("kernel_lines"):
            if lines := kernel_lines(code, self.outcome.texts):
                self.details["kernel_lines"] = lines

    def take_saved(self, subject: Subject, compiled: Callable[[], Any]) -> None:
        """Record the tensors that a training step saves for the backward pass. Raises the call's errors."""
        saved = memory.SavedTensors(subject.resident())
        saved.watch(compiled)
        self.metrics["saved_bytes"] = float(saved.bytes)
        self.details["saved_tensors"] = saved.rows(saved_operators(self.outcome.texts.values()))

    def take_peak_lines(self, subject: Subject, compiled: Callable[[], Any]) -> None:
        """Record the lines that allocated the memory alive at the peak of a call. Raises the call's errors."""
        subject.release_gradients()
        if (peak := self.device.peak(compiled)) is not None:
            self.details["peak_lines"] = peak.rows
        else:
            self.details["no_peak_lines"] = f"torch does not say which line allocated on {self.cell.device}"

    def count_instructions(self, compiled: Callable[[], Any]) -> None:
        """Count this thread's instructions until a call returns, without the wait for the device, which would count as work."""
        counts = []
        for _ in range(self.settings.profile_calls):
            if (end := timing.counter_from_here()) is None:
                return
            try:
                compiled()
            finally:
                counts.append(end())
            self.device.synchronize()
        if counts and all(counts):
            self.metrics["call_instructions"] = float(median(counts))

    def take_energy(self, compiled: Callable[[], Any], watcher: Watcher) -> None:
        """Measure the GPU's energy for a call if requested, or record why it cannot be read."""
        if not self.settings.energy or (read := watcher.energy_mj) is None:
            return
        call_s = self.metrics["compiled_ms"] / 1e3
        with self.absent_where_failing("joules"):
            try:
                self.metrics["joules_per_call"] = joules_of(compiled, self.device.synchronize, read, call_s)
            except NoEnergyError as error:
                self.details["no_joules"] = str(error)

    def expect_calls(self) -> None:
        """Read the least work of a call from the generated code, for the roof."""
        if not self.outcome.code:
            return
        with self.absent_where_failing("roof"):
            self.expected = roof.expected_calls(Code.from_json(self.outcome.code), self.outcome.texts)

    def measure_ceilings(self) -> None:
        """Measure the rates of a copy and of products on this device, in the dtypes of the generated code's calls."""
        if not self.expected:
            return
        self.device.give_back_unused()
        with self.absent_where_failing("roof"):
            self.ceilings = roof.measure_ceilings(
                self.cell.device, (one.work.dtype for one in self.expected if one.work)
            )

    def take_roof(self, made: Pass) -> None:
        """Compare the kernels of a profile with their ideal times, if the ceilings are known."""
        if self.ceilings is None:
            return
        found = roof.compare_with_ideal(device_events(made), made.calls, self.expected, self.ceilings)
        self.details["roof"] = self.ceilings.to_json() | found.to_json()
        if found.share is None:
            self.details["no_roof"] = f"the work is known of {found.known:.0%} of the device time only"
        else:
            self.metrics["roof_share"] = found.share

    def take_profiles(self, passes: Mapping[str, Sequence[Pass]]) -> None:
        """Record the device times of both forms, and of the compiled form host time, roof and use of cudagraphs.

        What the device did is taken from the quietest call, what the host did from all calls.
        """
        quietest = {name: timing.quietest_call(made) for name, made in passes.items()}
        for name, made in quietest.items():
            if (found := timing.device_time(made)) is not None:
                self.metrics[f"{name}_kernel_ms"] = found.busy_ms
                self.details[f"{name}_kernels"] = found.kernels
            else:
                self.details["no_device_time"] = f"torch's profiler saw no work on {self.cell.device}"
        compiled = quietest.get("compiled")
        if passes and not self.device.shows_waits:
            self.details["no_host_parts"] = f"it is not known what waits for {self.cell.device}"
        elif compiled:
            with self.absent_where_failing("host_parts"):
                self.take_host_time(passes["compiled"])
        if compiled:
            with self.absent_where_failing("roof"):
                self.take_roof(compiled)
        if self.asks_for_graphs and compiled:
            self.take_graph_use(timing.graph_use(compiled))

    def take_host_time(self, passes: Sequence[Pass]) -> None:
        """Record the host's time of a call, from the samples, and its parts, by their shares in the profile."""
        spent = host_time(span for made in passes for span in timing.host_spans(made))
        if spent is None:
            return
        if spent.waited_us > _MOST_WAITING * (spent.us + spent.waited_us):
            self.details["no_host_time"] = f"a call waits for the device, {spent.waited_us:.0f} us under the profiler"
            return
        self.metrics["host_overhead_us"] = round(1e3 * self.returned_ms, 3)
        self.details["host_parts_us"] = spent.parts_of(1e3 * self.returned_ms)

    def take_graph_use(self, found: timing.GraphUse | None) -> None:
        """Record the part of a call that ran in CUDA graphs, and the kernels outside of them."""
        if found is None:
            return
        self.metrics |= {"cudagraph_launches": found.launches, "cudagraph_share": found.share}
        if found.launches:
            self.metrics["kernels_outside_graphs"] = found.kernels_outside
            self.details["outside_kernels"] = found.outside

    def take_busy_shares(self) -> None:
        """Record the share of a call in which the device was busy. With a low share the device waits for launches."""
        shares = {
            name: round(self.metrics[f"{name}_kernel_ms"] / self.metrics[f"{name}_ms"], 3)
            for name in ("eager", "compiled")
            if f"{name}_kernel_ms" in self.metrics and self.metrics[f"{name}_ms"] > 0
        }
        if shares:
            self.details["busy_share"] = shares
            self.details["launch_bound"] = [name for name, share in shares.items() if share < LAUNCH_BOUND_BELOW]
