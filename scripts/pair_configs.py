"""One config against another in the same run, pair by pair: what a switch does, with how much the processes scatter.

python scripts/pair_configs.py OFF ON BUNDLE...    e.g. cudagraphs+graph_partition=false cudagraphs+graph_partition=true

A pair is what one run measured of one model under both configs, in a process each. Time saved is 1 - on / off of the
geometric means, its 95 % interval Student's t on ln ratios of the pairs; where both sides fail nothing is claimed of them but
how they fail. Reads bundles only; needs numpy and scipy.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.bundle import read_bundle
from collector.configs.spelling import parse_config
from collector.vocabulary import Measurement

_METRICS = ("compiled_ms", "compiled_kernel_ms", "eager_ms", "compiled_peak_bytes")
_COUNTS = ("cudagraph_skips", "cudagraph_partitions")

Pair = tuple[Measurement, Measurement]


def main() -> None:
    """Prints a paragraph a model and phase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("off", type=parse_config)
    parser.add_argument("on", type=parse_config)
    parser.add_argument("bundles", nargs="+", type=Path)
    options = parser.parse_args()
    runs = [list(read_bundle(path).latest().values()) for path in options.bundles]
    found = find_pairs(runs, options.off.config_id, options.on.config_id)
    if not found:
        sys.exit(f"none of {len(runs)} bundles measured one model under both configs: see `inductor-watch runs`")
    for name, pairs in sorted(found.items()):
        print(f"{name}: {len(pairs)} pairs")
        for line in describe(pairs):
            print(f"  {line}")


def find_pairs(runs: Iterable[Sequence[Measurement]], off: str, on: str) -> dict[str, list[Pair]]:
    """The pairs of each model, phase, dtype and batch size, by their spelling."""
    found: dict[str, list[Pair]] = defaultdict(list)
    for run in runs:
        sides: dict[str, dict[str, Measurement]] = defaultdict(dict)
        for item in run:
            cell = item.cell
            name = f"{cell.suite}/{cell.model} {cell.phase.value} {cell.dtype} {cell.device} bs{cell.batch_size}"
            sides[name][cell.config.config_id] = item
        for name, of_config in sides.items():
            if off in of_config and on in of_config:
                found[name].append((of_config[off], of_config[on]))
    return dict(found)


def describe(pairs: Sequence[Pair]) -> Iterator[str]:
    """How the two ended, what the metrics say, and the counters of both."""
    ended = Counter(f"{off.status.value} -> {on.status.value}" for off, on in pairs)
    yield "status " + ", ".join(f"{text} ({count})" for text, count in ended.items())
    for metric in _METRICS:
        ratios = [
            np.log(on.metrics[metric] / off.metrics[metric])
            for off, on in pairs
            if off.metrics.get(metric) and on.metrics.get(metric)
        ]
        if len(ratios) >= 2:
            yield f"{metric}: {saved(ratios)}, of {len(ratios)}"
    for metric in _COUNTS:
        before, after = (_values(side, metric) for side in zip(*pairs, strict=True))
        yield f"{metric}: {before} -> {after}"


def saved(ratios: Sequence[float]) -> str:
    """Part of the metric saved by the second config, in per cent, with its interval; `ratios` are ln(on / off)."""
    mean, error = float(np.mean(ratios)), float(stats.sem(ratios))
    half = float(stats.t.ppf(0.975, len(ratios) - 1)) * error
    percent = [-100 * float(np.expm1(value)) for value in (mean, mean + half, mean - half)]
    return f"{percent[0]:+.1f} % saved ({percent[1]:+.1f} .. {percent[2]:+.1f}), {np.exp(-mean):.2f}x"


def _values(side: Iterable[Measurement], metric: str) -> str:
    known = sorted({item.metrics[metric] for item in side if metric in item.metrics})
    return "/".join(f"{value:g}" for value in known) or "not measured"


if __name__ == "__main__":
    main()
