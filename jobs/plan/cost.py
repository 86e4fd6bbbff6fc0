"""What a cell costs, learned from bundles: seconds of a worker, seconds of the device, bytes of its memory.

Imports no torch. A worker's seconds are those for which a cell occupied a worker, less the time for which it was stopped
or waited for the device: more workers can share the rest. The device's seconds are those for which the cell held it, which
only one cell does at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from collector.bundle import BundleContents, BundleError, check_bundle, read_bundle
from collector.vocabulary import NOT_APPLICABLE, Cell, Measurement, Status
from jobs.plan.fallback_estimates import FallbackEstimates, Source

#: Seconds of a worker for a cell of which nothing is known: about what one process a cell took in this project's first
#: session, templates without autotuning on an H200.
DEFAULT_WORKER_S = 25.0
#: Peak of a cell over the peak of its model, where a bundle does not say what was reserved: the float64 reference of the
#: correctness check needs four times a bfloat16 model's weights, but only for a moment and without the compiled program.
FLOAT64_FACTOR = 2.5
#: Bundles that a folder's history goes back.
NEWEST = 20

#: Such a cell ended before any work: it costs next to nothing itself and says nothing about another.
_NO_WORK = NOT_APPLICABLE | {Status.CONFIG_ERROR}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one cell takes, in seconds and bytes; None where no bundle has it.

    `worker_s` is without waiting. `device_s` is the time for which it holds the device: `measure_s` of it with every other
    cell stopped, `tune_s` of it to time candidates. `memory_bytes` is the most reserved on the device, known only where the
    model was measured under some config or in its other phase. `source` is where `worker_s` comes from.
    """

    worker_s: float
    device_s: float | None
    memory_bytes: int | None
    source: Source
    measure_s: float | None = None
    tune_s: float | None = None


class CostModel:
    """Estimates cells from measured ones. The same measurements in any order give the same estimates."""

    def __init__(self, samples: Mapping[str, list[tuple[Cell, float]]], no_work: Mapping[str, float]) -> None:
        self._estimates = {name: FallbackEstimates(samples.get(name, [])) for name in _QUANTITIES}
        self._no_work = no_work
        self._known: dict[str, Cost] = {}

    @classmethod
    def learn(cls, measurements: Iterable[Measurement]) -> CostModel:
        """A model of these measurements; without any, every estimate is the default."""
        samples: dict[str, list[tuple[Cell, float]]] = defaultdict(list)
        no_work: dict[str, list[float]] = defaultdict(list)
        for measurement in measurements:
            if measurement.status in _NO_WORK:
                no_work[measurement.cell.cell_id].append(worker_s(measurement))
                continue
            for name, read in _QUANTITIES.items():
                if (value := read(measurement)) is not None:
                    samples[name].append((measurement.cell, value))
        return cls(samples, {name: median(values) for name, values in no_work.items()})

    def estimate(self, cell: Cell) -> Cost:
        """What the cell will take: as measured, else from the nearest cells, else `DEFAULT_WORKER_S`."""
        if cell.cell_id not in self._known:
            self._known[cell.cell_id] = self._estimate(cell)
        return self._known[cell.cell_id]

    def _estimate(self, cell: Cell) -> Cost:
        estimates = {name: quantity.estimate(cell) for name, quantity in self._estimates.items()}
        seconds, source = estimates["worker_s"] or (DEFAULT_WORKER_S, Source.DEFAULT)
        if source is not Source.MEASURED and cell.cell_id in self._no_work:
            return Cost(self._no_work[cell.cell_id], 0.0, 0, Source.MEASURED, 0.0, 0.0)
        plain = {name: answer[0] if answer else None for name, answer in estimates.items()}
        return Cost(seconds, plain["device_s"], self._own_bytes(cell), source, plain["measure_s"], plain["tune_s"])

    def _own_bytes(self, cell: Cell) -> int | None:
        """A model's memory under some config, else in its other phase; what other models need says nothing about it."""
        memory = self._estimates["memory_bytes"]
        estimate = memory.estimate(cell)
        if estimate and estimate[1] in (Source.MEASURED, Source.MODEL):
            return int(estimate[0])
        other = memory.of_other_phases(cell)
        return None if other is None else int(other)


def worker_s(measurement: Measurement) -> float:
    """Seconds for which a measured cell occupied a worker, without waiting."""
    details = measurement.details
    # Bundles before `waited_s` say only what a cell stood while it compiled, which is most of it.
    waited = _number(details.get("waited_s", details.get("stood_s"))) or 0.0
    return max(0.0, measurement.wall_s - waited)


def memory_bytes(measurement: Measurement) -> float | None:
    """Most bytes a measured cell had reserved on its device; estimated from the model's peaks in older bundles."""
    if (reserved := _number(measurement.details.get("device_bytes"))) is not None:
        return reserved
    peaks = [
        measurement.metrics[name] for name in ("eager_peak_bytes", "compiled_peak_bytes") if name in measurement.metrics
    ]
    return max(peaks) * FLOAT64_FACTOR if peaks else None


def held_s(measurement: Measurement, *purposes: str) -> float | None:
    """Seconds for which a measured cell held the device, for these purposes or for any; None where it is not recorded."""
    held = measurement.details.get("held_s")
    if not isinstance(held, Mapping):
        return None
    return sum(_number(value) or 0.0 for purpose, value in held.items() if not purposes or purpose in purposes)


#: What is learned of a cell, each by itself: an older bundle knows its time but not how long it held the device.
_QUANTITIES: Mapping[str, Callable[[Measurement], float | None]] = {
    "worker_s": worker_s,
    "device_s": held_s,
    "measure_s": lambda measurement: held_s(measurement, "measure"),
    "tune_s": lambda measurement: held_s(measurement, "tune"),
    "memory_bytes": memory_bytes,
}


def learn_from(path: Path) -> CostModel:
    """The model of a bundle, or of the newest `NEWEST` bundles below a folder; of nothing where there is no such path.

    Raises:
        BundleError: `path` is a file and no bundle.
    """
    return CostModel.learn(item for contents in read_history(path) for item in contents.measurements)


def read_history(path: Path) -> list[BundleContents]:
    """The bundles that `learn_from` learns from, the newest first; what cannot be read below a folder is skipped.

    With `--tune-together` cells share the device and each records that it held it for as long as all together: the time for
    which it was held is not learned from such runs.

    Raises:
        BundleError: `path` is a file and no bundle.
    """
    if not path.is_dir():
        return [_holding_alone(read_bundle(path))] if path.exists() else []
    newest = sorted(_dated(path), reverse=True)[:NEWEST]
    return [_holding_alone(read_bundle(bundle)) for _, bundle in newest]


def _holding_alone(contents: BundleContents) -> BundleContents:
    execution = (contents.header.asked or {}).get("pace")
    if isinstance(execution, Mapping) and execution.get("tune_together"):
        for item in contents.measurements:
            item.details.pop("held_s", None)
    return contents


def _dated(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*.jsonl*"):
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            try:
                header = check_bundle(path)
                if header.trigger != "import":  # measured by another program, without its costs
                    yield header.started_at, path
            except BundleError:
                continue  # a history that is in part unreadable is still a history


def _number(value: Any) -> float | None:
    """A finite number of a bundle's free-form details, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
