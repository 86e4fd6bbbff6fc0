"""How far two runs of the same code lie apart, per metric: the noise that a single pair of runs shows.

python scripts/aa_spread.py RUN RUN [--db PATH]
"""

from __future__ import annotations

import argparse
import math
from statistics import median

from analysis.compare import Transition, compare
from collector.metrics import TIMINGS
from db.engine import open_store
from db.sides import resolve_side


def main() -> None:
    """Prints, per metric, the median and the largest absolute change over the cells that pass in both runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("new")
    parser.add_argument("--db")
    options = parser.parse_args()
    with open_store(options.db, write=False).connect() as connection:
        sides = resolve_side(connection, options.base), resolve_side(connection, options.new)
        cells = compare(connection, *sides).with_transition(Transition.BOTH_PASS)
    print(f"{'metric':<20} {'cells':>5} {'median':>8} {'largest':>8}  where")
    for metric in TIMINGS:
        ratios = cells.set_index("cell")[f"{metric}_ratio"].dropna()
        changes = {cell: abs(math.expm1(abs(math.log(value)))) for cell, value in ratios.items()}
        if changes:
            worst = max(changes, key=lambda cell: changes[cell])
            print(f"{metric:<20} {len(changes):>5} {median(changes.values()):>8.1%} {changes[worst]:>8.1%}  {worst}")


if __name__ == "__main__":
    main()
