"""From measured bundles to matrices that were not measured: the mean cell by kind of config and phase, and what many take.

Assumes that the mean model of the larger zoo is like the mean measured one, that configs of one kind cost alike, and
that training costs every kind the same multiple of inference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from collector.bundle import BundleContents, BundleError
from collector.vocabulary import Cell, Measurement, Phase
from jobs.backtest import Night, backtests, measured
from jobs.cost import Cost, CostModel
from jobs.ladder import Source

#: Kinds of config by what their program does: those that cost about the same are one.
UNTUNED, CPP_WRAPPER, TUNED = KINDS = ("no GEMM autotuning", "cpp_wrapper", "GEMM autotuning")


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds of some cells: of workers, of the device (None where no bundle says), of that with all others still."""

    worker_s: float
    device_s: float | None
    measure_s: float

    def hours(self, workers: int, factor: float = 1.0) -> float:
        """Hours on one GPU, times `factor`: what the workers share out, or the device if that is longer."""
        shared = self.measure_s + (self.worker_s - self.measure_s) / workers
        return factor * max(shared, self.device_s or 0.0) / 3600

    def times(self, worker: float, device: float | None = None, measure: float | None = None) -> Load:
        """Each part multiplied; one factor alone counts for all three."""
        by_device = worker if device is None else device
        by_measure = worker if measure is None else measure
        held = None if self.device_s is None else self.device_s * by_device
        return Load(self.worker_s * worker, held, self.measure_s * by_measure)

    def plus(self, other: Load) -> Load:
        """Both together; the device's seconds are known where both are."""
        held = None if self.device_s is None or other.device_s is None else self.device_s + other.device_s
        return Load(self.worker_s + other.worker_s, held, self.measure_s + other.measure_s)


@dataclass(frozen=True, slots=True)
class Panel:
    """What was measured: inference under each kind, what training multiplies it by, and how nights compare to predictions.

    `cells` and `measured` say per kind how many cells the mean is over, and how many of them some bundle holds; the rest are
    derived by the cost model. `training` has the ratios of `worker_s`, `device_s` and `measure_s` over `pairs` cells measured
    in both phases. `pair_s` are the seconds of one eager and one compiled sample.
    """

    inference: Mapping[str, Load]
    cells: Mapping[str, int]
    measured: Mapping[str, int]
    models: int
    training: tuple[float, float, float]
    pairs: int
    pair_s: float
    nights: list[Night]

    def mean(self, kind: str, phase: Phase) -> Load:
        """The mean cell of a kind in a phase."""
        found = self.inference[kind]
        return found if phase is Phase.INFERENCE else found.times(*self.training)

    def load(self, mix: Sequence[int], models: int) -> Load:
        """All cells of `models` models under `mix` configs, a number for each of `KINDS`, in both phases."""
        total = Load(0.0, 0.0, 0.0)
        for kind, configs in zip(KINDS, mix, strict=True):
            for phase in Phase:
                total = total.plus(self.mean(kind, phase).times(models * configs))
        return total


def survey(history: Sequence[BundleContents]) -> Panel:
    """The panel of some bundles.

    Raises:
        BundleError: they hold no cell of some kind in inference, or no model measured in both phases under one config.
    """
    measurements = [item for contents in history for item in measured(contents)]
    model = CostModel.learn(measurements)
    kinds = _kinds(history)
    grid = _grid(measurements, kinds)
    if lacking := [kind for kind in KINDS if not grid.get(kind)]:
        raise BundleError(f"no inference under {', '.join(lacking)} was measured: name a bundle that has it too")
    costs = {kind: [model.estimate(cell) for cell in grid[kind]] for kind in KINDS}
    ratios, pairs = _training_ratios(measurements, model)
    return Panel(
        {kind: _mean(found) for kind, found in costs.items()},
        {kind: len(found) for kind, found in costs.items()},
        {kind: sum(cost.source is Source.MEASURED for cost in found) for kind, found in costs.items()},
        len({(cell.suite, cell.model) for cells in grid.values() for cell in cells}),
        ratios,
        pairs,
        _pair_s(measurements),
        backtests(history),
    )


