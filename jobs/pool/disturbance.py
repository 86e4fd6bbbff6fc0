"""Which measurements of a run were disturbed on the device, by the run's own figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from collector.machine.idle import BUSY, SLOW_HOST
from collector.vocabulary import Cell, Measurement

#: How far two processes' eager runs of one model may be apart, and what else was wrong. Device times repeat within 2 %;
#: another process on the GPU doubles them.
_OFF = {
    "eager_kernel_ms": (1.05, "the eager device time is off from the same model's elsewhere in this run"),
    "eager_ms": (SLOW_HOST, "the host was slow: the eager latency is off from the same model's elsewhere in this run"),
}

#: What the eager form of a model depends on.
Group = tuple[str, str, str, str, int]


@dataclass
class DisturbanceCheck:
    """Compares each measurement of a device with the others of the run.

    `idle_ms` is the shortest probe so far (`collector.machine.idle`), 0 before the first.
    """

    idle_ms: float = 0.0
    _fastest: dict[tuple[str, Group], tuple[float, Cell]] = field(default_factory=dict)
    _repeated: set[str] = field(default_factory=set)

    def eager_ms(self, cell: Cell) -> float:
        """Return the least eager latency of the cell's model so far; 0 where there was none, and on a CPU."""
        return self._fastest.get(("eager_ms", _group(cell)), (0.0, cell))[0]

    def judge(self, measurement: Measurement) -> list[Cell]:
        """The cells to measure again alone, now that this measurement is known; each at most once in a run.

        Marks the measurement: `details["disturbed"]` says what is wrong with it, `details["repeated"]` that it is a
        cell's second one.
        """
        cell = measurement.cell
        if cell.cell_id in self._repeated:
            measurement.details["repeated"] = "the first measurement was disturbed"
        reason, suspects = "", self._slower_of_two(measurement)
        if self._probe_took_long(measurement):
            throttled = measurement.details.get("throttled")
            reason = f"the GPU was held back: {', '.join(throttled)}" if throttled else "the device was not idle"
        if reason := reason or suspects.get(cell, ""):
            measurement.details["disturbed"] = reason
            suspects = {cell: reason}
        again = [suspect for suspect in suspects if suspect.cell_id not in self._repeated]
        self._repeated.update(suspect.cell_id for suspect in again)
        return again

    def _slower_of_two(self, measurement: Measurement) -> dict[Cell, str]:
        """This cell or the model's fastest so far, whichever is slower, if the eager runs of the two are too far apart."""
        cell, suspects = measurement.cell, dict[Cell, str]()
        if "eager_kernel_ms" not in measurement.metrics:
            return suspects  # a CPU, or no device activity
        group = _group(cell)
        for metric, (limit, reason) in _OFF.items():
            if (eager_ms := measurement.metrics.get(metric)) is None:
                continue
            fastest_ms, fastest = self._fastest.get((metric, group), (eager_ms, cell))
            self._fastest[metric, group] = min((fastest_ms, fastest), (eager_ms, cell), key=lambda pair: pair[0])
            if eager_ms > limit * fastest_ms:
                suspects.setdefault(cell, reason)
            elif fastest_ms > limit * eager_ms:
                suspects.setdefault(fastest, reason)
        return suspects

    def _probe_took_long(self, measurement: Measurement) -> bool:
        probes = measurement.details.get("idle_probe", {}).values()
        self.idle_ms = min([*probes, *([self.idle_ms] if self.idle_ms else [])], default=0.0)
        return any(took > BUSY * self.idle_ms for took in probes)


def _group(cell: Cell) -> Group:
    return cell.suite, cell.model, cell.phase.value, cell.dtype, cell.batch_size
