"""The costs of cells, learned from bundles: seconds of a worker, seconds of the device, and bytes of its memory.

This module imports no torch. A worker's seconds are the time for which a cell occupied a worker, less the time for which it was
stopped or waited for the device: more workers can share the rest. The device's seconds are the time for which the cell held the
device, which only one cell does at a time.

A quantity of a cell that was not measured is estimated from the most similar cells, with medians only: its model and phase
under another config, times the ratio of the two configs on the models that have both; else the median of the config in
that phase; of the phase; of the device. Cells of another device are never used: a CPU says nothing about a GPU.

A cell knows the memory that it needs once its eager form has run. Before that, `MemoryPlan` estimates it. A cell that needs
more than the estimate ends with `oom` at its own limit, before anything was compiled, and starts again with twice as much. The
other cells are not disturbed by that.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from collector.bundle import CENSUS, CONFIRM, BundleContents, RunHeader, check_bundle, read_bundle
from collector.device import is_accelerator
from collector.usage_errors import BundleError
from collector.vocabulary import (
    KEPT_BYTES,
    NOT_APPLICABLE,
    Cell,
    Config,
    Measurement,
    Phase,
    Stage,
    Status,
    is_unchecked,
)

#: Seconds of a worker for a cell of which nothing is known: about the time that one process for each cell took in this
#: project's first session, for templates without autotuning on an H200.
DEFAULT_WORKER_S = 25.0
#: A cell of more seconds of a worker is one of the longest: four cells of the default night are, and they end it on two GPUs.
_LONG_S = 400.0
#: The number of newest bundles that form a folder's history.
NEWEST = 20

#: Statuses of cells that ended before any work: they cost next to nothing and say nothing about other cells.
_NO_WORK = (NOT_APPLICABLE | {Status.CONFIG_ERROR}) - {Status.NOT_CHECKED, Status.ILL_CONDITIONED}

#: Device, suite, model, phase: the configs of a model are compared within these.
ModelKey = tuple[str, str, str, Phase]
#: Device, phase, config: a median over these is the estimate if the model itself was not measured.
Group = tuple[str, Phase | None, str | None]


class Source(StrEnum):
    """The sources of an estimate, the best first."""

    MEASURED = "measured"
    MODEL = "model"
    CONFIG = "config"
    PHASE = "phase"
    OVERALL = "overall"
    DEFAULT = "default"


class Estimates:
    """The estimates of one quantity, in its own unit. A cell measured several times counts once, by its median."""

    def __init__(self, values: Iterable[tuple[Cell, float]]) -> None:
        cells: dict[str, Cell] = {}
        measured: dict[str, list[float]] = defaultdict(list)
        for cell, value in values:
            cells[cell.cell_id] = cell
            measured[cell.cell_id].append(value)
        self._exact = {name: median(several) for name, several in measured.items()}
        # By model and phase the value of each config; several sizes or dtypes of one config count by their median.
        several: dict[ModelKey, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for name, cell in cells.items():
            several[_model_key(cell)][cell.config.config_id].append(self._exact[name])
        self._models = {
            key: {config: median(sizes) for config, sizes in configs.items()} for key, configs in several.items()
        }
        groups: dict[Group, list[float]] = defaultdict(list)
        for (device, _, _, phase), known in self._models.items():
            for config, value in known.items():
                for _, group in _groups(device, phase, config):
                    groups[group].append(value)
        self._medians = {group: median(members) for group, members in groups.items()}
        self._ratio = cache(self._find_ratio)

    def estimate(self, cell: Cell) -> tuple[float, Source] | None:
        """Return the value for a cell and its source; None if no cell of its device was measured."""
        if (value := self._exact.get(cell.cell_id)) is not None:
            return value, Source.MEASURED
        config = cell.config.config_id
        if (value := self._from_model(cell, config)) is not None:
            return value, Source.MODEL
        groups = _groups(cell.device, cell.phase, config)
        return next(((self._medians[group], source) for source, group in groups if group in self._medians), None)

    def _from_model(self, cell: Cell, config: str) -> float | None:
        known = self._models.get(_model_key(cell), {})
        if config in known:  # under another dtype or batch size: nearer than any other config
            return known[config]
        ratios = {other: self._ratio(cell.device, cell.phase, config, other) for other in known}
        scaled = [known[other] * ratio for other, ratio in ratios.items() if ratio is not None]
        return median(scaled) if scaled else None

    def _find_ratio(self, device: str, phase: Phase, config: str, other: str) -> float | None:
        """Return the ratio of `config` to `other` in this phase, by the models that have both; None if it is not known."""
        both = [
            (values[config], values[other])
            for key, values in self._models.items()
            if (key[0], key[3]) == (device, phase) and config in values and other in values
        ]
        if both and (under := median(value for _, value in both)) > 0:
            return median(value for value, _ in both) / under
        return None


def _model_key(cell: Cell) -> ModelKey:
    return cell.device, cell.suite, cell.model, cell.phase


def _groups(device: str, phase: Phase, config: str) -> list[tuple[Source, Group]]:
    return [
        (Source.CONFIG, (device, phase, config)),
        (Source.PHASE, (device, phase, None)),
        (Source.OVERALL, (device, None, None)),
    ]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one cell, in seconds and bytes; a figure that no bundle has is None.

    `worker_s` is without waiting. `device_s` is the time for which the cell holds the device; for `alone_s` of it, to measure
    and to tune, no other cell uses the device. `load_bytes`, `eager_bytes` and `check_bytes` are the most device memory in these
    stages, `kept_bytes` is the most that the cell keeps between its calls while it compiles. Bytes are known only if the model
    was measured in this phase. `source` is the source of `worker_s`.
    """

    worker_s: float
    device_s: float | None
    source: Source
    alone_s: float | None = None
    load_bytes: int | None = None
    eager_bytes: int | None = None
    check_bytes: int | None = None
    kept_bytes: int | None = None

    def completed_by(self, other: Cost) -> Cost:
        """Return this cost, completed by the figures that `other` knows better.

        Times of `other` are better if they are from the model itself and these are not, or if these are the default. Bytes are
        taken from `other` if they are None here.
        """
        better = self.source is Source.DEFAULT or (self.source not in _OF_THE_MODEL and other.source in _OF_THE_MODEL)
        times = other if better else self
        sizes = {name: getattr(other, name) if getattr(self, name) is None else getattr(self, name) for name in _BYTES}
        return replace(times, **sizes)


