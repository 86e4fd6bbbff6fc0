"""Draw random samples of GraphNet, and print a table of measured samples by status and cause.

python -m benchmarks graphnet_samples draw SAMPLES [--count 200] [--seed 0] > list.txt
INDUCTOR_WATCH_GRAPHNET=SAMPLES inductor-watch run --model graphnet/@list.txt --backend eager --samples 5 --out eager
python -m benchmarks graphnet_samples table eager/*.gz
"""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from pathlib import Path

from collector.bundle import read_bundle
from collector.vocabulary import Measurement, Status


def main() -> None:
    """Draw samples or print the table, by the first argument."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    verbs = parser.add_subparsers(dest="verb", required=True)
    draw = verbs.add_parser("draw", help="names of random samples, in random order")
    draw.add_argument("samples", type=Path)
    draw.add_argument("--count", type=int, default=200)
    draw.add_argument("--seed", type=int, default=0)
    verbs.add_parser("table", help="a Markdown table of bundles").add_argument("bundles", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.verb == "draw":
        print("\n".join(drawn(asked.samples, asked.count, asked.seed)))
    else:
        print(table([item for path in asked.bundles for item in read_bundle(path).measurements]))


def drawn(samples: Path, count: int, seed: int) -> list[str]:
    """Return the names of `count` samples of a folder in random order, so that any first part of them is random too."""
    names = sorted(path.parent.relative_to(samples).as_posix() for path in samples.rglob("graph_net.json"))
    return random.Random(seed).sample(names, min(count, len(names)))


def table(measurements: list[Measurement]) -> str:
    """Return a Markdown table of counts by config, status and cause; it names the first three samples of each cause."""
    causes = defaultdict(list)
    for item in measurements:
        causes[item.cell.config.name, item.status.value, _cause(item)].append(item.cell.model)
    lines = ["| config | status | samples | cause | e.g. |", "|---|---|---|---|---|"]
    for (config, status, cause), models in sorted(causes.items(), key=lambda entry: (entry[0][0], -len(entry[1]))):
        names = "" if status == Status.PASS else ", ".join(sorted(models)[:3])
        lines.append(f"| {config} | {status} | {len(models)} | {cause.replace('|', ' ')} | {names} |")
    return "\n".join(lines)


def _cause(item: Measurement) -> str:
    """Return the first line of the failure's message, without numbers, so that equal causes have equal texts."""
    if item.failure is None:
        return ""
    [first, *_] = item.failure.message.strip().splitlines() or [""]
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", first)[:120]


if __name__ == "__main__":
    main()
