"""How often a bisection over synthetic builds is right, wrong, or left open, and how many runs it takes.

    python -m benchmarks score_bisection [--builds 12] [--change 0.1] [--rounds 300] [--slowed 0]

Builds are synthetic: from a random one on they are slower by `--change`, with normal noise of ln from run to run, of eager and
compiled each. `--slowed` is the share of builds whose host is slower by 20 %, for eager and compiled alike. Prints a line for
each size of the noise. Nothing is measured; seeds are fixed, so that the figures come out the same.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from analysis.history.bisection import level_of, looks
from jobs.bisect.judges import MetricJudge, Reading
from jobs.bisect.search import Bisection, BisectionLog

NOISE = (0.005, 0.01, 0.02, 0.03, 0.04)
LEAST, MOST = 3, 12


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--builds", type=int, default=12)
    parser.add_argument("--change", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--slowed", type=float, default=0.0)
    asked = parser.parse_args()
    print(f"{asked.rounds} synthetic bisections each, {asked.builds} builds, a change of {asked.change:.0%}")
    for noise in NOISE:
        counts: Counter[str] = Counter()
        runs = 0
        for seed in range(asked.rounds):
            word, made = bisect(seed, asked.builds, asked.change, noise, asked.slowed)
            counts[word] += 1
            runs += made
        shares = ", ".join(f"{counts[word] / asked.rounds:.1%} {word}" for word in ("right", "wrong", "open"))
        print(f"noise {noise:.1%}: {shares}; {runs / asked.rounds:.1f} runs")


def bisect(seed: int, builds: int, change: float, noise: float, slowed: float) -> tuple[str, int]:
    """How one bisection ended, and how many runs it made."""
    rng = np.random.default_rng(seed)
    names = [f"synthetic-{number}" for number in range(builds)]
    first = int(rng.integers(1, builds))
    host = np.log(1.2) * (np.random.default_rng([seed, builds]).random(builds) < slowed)
    made = 0

    def measure(name: str, number: int) -> Reading:
        nonlocal made
        made += 1
        place = names.index(name)
        level = math.log1p(change) if place >= first else 0.0
        eager, compiled = (noise * rng.standard_normal(2) + host[place]).tolist()
        return Reading("pass", math.exp(level + compiled), name, "", eager=math.exp(eager))

    judge = MetricJudge("compiled_ms", level_of(builds, len(looks(LEAST, MOST))))
    with TemporaryDirectory() as folder, patch("os.fsync"):
        log = BisectionLog(Path(folder) / "log.jsonl", {})
        found = Bisection(names, measure, judge, log, lambda line: None, least=LEAST, most=MOST).run()
    if found.word != "found":
        return "open", made
    return ("right" if found.first_bad == names[first] else "wrong"), made


if __name__ == "__main__":
    main()