class CostModel:
    """A model that estimates the costs of cells from measured cells. The order of the measurements does not matter."""

    def __init__(
        self,
        samples: Mapping[str, list[tuple[Cell, float]]],
        no_work: Mapping[str, float],
        shipped: CostModel | None = None,
    ) -> None:
        self._estimates = {name: Estimates(samples.get(name, [])) for name in _QUANTITIES}
        self._no_work = no_work
        self._shipped = shipped
        self._known: dict[str, Cost] = {}

    @classmethod
    def learn(cls, measurements: Iterable[Measurement], shipped: CostModel | None = None) -> CostModel:
        """Return a model of these measurements; costs that they do not show are as in `shipped`, else the default."""
        samples: dict[str, list[tuple[Cell, float]]] = defaultdict(list)
        no_work: dict[str, list[float]] = defaultdict(list)
        for measurement in measurements:
            if not is_whole(measurement):
                continue  # the whole measurement takes longer
            if measurement.status in _NO_WORK:
                no_work[measurement.cell.cell_id].append(worker_s(measurement))
                continue
            for name, read in _QUANTITIES.items():
                if (value := read(measurement)) is not None:
                    samples[name].append((_key(name, measurement.cell), value))
        return cls(samples, {name: median(values) for name, values in no_work.items()}, shipped)

    @classmethod
    def of_history(cls, history: Iterable[BundleContents]) -> CostModel:
        """Return a model of all measurements in these bundles; costs that they do not show are as in `shipped_costs`."""
        return cls.learn((item for contents in history for item in contents.measurements), shipped_costs())

    def estimate(self, cell: Cell) -> Cost:
        """Return the expected cost of a cell: as measured, else from the nearest cells, else `DEFAULT_WORKER_S`."""
        if cell.cell_id not in self._known:
            self._known[cell.cell_id] = self._estimate(cell)
        return self._known[cell.cell_id]

    def _estimate(self, cell: Cell) -> Cost:
        estimates = {name: quantity.estimate(_key(name, cell)) for name, quantity in self._estimates.items()}
        seconds, source = estimates["worker_s"] or (DEFAULT_WORKER_S, Source.DEFAULT)
        if source is not Source.MEASURED and cell.cell_id in self._no_work:
            return Cost(self._no_work[cell.cell_id], 0.0, Source.MEASURED, 0.0, 0, 0, 0, 0)
        plain = {name: answer[0] if answer else None for name, answer in estimates.items()}
        # The memory that other models need says nothing about this one.
        sizes = {
            name: int(answer[0]) if (answer := estimates[name]) and answer[1] in _OF_THE_MODEL else None
            for name in _BYTES
        }
        found = Cost(seconds, plain["device_s"], source, plain["alone_s"], **sizes)
        return found if self._shipped is None else found.completed_by(self._shipped.estimate(cell))


