"""Estimates a quantity of a cell from the most similar measured cells, with medians only.

The sources, best first: the cell itself; its model and phase under another config, times the ratio of the two configs on
the models that have both; the median of the config in that phase; of the phase; of the device. Cells of another device are
never used: a CPU says nothing about a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from statistics import median

from collector.vocabulary import Cell, Phase

#: Device, suite, model, phase: what the configs of a model are compared within.
ModelKey = tuple[str, str, str, Phase]
#: Device, phase, config: what a median is taken of where the model itself says nothing.
Group = tuple[str, Phase | None, str | None]


class Source(StrEnum):
    """Where an estimate comes from, the best first."""

    MEASURED = "measured"
    MODEL = "model"
    CONFIG = "config"
    PHASE = "phase"
    OVERALL = "overall"
    DEFAULT = "default"


_GROUPS = (Source.CONFIG, Source.PHASE, Source.OVERALL)


class FallbackEstimates:
    """Estimates one quantity in its own unit. A cell measured several times counts once, by its median."""

    def __init__(self, values: Iterable[tuple[Cell, float]]) -> None:
        cells: dict[str, Cell] = {}
        measured: dict[str, list[float]] = defaultdict(list)
        for cell, value in values:
            cells[cell.cell_id] = cell
            measured[cell.cell_id].append(value)
        self._exact = {name: median(several) for name, several in measured.items()}
        self._models = _by_model(cells, self._exact)
        self._medians = _group_medians(self._models)
        self._ratio = cache(self._find_ratio)

    def estimate(self, cell: Cell) -> tuple[float, Source] | None:
        """The value for a cell and its source; None where nothing of its device was measured."""
        if (value := self._exact.get(cell.cell_id)) is not None:
            return value, Source.MEASURED
        config = cell.config.config_id
        if (value := self._from_model(cell, config)) is not None:
            return value, Source.MODEL
        for source, key in zip(_GROUPS, _groups(cell.device, cell.phase, config), strict=True):
            if key in self._medians:
                return self._medians[key], source
        return None

    def of_other_phases(self, cell: Cell) -> float | None:
        """The model's value in another phase, times the ratio of the phases on the models that have both; else None.

        Useful for memory, where other models say nothing. For times, `estimate` uses other models in the same phase.
        """
        here = {key[:3]: median(values.values()) for key, values in self._models.items() if key[3] == cell.phase}
        ratios: dict[Phase, list[float]] = defaultdict(list)
        own: dict[Phase, float] = {}
        for (device, suite, model, phase), values in self._models.items():
            if phase == cell.phase or device != cell.device or (there := median(values.values())) <= 0:
                continue
            if (value := here.get((device, suite, model))) is not None:
                ratios[phase].append(value / there)
            if (suite, model) == (cell.suite, cell.model):
                own[phase] = there
        scaled = [value * median(ratios[phase]) for phase, value in own.items() if ratios[phase]]
        return median(scaled) if scaled else None

    def _from_model(self, cell: Cell, config: str) -> float | None:
        known = self._models.get(_model_key(cell), {})
        if config in known:  # under another dtype or batch size: nearer than any other config
            return known[config]
        ratios = {other: self._ratio(cell.device, cell.phase, config, other) for other in known}
        scaled = [known[other] * ratio for other, ratio in ratios.items() if ratio is not None]
        return median(scaled) if scaled else None

    def _find_ratio(self, device: str, phase: Phase, config: str, other: str) -> float | None:
        """The ratio of `config` to `other` in this phase; over all phases where no model of this one has both."""
        for within in (phase, None):
            both = [
                (values[config], values[other])
                for key, values in self._models.items()
                if key[0] == device and within in (None, key[3]) and config in values and other in values
            ]
            if both and (under := median(value for _, value in both)) > 0:
                return median(value for value, _ in both) / under
        return None


def _model_key(cell: Cell) -> ModelKey:
    return cell.device, cell.suite, cell.model, cell.phase


def _by_model(cells: dict[str, Cell], values: dict[str, float]) -> dict[ModelKey, dict[str, float]]:
    """Per model and phase the value of each config; several sizes or dtypes of one config count by their median."""
    several: dict[ModelKey, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, cell in cells.items():
        several[_model_key(cell)][cell.config.config_id].append(values[name])
    return {key: {config: median(sizes) for config, sizes in configs.items()} for key, configs in several.items()}


def _groups(device: str, phase: Phase, config: str) -> tuple[Group, Group, Group]:
    return (device, phase, config), (device, phase, None), (device, None, None)


def _group_medians(models: dict[ModelKey, dict[str, float]]) -> dict[Group, float]:
    groups: dict[Group, list[float]] = defaultdict(list)
    for (device, _, _, phase), configs in models.items():
        for config, value in configs.items():
            for key in _groups(device, phase, config):
                groups[key].append(value)
    return {key: median(values) for key, values in groups.items()}
