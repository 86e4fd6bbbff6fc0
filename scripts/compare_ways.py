"""Whether two ways of measuring measure the same: one process a cell in sequence and a pool, or one GPU and two.

python scripts/compare_ways.py --one BUNDLE... --other BUNDLE...      (on several GPUs: a bundle each)

The unit is the cell, never the sample: within a process samples depend on each other. For each metric the natural logarithm
of other over one is taken per cell. Shown are its geometric mean with a 95 % interval from 10,000 bootstrap samples of
models (cells of one model are drawn together), and Wilcoxon's signed-rank test of no shift. "equal" means that the whole
interval lies within the smallest effect that matters: 2 % for times of the device and of a call (docs/architecture.md).
The spread of compile times is judged on the A/A pair that every night carries: `triton` and `default` are one program.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import wilcoxon

from collector.bundle import read_bundle
from collector.metrics import TIMINGS
from collector.vocabulary import Measurement, Status

_MATTERS = 0.02
#: Whose spread within a way is told: what the other way may differ by without meaning anything.
_TWICE = ("compiled_kernel_ms", "compiled_ms", "eager_ms", "compile_cold_s")
_DRAWS, _SEED = 10_000, 1

Reader = Callable[[Measurement], float | None]


def _metric(name: str) -> Reader:
    return lambda item: item.metrics.get(name)


def _detail(name: str) -> Reader:
    return lambda item: item.details.get(name)


#: What is compared: the timed metrics, and the CPU seconds of a cell's processes, with which neighbours interfere.
_QUANTITIES: dict[str, Reader] = {name: _metric(name) for name in TIMINGS}
_QUANTITIES |= {name: _detail(name) for name in ("compile_cpu_s", "cpu_s")}


def main() -> None:
    """Prints a line a metric, then what one program measured twice differs by within each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", type=Path, nargs="+", required=True)
    parser.add_argument("--other", type=Path, nargs="+", required=True)
    parser.add_argument("--without", action="append", default=[], metavar="CONFIG", help="leave out a config")
    options = parser.parse_args()
    one, other = passing(options.one), passing(options.other)
    both = sorted(key for key in one.keys() & other.keys() if other[key].cell.config.name not in options.without)
    print(f"{len(one)} cells pass in one, {len(other)} in the other, {len(both)} in both")
    print(f"{'other over one':<20} {'cells':>5} {'ratio':>7} {'95 % interval':>16} {'p':>7}  within {_MATTERS:.0%}")
    for name, read in _QUANTITIES.items():
        pairs = [(one[cell], other[cell]) for cell in both]
        _print_quantity(name, [pair for pair in pairs if read(pair[0]) and read(pair[1])], read)
    for metric, (name, way) in product(_TWICE, (("one", one), ("other", other))):
        spread = aa_spread(way, metric)
        if spread.size:
            told = f"{spread.size} models, median {np.median(spread):.1%}, largest {spread.max():.1%}"
            print(f"{metric} of one program twice, {name}: {told}")


def passing(paths: Iterable[Path]) -> dict[str, Measurement]:
    """The newest measurement of every cell that passes, by `cell_id`."""
    found = [item for path in paths for item in read_bundle(path).latest().items()]
    return {key: item for key, item in found if item.status is Status.PASS}


def aa_spread(items: Mapping[str, Measurement], metric: str) -> np.ndarray:
    """|a/b - 1| of a metric over the models that have both halves of the A/A pair."""
    halves: dict[str, dict[str, float]] = defaultdict(dict)
    for item in items.values():
        if item.cell.config.name in ("triton", "default") and metric in item.metrics:
            halves[item.cell.model][item.cell.config.name] = item.metrics[metric]
    pairs = [(found["triton"], found["default"]) for found in halves.values() if len(found) == 2]
    return np.array([max(pair) / min(pair) - 1 for pair in pairs])


def _print_quantity(name: str, pairs: list[tuple[Measurement, Measurement]], read: Reader) -> None:
    if len(pairs) < 2:
        return
    shifts = np.array([np.log((read(other) or 0) / (read(one) or 1)) for one, other in pairs])
    low, high = interval(shifts, [one.cell.model for one, _ in pairs], np.mean)
    p = wilcoxon(shifts).pvalue
    equal = "yes" if -np.log1p(_MATTERS) < low and high < np.log1p(_MATTERS) else "no"
    span = f"{np.exp(low):.3f} .. {np.exp(high):.3f}"
    print(f"{name:<20} {len(pairs):>5} {np.exp(shifts.mean()):>7.3f} {span:>16} {p:>7.3f}  {equal}")


def interval(
    values: np.ndarray, models: list[str], statistic: Callable[[np.ndarray], float], level: float = 0.95
) -> tuple[float, float]:
    """A percentile bootstrap interval whose unit is the model."""
    groups = [values[[index for index, name in enumerate(models) if name == model]] for model in dict.fromkeys(models)]
    random = np.random.default_rng(_SEED)
    drawn = random.integers(len(groups), size=(_DRAWS, len(groups)))
    found = [statistic(np.concatenate([groups[index] for index in row])) for row in drawn]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


if __name__ == "__main__":
    main()