#: Sources that are about the model itself.
_OF_THE_MODEL = (Source.MEASURED, Source.MODEL)
#: The quantities that do not depend on the config, and all bytes: a check takes more memory beside the pool of a CUDA graph.
_OF_ALL_CONFIGS = ("load_bytes", "eager_bytes", "kept_bytes")
_BYTES = (*_OF_ALL_CONFIGS, "check_bytes")


def _key(quantity: str, cell: Cell) -> Cell:
    """Return the cell that stands for a quantity of this cell: without its config if the quantity does not depend on it."""
    return replace(cell, config=Config()) if quantity in _OF_ALL_CONFIGS else cell


@cache
def shipped_costs() -> CostModel:
    """Return the costs of a default night's cells on one H100 when this version was made (`benchmarks first_costs`)."""
    rows = json.loads(Path(__file__).with_name("first_costs.json").read_text())
    return CostModel.learn(
        Measurement(
            Cell.from_json(row["cell"]),
            Status.PASS,
            "",
            row["worker_s"],
            details={name: row[name] for name in ("stage_bytes", KEPT_BYTES) if name in row},
        )
        for row in rows
    )


def is_long(cell: Cell) -> bool:
    """Return whether a cell took minutes when this version was made.

    The answer does not depend on earlier nights: it decides how candidates are compiled, which is part of the time of tuning and
    must be the same in each night.
    """
    known = shipped_costs().estimate(cell)
    return known.source is Source.MEASURED and known.worker_s > _LONG_S


def is_whole(measurement: Measurement) -> bool:
    """Return whether a process measured all of a cell: it did not end early, compiled the program, and checked the outputs."""
    details = measurement.details
    return details.keys().isdisjoint(("only", "compiled_before", "repeated")) and not is_unchecked(details)


def worker_s(measurement: Measurement) -> float:
    """Return the seconds for which a measured cell occupied a worker, without waiting."""
    return max(0.0, measurement.wall_s - (_number(measurement.details.get("waited_s")) or 0.0))


def held_s(measurement: Measurement, *purposes: str) -> float | None:
    """Return the seconds for which a measured cell held the device, for these purposes or for any; None if not recorded."""
    held = measurement.details.get("held_s")
    if not isinstance(held, Mapping):
        return None
    return sum(_number(value) or 0.0 for purpose, value in held.items() if not purposes or purpose in purposes)


#: Purposes for which one cell at a time holds the device (`collector.measure.cell.Host`), and `profile`, an older version's.
_ALONE = ("tune", "profile", "measure", "choose", "still")

#: The quantities that are learned of a cell, each by itself: an older bundle has its time, but not how long it held the device.
_QUANTITIES: Mapping[str, Callable[[Measurement], float | None]] = {
    "worker_s": worker_s,
    "device_s": held_s,
    "alone_s": lambda measurement: held_s(measurement, *_ALONE),
    "load_bytes": lambda measurement: _stage_bytes(measurement, Stage.LOAD_MODEL),
    "eager_bytes": lambda measurement: (
        _stage_bytes(measurement, Stage.EAGER) or measurement.metrics.get("eager_peak_bytes")
    ),
    "check_bytes": lambda measurement: _stage_bytes(measurement, Stage.CORRECTNESS),
    "kept_bytes": lambda measurement: kept_bytes(measurement),
}


