"""Which measurements of a run were disturbed on the device, by the run's own figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from collector.machine.idle import BUSY
from collector.vocabulary import Cell, Measurement

#: Eager device times of one model repeat within 2 % from process to process; another process on the GPU doubles them.
_OFF = 1.05

#: What the eager form of a model depends on.
Group = tuple[str, str, str, str, int]


@dataclass
class DisturbanceCheck:
    """Compares each measurement of a device with the others of the run.

    `idle_ms` is the shortest probe so far (`collector.machine.idle`), 0 before the first.
    """

    idle_ms: float = 0.0
    _fastest: dict[Group, tuple[float, Cell]] = field(default_factory=dict)
    _repeated: set[str] = field(default_factory=set)

    def judge(self, measurement: Measurement) -> list[Cell]:
        """The cells to measure again alone, now that this measurement is known; each at most once in a run.

        Marks the measurement: `details["disturbed"]` says what is wrong with it, `details["repeated"]` that it is a
        cell's second one.
        """
        cell = measurement.cell
        if cell.cell_id in self._repeated:
            measurement.details["repeated"] = "the first measurement was disturbed"
        reason = ""
        if self._probe_took_long(measurement):
            throttled = measurement.details.get("throttled")
            reason = f"the GPU was held back: {', '.join(throttled)}" if throttled else "the device was not idle"
        again = self._slower_of_two(measurement)
        if again is cell:
            reason = reason or "the eager device time is off from the same model's elsewhere in this run"
        if reason:
            measurement.details["disturbed"] = reason
            again = cell
        if again is None or again.cell_id in self._repeated:
            return []
        self._repeated.add(again.cell_id)
        return [again]

    def _slower_of_two(self, measurement: Measurement) -> Cell | None:
        """The cell of this measurement or of the model's fastest, if the eager device times of the two differ."""
        eager_ms, cell = measurement.metrics.get("eager_kernel_ms"), measurement.cell
        if eager_ms is None:
            return None
        group = (cell.suite, cell.model, cell.phase.value, cell.dtype, cell.batch_size)
        fastest_ms, fastest = self._fastest.get(group, (eager_ms, cell))
        self._fastest[group] = min((fastest_ms, fastest), (eager_ms, cell), key=lambda pair: pair[0])
        if eager_ms > _OFF * fastest_ms:
            return cell
        return fastest if fastest_ms > _OFF * eager_ms else None

    def _probe_took_long(self, measurement: Measurement) -> bool:
        probes = measurement.details.get("idle_probe", {}).values()
        self.idle_ms = min([*probes, *([self.idle_ms] if self.idle_ms else [])], default=0.0)
        return any(took > BUSY * self.idle_ms for took in probes)
