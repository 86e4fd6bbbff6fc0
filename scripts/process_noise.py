"""How far processes of the same code lie apart, cell by cell: the standard deviation of ln of each metric.

python scripts/process_noise.py BUNDLE...      bundles of one code, each cell in at least four of them

`compiled_ms beside eager` is what is left of it once the eager run of the same process has explained its part, as verdicts
see it (`analysis.stats.covariates`). `(busy)` leaves out the cells in which any process flags a form that the metric takes as
launch-bound. Reads bundles only; needs numpy and scipy.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.stats.covariates import fit_slopes
from collector.bundle import read_bundle
from collector.measure.autotune_results import found_all
from collector.metrics import TIMINGS
from collector.vocabulary import Measurement, Status

_FEWEST = 4
_BESIDE = "compiled_ms beside eager"
#: The forms whose wall clock a metric is made of.
_FORMS = {
    "eager_ms": {"eager"},
    "compiled_ms": {"compiled"},
    "speedup": {"eager", "compiled"},
    _BESIDE: {"compiled"},
}

#: The measurements of a cell, by (config, model and so on).
Cells = Mapping[tuple[str, str], Sequence[Measurement]]


def main() -> None:
    """Prints a line a config and metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--fewest", type=int, default=_FEWEST, help="processes that a cell must have [%(default)s]")
    parser.add_argument("--shared", action="store_true", help="only processes that found all their kernels' choices")
    options = parser.parse_args()
    items: Iterator[Measurement] = (item for path in options.bundles for item in read_bundle(path).latest().values())
    cells = repeated((item for item in items if not options.shared or found_all(item.details)), options.fewest)
    if not cells:
        sys.exit(f"no cell passes in {options.fewest} of the bundles")
    print(f"processes a cell: {min(map(len, cells.values()))} to {max(map(len, cells.values()))}")
    print(
        f"{'config':<12} {'metric':<32} {'cells':>5} {'median':>8} {'90 %':>8} {'worst':>8} {'<=0.5%':>7} {'<=1%':>6} {'<=3%':>6}"
    )
    for config in sorted({config for config, _ in cells}):
        of_config = {name: items for (of, name), items in cells.items() if of == config}
        for metric in (*TIMINGS, _BESIDE):
            _print(f"{config:<12} {metric:<32}", of_config.values(), metric, options.fewest)
            if metric in _FORMS:
                busy = [items for items in of_config.values() if not launch_bound(items, _FORMS[metric])]
                if len(busy) == len(of_config):
                    continue
                _print(f"{config:<12} {metric + ' (busy)':<32}", busy, metric, options.fewest)


def _print(head: str, cells: Iterable[Sequence[Measurement]], metric: str, fewest: int) -> None:
    found = np.array([spread for items in cells if (spread := spread_of(items, metric, fewest)) is not None])
    if len(found):
        within = "".join(f"{np.mean(found <= limit):>7.0%}" for limit in (0.005, 0.01, 0.03))
        middle = f"{np.median(found):>8.2%} {np.quantile(found, 0.9):>8.2%} {found.max():>8.2%}"
        print(f"{head} {len(found):>5} {middle} {within}")


def launch_bound(items: Iterable[Measurement], forms: set[str]) -> bool:
    """Whether any process flags one of these forms as waiting for launches; a CPU's cells have no such flag."""
    return any(forms & set(item.details.get("launch_bound", ())) for item in items)


def repeated(items: Iterable[Measurement], fewest: int = _FEWEST) -> dict[tuple[str, str], list[Measurement]]:
    """The passing measurements of every cell that has enough of them."""
    found: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for item in items:
        if item.status is Status.PASS:
            cell = item.cell
            found[cell.config.name, f"{cell.suite}/{cell.model} {cell.phase.value}"].append(item)
    return {key: same for key, same in found.items() if len(same) >= fewest}


def spread_of(items: Sequence[Measurement], metric: str, fewest: int = _FEWEST) -> float | None:
    """The standard deviation of ln from process to process; None where too few measured it."""
    if metric == _BESIDE:
        both = [(item.metrics["compiled_ms"], item.metrics["eager_ms"]) for item in items if "eager_ms" in item.metrics]
        y, x = (values - values.mean() for values in np.log(np.array(both)).T)
        fitted = fit_slopes(np.array([x @ x]), np.array([x @ y]), np.array([y @ y]))
        return float(np.sqrt(fitted.left[0] / (len(both) - 1 - fitted.taken[0])))
    values = [value for item in items if (value := item.metrics.get(metric, 0.0))]
    return float(np.std(np.log(values), ddof=1)) if len(values) >= fewest else None


if __name__ == "__main__":
    main()
