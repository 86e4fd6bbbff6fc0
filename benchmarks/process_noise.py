"""Estimate the noise from process to process of equal code: for each cell the standard deviation of ln of each metric.

    python -m benchmarks process_noise BUNDLE...

The bundles are runs of one commit; each cell must pass in at least four of them. `compiled_ms beside eager` is the noise that
is left after adjusting for the eager run of the same process, as the verdicts do (`analysis.stats.run_noise`). Lines with
`(busy)` leave out cells in which a process flags one of the metric's forms as launch-bound.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.stats.run_noise import fit_slopes
from collector.bundle import read_bundle
from collector.metrics import METRICS
from collector.vocabulary import Measurement, Status

_FEWEST = 4
#: Clock readings and their ratios: they differ from run to run.
_TIMINGS = [name for name, metric in METRICS.items() if metric.unit in ("ms", "s") or name.endswith("speedup")]
_BESIDE = "compiled_ms beside eager"
#: The forms whose wall-clock latency is part of a metric.
_FORMS = {
    "eager_ms": {"eager"},
    "compiled_ms": {"compiled"},
    "speedup": {"eager", "compiled"},
    _BESIDE: {"compiled"},
}

#: The measurements of a cell, by (config, model and so on).
Cells = Mapping[tuple[str, str], Sequence[Measurement]]


def main() -> None:
    """Print a line for each config and metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--fewest", type=int, default=_FEWEST, help="processes that a cell must have [%(default)s]")
    parser.add_argument("--shared", action="store_true", help="only processes that reused all autotuning results")
    options = parser.parse_args()
    items: Iterator[Measurement] = (item for path in options.bundles for item in read_bundle(path).latest().values())
    cells = repeated((item for item in items if not options.shared or reused_all(item.details)), options.fewest)
    if not cells:
        sys.exit(f"no cell passes in {options.fewest} of the bundles")
    print(f"processes a cell: {min(map(len, cells.values()))} to {max(map(len, cells.values()))}")
    print(
        f"{'config':<12} {'metric':<32} {'cells':>5} {'median':>8} {'90 %':>8} {'worst':>8} {'<=0.5%':>7} {'<=1%':>6} {'<=3%':>6}"
    )
    for config in sorted({config for config, _ in cells}):
        of_config = {name: items for (of, name), items in cells.items() if of == config}
        for metric in (*_TIMINGS, _BESIDE):
            _print(f"{config:<12} {metric:<32}", of_config.values(), metric, options.fewest)
            if metric in _FORMS:
                busy = [items for items in of_config.values() if not launch_bound(items, _FORMS[metric])]
                if len(busy) == len(of_config):
                    continue
                _print(f"{config:<12} {metric + ' (busy)':<32}", busy, metric, options.fewest)
    for metric in ("compiled_ms", "compiled_kernel_ms", "compile_cold_s"):
        if ratios := [max(found) / min(found) for items in cells.values() if (found := _values(items, metric))]:
            print(f"largest ratio of two processes of a cell: {metric} {max(ratios):.2f}")


def _print(head: str, cells: Iterable[Sequence[Measurement]], metric: str, fewest: int) -> None:
    found = np.array([spread for items in cells if (spread := spread_of(items, metric, fewest)) is not None])
    if len(found):
        within = "".join(f"{np.mean(found <= limit):>7.0%}" for limit in (0.005, 0.01, 0.03))
        middle = f"{np.median(found):>8.2%} {np.quantile(found, 0.9):>8.2%} {found.max():>8.2%}"
        print(f"{head} {len(found):>5} {middle} {within}")


def reused_all(details: Mapping[str, Any]) -> bool:
    """Return whether the process found all autotuning results in the shared folder; False if results were not shared."""
    shared = details.get("shared_tuning", {})
    return not (shared.get("kernels_tuned", 1) + shared.get("decided_otherwise", 1) + shared.get("operations_new", 0))


def launch_bound(items: Iterable[Measurement], forms: set[str]) -> bool:
    """Return whether any process flags one of these forms as launch-bound; cells on a CPU have no such flag."""
    return any(forms & set(item.details.get("launch_bound", ())) for item in items)


def repeated(items: Iterable[Measurement], fewest: int = _FEWEST) -> dict[tuple[str, str], list[Measurement]]:
    """Return the passing measurements of every cell that has at least `fewest` of them."""
    found: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for item in items:
        if item.status is Status.PASS:
            cell = item.cell
            found[cell.config.name, f"{cell.suite}/{cell.model} {cell.phase.value}"].append(item)
    return {key: same for key, same in found.items() if len(same) >= fewest}


def spread_of(items: Sequence[Measurement], metric: str, fewest: int = _FEWEST) -> float | None:
    """Return the standard deviation of ln of a metric from process to process; None if too few processes measured it."""
    if metric == _BESIDE:
        both = [(item.metrics["compiled_ms"], item.metrics["eager_ms"]) for item in items if "eager_ms" in item.metrics]
        y, x = (values - values.mean() for values in np.log(np.array(both)).T)
        fitted = fit_slopes(np.array([x @ x]), np.array([x @ y]), np.array([y @ y]))
        return float(np.sqrt(fitted.left[0] / (len(both) - 1 - fitted.taken[0])))
    values = _values(items, metric)
    return float(np.std(np.log(values), ddof=1)) if len(values) >= fewest else None


def _values(items: Iterable[Measurement], metric: str) -> list[float]:
    return [value for item in items if (value := item.metrics.get(metric, 0.0))]


if __name__ == "__main__":
    main()
