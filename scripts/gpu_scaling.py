"""What several GPUs of a host gain over one of them: seconds until each has done as many cells, and where a cell's time went.

python scripts/gpu_scaling.py --one BUNDLE... --many BUNDLE...      the same cells, as many or more a GPU

A run that was cut short counts as far as it came. Reads bundles only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.bundle import read_bundle
from collector.vocabulary import Measurement

_STAGES = ("start", "load_model", "eager", "compile", "correctness", "timing", "profile")


def main() -> None:
    """Prints both runs, the gain, and a line a part of a cell's time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs="+", type=Path, required=True)
    parser.add_argument("--many", nargs="+", type=Path, required=True)
    options = parser.parse_args()
    (one, few), (many, gpus) = (read(paths) for paths in (options.one, options.many))
    each = min(len(one) // few, len(many) // gpus)
    took = [seconds_to(items, each * count) for items, count in ((one, few), (many, gpus))]
    for count, seconds in zip((few, gpus), took, strict=True):
        print(f"{count} GPU{'s' * (count > 1)}: {each * count} cells in {seconds:.0f} s")
    print(
        f"{gpus} GPUs are {gpus / few * took[0] / took[1]:.2f} times as fast, {took[0] / took[1]:.0%} of the pace each"
    )
    print(f"{'seconds a cell':<16} {few:>8} {gpus:>8}")
    for name in (*_STAGES, "cpu_s", "stood and waited"):
        print(f"{name:<16} {_mean(one, name):>8.2f} {_mean(many, name):>8.2f}")


def read(paths: Sequence[Path]) -> tuple[list[Measurement], int]:
    """All cells of some runs, and on how many GPUs they were."""
    runs = [read_bundle(path) for path in paths]
    gpus = {run.header.testbed.get("gpu_index") for run in runs}
    return [item for run in runs for item in run.latest().values()], len(gpus)


def seconds_to(items: Sequence[Measurement], count: int) -> float:
    """Seconds from the first cell's start until so many are done."""
    began = [datetime.fromisoformat(item.started_at).timestamp() for item in items]
    ended = sorted(start + item.wall_s for start, item in zip(began, items, strict=True))
    return ended[count - 1] - min(began)


def _mean(items: Sequence[Measurement], name: str) -> float:
    if name == "cpu_s":
        return mean(float(item.details.get("cpu_s") or 0) for item in items)
    if name not in _STAGES:
        return mean(float(item.details.get("waited_s", 0)) for item in items)
    return mean(float(item.details["stage_s"].get(name, 0)) for item in items)


if __name__ == "__main__":
    main()