def kept_bytes(measurement: Measurement) -> float | None:
    """Return the most device memory that a cell kept between its calls while it compiled; None if it is not recorded.

    A check may keep more for some seconds, which counts as part of its peak: when cells were planned with that memory for all of
    their life, most of which is compiling, they kept each other out. Older bundles have the most memory kept in any stage. For
    these the memory that was reserved during the first call, and at the end, is an upper limit.
    """
    if (kept := _number(measurement.details.get(KEPT_BYTES))) is None:
        return None
    reserved = (_stage_bytes(measurement, stage) for stage in (Stage.COMPILE, Stage.DONE))
    return min([kept, *(size for size in reserved if size is not None)])


def _stage_bytes(measurement: Measurement, stage: Stage) -> float | None:
    """Return the most device memory that a cell reserved in a stage; None if its bundle has no such record."""
    recorded = measurement.details.get("stage_bytes")
    return _number(recorded.get(stage.value)) if isinstance(recorded, Mapping) else None


def learn_from(path: Path) -> CostModel:
    """Return the cost model of the bundles of `read_history`."""
    return CostModel.of_history(read_history(path))


def read_history(path: Path) -> list[BundleContents]:
    """Return a bundle, or the `NEWEST` readable bundles below a folder, the newest first; empty if there is no such path.

    Raises:
        BundleError: `path` is a file that is no bundle.
    """
    return [read_bundle(bundle) for bundle in newest_bundles(path)]


def newest_bundles(path: Path) -> list[Path]:
    """Return the paths of the bundles of `read_history`, the newest first."""
    if not path.is_dir():
        return [path] if path.exists() else []
    # Imported files were measured by another program, without costs; a census measures nothing; a run that confirms a night
    # measures only few of its cells again.
    measured = [one for one in bundles_below(path) if one[0].trigger not in ("import", CENSUS, CONFIRM)]
    dated = [(header.started_at, bundle) for header, bundle in measured]
    return [bundle for _, bundle in sorted(dated, reverse=True)[:NEWEST]]


def bundles_below(folder: Path) -> Iterator[tuple[RunHeader, Path]]:
    """Yield the header and the path of each readable bundle below a folder."""
    for path in folder.rglob("*.jsonl*"):
        if path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
            with suppress(BundleError):  # unreadable bundles are left out of the history
                yield check_bundle(path), path


