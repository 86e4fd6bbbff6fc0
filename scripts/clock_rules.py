"""Other ways to judge device times of cells whose GPU was held back, beside ours: what-if questions of `prove_verdicts.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import numpy as np

import analysis.verdicts
from analysis.noise import Noise, learn_noise
from analysis.paired_values import CONTROL, WAITS_FOR_HOST, PairedValues, Taken, beside_eager
from analysis.repeated import Mask

#: As `analysis.paired_values.beside_eager`.
Rule = Callable[[PairedValues, str, Noise, Taken], tuple[Noise, Taken]]
_KERNEL = "compiled_kernel_ms"
_HELD_BACK = PairedValues.held_back


def nothing(known: PairedValues, metric: str, noise: Noise, taken: Taken) -> tuple[Noise, Taken]:
    """Nobody knows that a GPU was held back."""
    with _held_back(lambda here: np.zeros(len(here.cells), dtype=bool)):
        return beside_eager(known, metric, noise, taken)


def everywhere(known: PairedValues, metric: str, noise: Noise, taken: Taken) -> tuple[Noise, Taken]:
    """The eager device time is a covariate of that of every cell."""
    if metric == WAITS_FOR_HOST:
        return nothing(known, metric, noise, taken)
    with _held_back(lambda here: np.ones(len(here.cells), dtype=bool)):
        return beside_eager(known, metric, noise, taken)


def ratio(known: PairedValues, metric: str, noise: Noise, taken: Taken) -> tuple[Noise, Taken]:
    """Cells that were held back are judged by `device_speedup`: all that the eager run moved by is the clock's."""
    if metric == WAITS_FOR_HOST:
        return nothing(known, metric, noise, taken)
    before, after = known.values(CONTROL[_KERNEL])
    moved, of_ratio = after.mean - before.mean, learn_noise(known.rows, "device_speedup")
    here = known.held_back() & np.isfinite(moved)
    variance, df = known.of_cell(of_ratio.variance, "new"), known.of_cell(of_ratio.df, "new")
    pairs = ((moved, taken.change), (variance, taken.variance), (df, taken.df))
    return noise, Taken(*(np.where(here, *pair) for pair in pairs), taken.doubt)


def wider(known: PairedValues, metric: str, noise: Noise, taken: Taken) -> tuple[Noise, Taken]:
    """Cells that were held back have at least the noise of their eager device time."""
    if metric == WAITS_FOR_HOST:
        return nothing(known, metric, noise, taken)
    of_eager = known.of_cell(learn_noise(known.rows, CONTROL[_KERNEL]).variance, "new")
    variance = np.where(known.held_back(), np.fmax(of_eager, taken.variance), taken.variance)
    return noise, Taken(taken.change, variance, taken.df, taken.doubt)


#: By the name that `--clock` takes.
RULES: dict[str, Rule] = {
    "ours": beside_eager,
    "nothing": nothing,
    "everywhere": everywhere,
    "ratio": ratio,
    "wider": wider,
}


@contextmanager
def judging_by(name: str, models: Collection[str] = ()) -> Iterator[None]:
    """Within it verdicts go by another rule. Cells of `models` count as held back, where bundles do not say it themselves."""
    verdicts = analysis.verdicts
    before = verdicts.beside_eager, verdicts.ALSO_READ
    verdicts.beside_eager, verdicts.ALSO_READ = RULES[name], (*verdicts.ALSO_READ, "device_speedup")
    told = _HELD_BACK if not models else lambda here: here.cells["model"].isin(list(models)).to_numpy(dtype=bool)
    try:
        with _held_back(told):
            yield
    finally:
        verdicts.beside_eager, verdicts.ALSO_READ = before


@contextmanager
def _held_back(told: Callable[[PairedValues], Mask]) -> Iterator[None]:
    before = PairedValues.held_back
    PairedValues.held_back = told  # type: ignore[method-assign]
    try:
        yield
    finally:
        PairedValues.held_back = before  # type: ignore[method-assign]