def kind_of(program: Mapping[str, Any]) -> str:
    """One of `KINDS`, by a program's effective Inductor options; autotuning without GEMM templates counts as none."""
    tunes = program.get("max_autotune") or program.get("max_autotune_gemm")
    if tunes and program.get("max_autotune_gemm_backends") != "ATEN":
        return TUNED
    return CPP_WRAPPER if program.get("cpp_wrapper") else UNTUNED


def _kinds(history: Sequence[BundleContents]) -> dict[str, str]:
    """The kind of each config that ever got as far as its timing: one that lacks a component costs nothing."""
    return {
        item.cell.config.config_id: kind_of(contents.programs[item.program_id])
        for contents in history
        for item in measured(contents)
        if item.program_id in contents.programs and "compiled_ms" in item.metrics
    }


def _grid(measurements: Sequence[Measurement], kinds: Mapping[str, str]) -> dict[str, list[Cell]]:
    """Per kind, every model measured in inference under every config of that kind, whether that cell was measured or not.

    All models under all configs, because a night that ended early has measured its dearest configs on a few models only.
    """
    cells = [item.cell for item in measurements if item.cell.phase is Phase.INFERENCE]
    configs = {cell.config.config_id: cell.config for cell in cells if cell.config.config_id in kinds}
    examples = {(cell.suite, cell.model): cell for cell in cells}
    own = {(cell.suite, cell.model, cell.config.config_id): cell for cell in cells}
    found: dict[str, list[Cell]] = defaultdict(list)
    for (suite, name), example in sorted(examples.items()):
        for config_id, config in sorted(configs.items()):
            cell = own.get((suite, name, config_id)) or replace(example, config=config)
            found[kinds[config_id]].append(cell)
    return found


def _mean(costs: Sequence[Cost]) -> Load:
    held = [cost.device_s for cost in costs if cost.device_s is not None]
    return Load(
        fmean(cost.worker_s for cost in costs),
        fmean(held) if held else None,
        fmean(cost.measure_s or 0.0 for cost in costs),
    )


def _training_ratios(measurements: Sequence[Measurement], model: CostModel) -> tuple[tuple[float, float, float], int]:
    cells: dict[tuple[str, str, str], dict[Phase, Cost]] = defaultdict(dict)
    for item in measurements:
        if "compiled_ms" in item.metrics:  # a cell that failed early would make its phase look cheap
            key = (item.cell.suite, item.cell.model, item.cell.config.config_id)
            cells[key][item.cell.phase] = model.estimate(item.cell)
    both = [found for found in cells.values() if len(found) == len(Phase)]
    if not both:
        raise BundleError("no model was measured in both phases under one config: name a bundle that has both")
    worker = _ratio([_mean([pair[phase] for pair in both]).worker_s for phase in Phase])
    known = [pair for pair in both if all(pair[phase].device_s for phase in Phase)]
    means = [_mean([pair[phase] for pair in known]) for phase in Phase] if known else []
    device = _ratio([mean.device_s or 0.0 for mean in means]) if means else worker
    measure = _ratio([mean.measure_s for mean in means]) if means else worker
    return (worker, device, measure), len(both)


def _ratio(inference_and_training: Sequence[float]) -> float:
    inference, training = inference_and_training
    return training / inference if inference else 1.0


def _pair_s(measurements: Sequence[Measurement]) -> float:
    """Seconds of one eager and one compiled sample at the mean inference cell."""
    timed = [
        item.metrics for item in measurements if item.cell.phase is Phase.INFERENCE and "compiled_ms" in item.metrics
    ]
    return fmean(found["eager_ms"] + found["compiled_ms"] for found in timed) / 1000 if timed else 0.0
