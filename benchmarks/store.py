"""Measure speed and size of a full store: 600 synthetic nights of 150 models under 12 configs, 1.08 M measurements.

python -m benchmarks store [--db PATH|URL]... [--postgres] [--commits 600] [--models 150] [--configs 12] [--runs 21]

Without --db a SQLite file in a temporary folder is filled, which takes some minutes. An existing store is used unchanged, if it
is synthetic. --postgres also starts a PostgreSQL server of its own, with default settings. Times are wall times of the public
functions in ms: the first call in a process that has just opened the store (the pages may still be in the system's cache), then
best, median and 95th percentile of the other calls. The load of the machine is printed, since it changes the times. Sizes are of
tables with their indexes, filled night by night.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Engine, delete, func, select, text

from analysis.compare.compare_sides import compare
from benchmarks.postgres import start
from benchmarks.synthetic_nights import Shape, World, open_filled
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries.cells import axes
from db.queries.series import model_history, suite_history
from db.queries.side_rows import side_rows
from db.queries.sides import resolve_side
from db.schema import Evidence, Run, Samples, measurements

_MS = 1000
#: Queries for the bytes of all tables with their indexes, by dialect.
_SIZES = {
    "sqlite": """
        SELECT m.tbl_name, SUM(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY m.tbl_name""",
    "postgresql": """
        SELECT relname, pg_total_relation_size(oid) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'""",
}
#: Tables with rows for some nights of the store only.
_APART = ("samples", "evidence")


def main() -> None:
    """Print a table for each store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", action="append", default=[], metavar="PATH|URL", help="filled where it holds nothing")
    parser.add_argument("--postgres", action="store_true", help="with a PostgreSQL server of its own")
    parser.add_argument("--commits", type=int, default=Shape().commits)
    parser.add_argument("--models", type=int, default=Shape().models)
    parser.add_argument("--configs", type=int, default=Shape().configs)
    parser.add_argument("--runs", type=int, default=21, help="calls of each function")
    options = parser.parse_args()
    shape = Shape(options.commits, options.models, options.configs)
    with ExitStack() as stack:
        places = list(options.db) or [str(Path(stack.enter_context(TemporaryDirectory())) / "synthetic.db")]
        if options.postgres:
            server = start({})  # durable, like a real server
            stack.callback(server.stop)
            places.append(server.blank())
        for place in places:
            report(place, shape, options.runs)


def report(place: str, shape: Shape, runs: int) -> None:
    """Fill a store if it is empty, and print its sizes and times."""
    writer = open_filled(place, shape)
    reader = open_store(place, write=False)
    _print_sizes(reader)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\nwall time in ms; load average {load} on {os.cpu_count()} cores")
    print(f"{'':46}{'target':>8}{'first':>9}{'best':>9}{'median':>9}{'p95':>9}")
    for name, target, call in _calls(reader):
        _print_times(name, target, [_seconds(call) for _ in range(max(2, runs))])
    _time_ingest(writer, shape, max(3, runs // 4))
    for engine in (reader, writer):
        engine.dispose()


def _calls(engine: Engine) -> list[tuple[str, float | None, Callable[[], object]]]:
    """Return the public functions that are timed, with their names and their targets in ms."""
    base, new = (resolve_side(engine, name) for name in ("latest~1", "latest"))
    first, *_ = axes(engine).models
    metrics = ("speedup", "device_speedup", "compression", "eager_ms")
    return [
        ("two nights: compared and judged", None, lambda: compare(engine, base, new)),
        ("a model: model_history", 50, lambda: model_history(engine, first.suite, first.name)),
        (
            "the same, other metrics",
            50,
            lambda: model_history(engine, first.suite, first.name, metrics=metrics),
        ),
        ("all suites: suite_history", None, lambda: suite_history(engine)),
        ("a side: side_rows", None, lambda: side_rows(engine, new)),
    ]


def _time_ingest(engine: Engine, shape: Shape, runs: int) -> None:
    """Time the ingest of one more night, with samples and evidence, from its gzipped bundle; remove the night each time."""
    with TemporaryDirectory() as folder:
        night = World(shape).night(shape.commits)
        path = night.write(Path(folder), samples=True)
        times = []
        for _ in range(runs):
            times.append(_seconds(lambda: ingest_bundle(engine, path)))
            with engine.begin() as conn:
                conn.execute(delete(Run).where(Run.run_id == night.header.run_id))
        size = path.stat().st_size / 1e6
    _print_times(f"a night: ingest_bundle ({int(night.is_measured.sum())} cells, {size:.1f} MB)", 3000, times)


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _print_times(name: str, target: float | None, seconds: list[float]) -> None:
    first, *others = (_MS * value for value in seconds)
    p95 = sorted(others)[int(0.95 * (len(others) - 1))]
    shown = "".join(f"{value:>9.1f}" for value in (first, min(others), statistics.median(others), p95))
    print(f"{name:46}{'' if target is None else f'{target:.0f}':>8}{shown}")


def _print_sizes(engine: Engine) -> None:
    with engine.connect() as conn:
        sizes = {name: int(size) for name, size in conn.execute(text(_SIZES[engine.dialect.name]))}
        count = conn.execute(select(func.count()).select_from(measurements)).scalar_one()
        sampled = conn.execute(select(func.count(measurements.c.run)).where(measurements.c.run.in_(_RUNS))).scalar_one()
        evident = conn.execute(select(func.count()).select_from(Evidence)).scalar_one()
    print(f"\n{engine.dialect.name}, SYNTHETIC data: {count:,} measurements\n{'bytes':>14}{'a measurement':>15}")
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if name not in _APART and size / count >= 0.1:
            print(f"{size:>14,}{size / count:>15.1f}  {name}")
    whole = sum(size for name, size in sizes.items() if name not in _APART)
    print(f"{whole:>14,}{whole / count:>15.1f}  all but samples and evidence; target 600")
    for name, having in zip(_APART, (sampled, evident), strict=True):
        print(f"{sizes[name]:>14,}{sizes[name] / max(1, having):>15.1f}  {name}, of measurements that have them")


_RUNS = select(Samples.run).distinct()


if __name__ == "__main__":
    main()
