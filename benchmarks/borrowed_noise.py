"""Test the noise that a cell borrows from others on measured processes: `python -m benchmarks borrowed_noise BUNDLE...`

One cell is drawn, and some others of which two processes each are looked at. The others tell the noise
(`analysis.stats.run_noise.fit_prior`), and with it an interval for the difference of two processes of the first cell. The first
line has the noise that all processes tell. Each other line has the number of the other cells, the share of intervals of 95 and of
99.5 % that hold the difference, and half the width of those of 95 %, median and mean. Processes are of one cell if they generated
the same code; equal values are copies, and count once.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from analysis.compare.noise import FLOOR
from analysis.stats.averages import Numbers
from analysis.stats.run_noise import FEWEST_REPEATED, Prior, fit_prior
from collector.bundle import read_bundle
from collector.metrics import METRICS
from collector.vocabulary import Status

_SHARES = (0.95, 0.995)


def main() -> None:
    """Print a line for each number of other cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--metric", choices=sorted(METRICS), default="compiled_kernel_ms", help="[%(default)s]")
    parser.add_argument("--others", type=int, nargs="+", default=(5, 12, 30), help="[%(default)s]")
    parser.add_argument("--times", type=int, default=1000, help="draws for each line [%(default)s]")
    options = parser.parse_args()
    cells = _repeated(options.bundles, options.metric)
    if len(cells) <= FEWEST_REPEATED:
        sys.exit(f"{len(cells)} cells have two processes: give bundles with at least {FEWEST_REPEATED + 1}")
    variances = [max(float(np.var(values, ddof=1)), FLOOR**2) for values in cells]
    prior = _prior(variances, [len(values) - 1 for values in cells])
    alike = f"noise {np.sqrt(prior.variance):.2%} with {prior.df:.1f} degrees of freedom"
    print(f"{len(cells)} cells, {sum(map(len, cells))} processes, {options.metric}: {alike}")
    print(f"{'others':>6} {'in 95 %':>8} {'in 99.5 %':>9} {'median':>8} {'mean':>8}")
    for count in options.others:
        if FEWEST_REPEATED <= count < len(cells):
            held, width = _drawn(cells, count, options.times)
            shares = held.mean(axis=0)
            print(
                f"{count:>6} {shares[0]:>8.3f} {shares[1]:>9.3f}  +-{np.median(width):>5.2%}  +-{np.mean(width):>5.2%}"
            )


def _repeated(bundles: list[Path], metric: str) -> list[Numbers]:
    """Return ln of the metric of the processes of each cell that has at least two."""
    found: dict[tuple[str, str | None], set[float]] = defaultdict(set)
    for path in bundles:
        for one in read_bundle(path).latest().values():
            if one.status is Status.PASS and (value := one.metrics.get(metric)):
                found[one.cell.cell_id, one.code_id].add(value)
    return [np.log(sorted(values)) for values in found.values() if len(values) > 1]


def _drawn(cells: list[Numbers], count: int, times: int) -> tuple[Numbers, Numbers]:
    """Return for each draw whether each interval holds the difference, and half of the width of that of 95 %."""
    random, held, width = np.random.default_rng(count), [], []
    for _ in range(times):
        first, *others = random.choice(len(cells), count + 1, replace=False)
        pairs = np.array([random.choice(cells[number], 2, replace=False) for number in (first, *others)])
        variances = np.maximum(np.var(pairs, axis=1, ddof=1), FLOOR**2)
        prior = _prior(variances[1:], np.ones(count))
        half = np.sqrt(2 * prior.variance) * stdtrit(prior.df, [(1 + share) / 2 for share in _SHARES])
        held.append(abs(pairs[0, 0] - pairs[0, 1]) <= half)
        width.append(np.expm1(half[0]))
    return np.array(held), np.array(width)


def _prior(variances: Sequence[float] | Numbers, dfs: Sequence[float] | Numbers) -> Prior:
    prior = fit_prior(variances, dfs)
    if prior is None:
        raise AssertionError("fit_prior needs more cells")
    return prior


if __name__ == "__main__":
    main()
