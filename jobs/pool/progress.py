"""What a run tells while it goes on: a line for each cell, with cells done, failing, and the time left."""

from __future__ import annotations

import time
from collections import Counter

from rich.console import Console

from collector.vocabulary import NOT_APPLICABLE, Cell, Measurement, Status, sizes_of, status_words
from jobs.output.tables import say
from jobs.output.terminal import one_line, several
from jobs.plan.carrying import SAME_CODE_AS


class RunProgress:
    """Counts the cells of a run and prints a line for each."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total = console, total
        self.counts: Counter[Status] = Counter()
        self._status: dict[str, Status] = {}
        #: By config and reason the number of cells that are unavailable here.
        self._unavailable: Counter[tuple[str, str]] = Counter()
        #: By `cell_id` the night from which a cell was carried over.
        self.carried: dict[str, str] = {}
        self._began = time.monotonic()

    @property
    def done(self) -> int:
        """Cells measured so far."""
        return self.counts.total()

    @property
    def measured(self) -> set[str]:
        """The cells measured so far, by their `cell_id`."""
        return set(self._status)

    @property
    def failing(self) -> int:
        """Cells that were measured and did not pass; what is unavailable here is not counted."""
        return self.done - sum(self.counts[status] for status in (Status.PASS, *NOT_APPLICABLE))

    def left_s(self) -> float | None:
        """Seconds to go at the pace so far; None before the first cell."""
        return (time.monotonic() - self._began) / self.done * (self.total - self.done) if self.done else None

    def carried_words(self) -> str:
        """How many cells were measured, and how many were carried over from which nights."""
        nights = Counter(self.carried.values())
        measured, others = self.done - nights.total(), len(nights) - 1
        more = f" and {several(others, 'other night')}" if others > 0 else ""
        of = f" as same code as {max(nights)}{more}" if nights else ""
        return f"{several(measured, 'cell')} measured, {nights.total()} carried over{of}"

    def took(self, measurement: Measurement) -> None:
        """Counts one cell and shows it. A cell that is measured again counts once, as it came out last."""
        if measurement.details.get("repeated") and (before := self._status.get(measurement.cell.cell_id)):
            self.counts[before] -= 1
        self._status[measurement.cell.cell_id] = measurement.status
        self.counts[measurement.status] += 1
        if night := measurement.details.get(SAME_CODE_AS):
            self.carried[measurement.cell.cell_id] = night
        if measurement.status is Status.UNAVAILABLE and measurement.failure:
            self._count_unavailable(measurement.cell, measurement.failure.message)
            return
        left = self.left_s()
        facts = f"{self.failing} failing, {format_s(left)} left" if left is not None else ""
        what = f"{measurement.cell_name}  {describe(measurement)}  ({measurement.wall_s:.0f} s; {facts})"
        say(self.console, f"[{self.done}/{self.total}] {what}")

    def _count_unavailable(self, cell: Cell, reason: str) -> None:
        """Say once for each config why its cells cannot be measured here; `unavailable_words` says how many they were."""
        self._unavailable[cell.config.name, reason] += 1
        if self._unavailable[cell.config.name, reason] == 1:
            say(self.console, f"{cell.config.name} is unavailable here: {one_line(reason)} (told once)")

    def unavailable_words(self) -> list[str]:
        """Return a line for each config that cannot be measured here, with the number of its cells."""
        return [
            f"{several(count, 'cell')} of {config} not measured: {one_line(reason)}"
            for (config, reason), count in self._unavailable.items()
        ]


def describe(measurement: Measurement) -> str:
    """One cell's outcome in a few words: the figures of a pass, the reason of anything else."""
    if measurement.status is not Status.PASS:
        reason = (measurement.failure.message.splitlines() or [""])[0][:140] if measurement.failure else ""
        return f"{measurement.status}: {reason}" if reason else str(measurement.status)
    metrics = measurement.metrics
    parts = [f"{metrics['speedup']:.2f}x"] if "speedup" in metrics else []
    if "device_speedup" in metrics:
        parts.append(f"device {metrics['device_speedup']:.2f}x")
    if "compiled_ms" in metrics:
        parts.append(f"{metrics['compiled_ms']:.3g} ms")
    if "compile_cold_s" in metrics:
        parts.append(f"compile {metrics['compile_cold_s']:.1f} s")
    parts += sizes_words(measurement)
    if night := measurement.details.get(SAME_CODE_AS):
        parts.append(f"same code as {night}")
    parts += [
        f"{word} ({measurement.details[word]})" for word in ("disturbed", "repeated") if word in measurement.details
    ]
    return f"{status_words(measurement.status, measurement.details)}  {'  '.join(parts)}"


def sizes_words(measurement: Measurement) -> list[str]:
    """Of a dynamic config: what each size costs beside a static program of that size, and what was compiled again."""
    if not (sizes := sizes_of(measurement.details)):
        return []
    words = [f"{size}: {size.over_static:.2f}x static" for size in sizes if size.over_static]
    return [*words, several(round(measurement.metrics.get("recompiles", 0.0)), "recompile")]


def format_s(seconds: float) -> str:
    """Seconds as people say them: `42 s`, `3 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
