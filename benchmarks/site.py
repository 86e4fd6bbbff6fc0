"""Time the publishing of a site of synthetic nights, and of one more night, and print its size.

python -m benchmarks site [--nights 60] [--models 20] [--configs 10]

The defaults are the shape that docs/site.md states: 60 nights of 200 cells.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Engine

from analysis.site.publishing import publish
from benchmarks.synthetic_nights import Shape, add_night, open_filled

_GOALS = "goals: 60 s and 25 MB for 60 nights of 200 cells"


def publish_timed(engine: Engine, folder: Path, nights: int) -> str:
    """Publish; return a line with seconds, seconds of a processor, megabytes, and counts of files."""
    began, used = time.perf_counter(), time.process_time()
    done = publish(engine, folder, nights=nights, made_by="benchmark")
    took, used = time.perf_counter() - began, time.process_time() - used
    counts = f"{done.written:6,} written, {done.kept:6,} kept, {done.removed:5,} removed"
    return f"{took:6.1f} s ({used:5.1f} s of a processor)  {done.size / 1e6:6.1f} MB  {counts}"


def main() -> None:
    """Print a line for the first publication, for one with one more night, and for one with nothing new."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--configs", type=int, default=10)
    options = parser.parse_args()
    nights = options.nights
    # One night more than is published each time, so that the second publication drops a night.
    shape = Shape(nights + 1, options.models, options.configs, sampled=2)
    with TemporaryDirectory() as place:
        engine = open_filled(Path(place) / "synthetic.db", shape, stored=nights)
        host = f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"
        print(f"SYNTHETIC data: {nights} nights of {options.models * options.configs} cells; {host}")
        folder = Path(place) / "site"
        print("first          ", publish_timed(engine, folder, nights))
        add_night(engine, shape, nights)
        print("one more night ", publish_timed(engine, folder, nights))
        print("nothing new    ", publish_timed(engine, folder, nights))
        engine.dispose()
    print(_GOALS)


if __name__ == "__main__":
    main()