def _number(value: Any) -> float | None:
    """Return a value of a bundle's free-form details as a float if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


#: Bytes of a device that a process takes before it allocates anything: CUDA's context, the kernels of torch and of libraries. On
#: an H100 with torch 2.11 nvidia-smi shows 0.5 to 0.7 GB.
CONTEXT_BYTES = 700e6
#: The part of the device's memory that an unknown model may take, to load and to run in eager mode, and the bytes that it may
#: take at least: on a GPU with 24 GB free, a 32nd of these would make most models of a billion weights start four times.
_UNKNOWN_PART = {Stage.LOAD_MODEL: 1 / 32, Stage.EAGER: 1 / 16}
_LEAST_BYTES = {Stage.LOAD_MODEL: 2e9, Stage.EAGER: 4e9}
#: How much more than another process of the same cell a process may need: the allocator's fragments, a library's workspace. In
#: four nights on H100s all 177 cells took the same bytes to load and in eager mode. In two of them, of one version, 159 of 170
#: cells took the same in their checks, and 169 within 2 %.
_MARGIN, _MORE_BYTES = 1.02, 256e6
#: The most memory that a cell asks for while it compiles and is timed, as a multiple of the memory that its eager form takes
#: (`collector.measure.cell`).
_CALLS = 1.5
#: Stages whose needs are learned as they were recorded.
_LEARNED = frozenset({Stage.LOAD_MODEL.value, Stage.EAGER.value, Stage.CORRECTNESS.value})

#: Bytes of device memory that a cell needs in a stage, for compiling those that it keeps between its calls; None if not known.
MemoryOf = Callable[[Cell, Stage], float | None]

#: Of a model: suite, name, phase, dtype, batch size, stage; and the config if the memory of the stage depends on it.
_Key = tuple[str, str, str, str, int, Stage, str]


class MemoryPlan:
    """A plan of the bytes that cells need in the stages in which they cannot know their needs.

    `total` is the memory that all cells may have together, `memory_of` returns the bytes that earlier runs recorded.
    """

    def __init__(self, total: float, memory_of: MemoryOf) -> None:
        #: The bytes that one cell may have beside its context.
        self._most, self._memory_of = max(0.0, total - CONTEXT_BYTES), memory_of
        #: The bytes that cells of this run have taken, by model and stage: earlier runs may have taken less.
        self._shown: dict[_Key, float] = {}

    def needs(self, cell: Cell, stage: Stage) -> float:
        """Return the bytes that a cell needs to load its model, or to run it in eager mode; 0 on a CPU."""
        if not is_accelerator(cell.device):
            return 0.0
        stage = stage if stage is Stage.EAGER else Stage.LOAD_MODEL
        known = self._known(cell, stage)
        return self._unknown(stage) if known is None else known

    def most(self, cell: Cell, is_checked: bool = True) -> float:
        """Return the bytes that a cell needs at its peak, or without its check, as far as they are known before it runs."""
        if not is_accelerator(cell.device):
            return 0.0
        calls, check = _CALLS * self.needs(cell, Stage.EAGER), self._known(cell, Stage.CORRECTNESS)
        most = max(self.needs(cell, Stage.LOAD_MODEL), calls, check or 0.0 if is_checked else 0.0)
        return CONTEXT_BYTES + min(self._most, most)

    def _known(self, cell: Cell, stage: Stage) -> float | None:
        """Return the bytes that a cell needs in a stage; None if its model was not measured in that stage."""
        told = [self._memory_of(cell, stage), self._shown.get(_memory_key(cell, stage))]
        if told == [None, None]:
            told = [self._shown.get(_of_any_config(cell, stage))]
        known = [size for size in told if size is not None]
        return min(_MARGIN * max(known) + _MORE_BYTES, self._most) if known else None

    def checks(self, cell: Cell) -> float | None:
        """Return the bytes that a cell's check takes; None if they are not known, or not less than all that a cell may have."""
        known = self._known(cell, Stage.CORRECTNESS)
        return known if known is not None and known < self._most else None

    def keeps(self, cell: Cell) -> float | None:
        """Return the most bytes that a cell keeps between its calls, its context included; None if they are not known."""
        kept = self._known(cell, Stage.COMPILE) if is_accelerator(cell.device) else None
        return None if kept is None else CONTEXT_BYTES + kept

    def note(self, cell: Cell, kept: float, asked: float) -> None:
        """Record the bytes that a cell kept between its calls, and the most that it asked for, for other cells of its model."""
        self._show(cell, Stage.COMPILE, kept)
        self._show(cell, Stage.CORRECTNESS, (asked - _MORE_BYTES) / _MARGIN)

    def learn(self, measurement: Measurement) -> None:
        """Record the bytes that a measured cell took, for other cells of its model."""
        if measurement.status is Status.OOM:
            return
        recorded, cell = measurement.details.get("stage_bytes", {}), measurement.cell
        for stage in _LEARNED & recorded.keys():
            self._show(cell, Stage(stage), float(recorded[stage]))
        if kept := kept_bytes(measurement):
            self._show(cell, Stage.COMPILE, kept)

    def _show(self, cell: Cell, stage: Stage, size: float) -> None:
        for key in {_memory_key(cell, stage), _of_any_config(cell, stage)}:
            self._shown[key] = max(size, self._shown.get(key, 0.0))

    def grow(self, measurement: Measurement, promised: float) -> bool:
        """Promise twice as much to a cell that ran out of its promised memory before it knew its needs; return whether it did."""
        failure = measurement.failure
        if measurement.status is not Status.OOM or failure is None or promised >= self._most:
            return False
        if failure.stage not in (Stage.LOAD_MODEL, Stage.EAGER):
            return False
        more = max(2 * promised, self._unknown(failure.stage))
        self._shown[_memory_key(measurement.cell, failure.stage)] = (more - _MORE_BYTES) / _MARGIN
        return True

    def _unknown(self, stage: Stage) -> float:
        return min(max(self._most * _UNKNOWN_PART[stage], _LEAST_BYTES[stage]), self._most)


def _memory_key(cell: Cell, stage: Stage) -> _Key:
    config = cell.config.config_id if stage is Stage.CORRECTNESS else ""
    return (*_of_any_config(cell, stage)[:-1], config)


def _of_any_config(cell: Cell, stage: Stage) -> _Key:
    return cell.suite, cell.model, cell.phase.value, cell.dtype, cell.batch_size, stage, ""
