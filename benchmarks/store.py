"""How fast and how large a full store is: 600 synthetic nights of 150 models under 12 configs, 1.08 M measurements.

python benchmarks/store.py [--db PATH|URL]... [--postgres] [--commits 600] [--models 150] [--configs 12] [--runs 21]

Without --db a SQLite file in a temporary folder is filled, which takes one to two minutes. A store that is there already
is taken as it is, if it is synthetic. --postgres starts a PostgreSQL server of its own as well, with default settings.
Times are wall time of the public functions in ms: the first call of a process that has just opened the store (the pages
may still be in the system's cache), then best, median and 95th percentile of the others. What else ran then is not known
here: the load of the machine is printed, and for most of them the median of what the driver alone takes in the same run for
the packed rows that the function reads ("bare"), a ratio that does not hang on the machine. The size counts what a
measurement costs in all tables and indexes, as filled night by night and never compacted; samples and evidence (which no
bound is set for) apart, per measurement of the nights that have them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Engine, delete, func, select, text

from analysis.compare.tables import compare
from benchmarks.synthetic_nights import WORD, Shape, World
from benchmarks.synthetic_store import fill
from benchmarks.throwaway_postgres import postgres
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries import cells as queries
from db.queries.filters import CellFilter
from db.schema import Evidence, Model, Run, Samples, measurements

_MS = 1000
_PACKED = "SELECT run, data FROM packed_cells WHERE"
_LIMIT_B = 250
#: Kept apart in the size: raw samples, and what lies behind a measurement.
_APART = ("samples", "evidence")


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one function; `target` is in ms, None where none was set.

    `bare` is the median of what the driver alone takes for what the function reads, without names, order and data frame.
    """

    name: str
    target: float | None
    first: float
    others: list[float]
    bare: float | None = None


def main() -> None:
    """Prints a table for each store."""
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
            places.append(stack.enter_context(postgres()))
        for place in places:
            report(place, shape, options.runs)


def report(place: str, shape: Shape, runs: int) -> None:
    """Fills a store where it is empty, and prints what it takes."""
    began = time.perf_counter()
    writer = open_store(place, write=True)
    filled = _fill_or_check(writer, shape)
    took = f"filled in {time.perf_counter() - began:.0f} s" if filled else "filled before"
    reader = open_store(place, write=False)
    print(f"\n{reader.dialect.name}, SYNTHETIC data, {took}: {_shape_of(reader)}")
    _print_sizes(reader)
    timings = [*_queries(reader, runs), _ingest(writer, shape, max(3, runs // 4))]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\nwall time in ms; load average {load} on {os.cpu_count()} cores")
    heads = f"{'target':>8}{'first':>9}{'best':>9}{'median':>9}{'p95':>9}{'median/target':>15}"
    print(f"{'':46}{heads}{'bare':>8}{'x bare':>8}")
    for timing in timings:
        _print_timing(timing)
    for engine in (reader, writer):
        engine.dispose()


def _fill_or_check(engine: Engine, shape: Shape) -> bool:
    with engine.connect() as conn:
        labels = set(conn.execute(select(Run.label).distinct()).scalars())
    if labels - {WORD}:
        sys.exit("this store holds runs that are not synthetic: name another place with --db")
    if not labels:
        fill(engine, shape)
    return not labels


def _queries(engine: Engine, runs: int) -> list[Timing]:
    base, new = (queries.resolve_side(engine, name) for name in ("latest~1", "latest"))
    first, *_ = queries.axes(engine).models
    suite, all_metrics = CellFilter(suites=(first.suite,)), ("speedup", "device_speedup", "compression", "eager_ms")
    with engine.connect() as conn:
        model = conn.execute(select(Model.id).where(Model.suite == first.suite, Model.name == first.name)).scalar_one()
    bare = {  # what the function reads; names that are our own
        "a model: model_history": f"{_PACKED} model = {model}",
        "a model, metrics packed apart": (
            "SELECT c.run, c.data, m.data FROM packed_cells c JOIN packed_metrics m"
            f" ON m.model = c.model AND m.run = c.run AND m.part = c.part WHERE c.model = {model} AND m.model = {model}"
        ),
        "a suite, its geomean: suite_history": "SELECT run, data FROM packed_sums",
    }
    asked: list[tuple[str, float | None, Callable[[], object]]] = [
        ("two commits: compare", 100, lambda: compare(engine, base, new)),
        ("a model: model_history", 10, lambda: queries.model_history(engine, first.suite, first.name)),
        (
            "a model, metrics packed apart",
            None,
            lambda: queries.model_history(engine, first.suite, first.name, metrics=all_metrics),
        ),
        (
            "a suite, its geomean: suite_history",
            20,
            lambda: queries.suite_history(engine, filters=suite, metrics=("speedup",)),
        ),
        ("a suite, all six averages", None, lambda: queries.suite_history(engine, filters=suite)),
        ("all suites, all six averages", None, lambda: queries.suite_history(engine)),
        ("a side: side_rows", None, lambda: queries.side_rows(engine, new)),
    ]
    found = [_timed(name, target, what, runs) for name, target, what in asked]
    return [_with_bare(engine, timing, bare.get(timing.name), runs) for timing in found]


def _with_bare(engine: Engine, timing: Timing, question: str | None, runs: int) -> Timing:
    return timing if question is None else replace(timing, bare=_bare(engine, question, runs))


def _bare(engine: Engine, query: str, runs: int) -> float:
    """Median seconds in which the driver gives the rows of a query as tuples."""
    found = []
    with engine.connect() as conn:
        for _ in range(max(2, runs)):
            cursor: Any = conn.connection.cursor(**({"binary": True} if engine.dialect.name == "postgresql" else {}))
            began = time.perf_counter()
            cursor.execute(query)
            cursor.fetchall()
            found.append(time.perf_counter() - began)
            cursor.close()
    return statistics.median(found)


def _timed(name: str, target: float | None, what: Callable[[], object], runs: int) -> Timing:
    found = []
    for _ in range(max(2, runs)):
        began = time.perf_counter()
        what()
        found.append(time.perf_counter() - began)
    return Timing(name, target, found[0], found[1:])


def _ingest(engine: Engine, shape: Shape, runs: int) -> Timing:
    """One night more, with samples and evidence, from its gzipped bundle; taken out again after each time."""
    found = []
    with TemporaryDirectory() as folder:
        night = World(shape).night(shape.commits)
        path = night.write(Path(folder), samples=True)
        for _ in range(runs):
            began = time.perf_counter()
            ingest_bundle(engine, path)
            found.append(time.perf_counter() - began)
            with engine.begin() as conn:
                conn.execute(delete(Run).where(Run.run_id == night.header.run_id))
        size = path.stat().st_size / 1e6
    name = f"a night: ingest_bundle ({int(night.is_measured.sum())} cells, {size:.1f} MB)"
    return Timing(name, 2000, found[0], found[1:])


def _print_timing(timing: Timing) -> None:
    median = statistics.median(timing.others) * _MS
    p95 = sorted(timing.others)[int(0.95 * (len(timing.others) - 1))] * _MS
    target = "" if timing.target is None else f"{timing.target:.0f}"
    ratio = "" if timing.target is None else f"{median / timing.target:.2f}"
    bare = "" if timing.bare is None else f"{timing.bare * _MS:>8.1f}{median / timing.bare / _MS:>8.1f}"
    best = min(timing.others) * _MS
    print(
        f"{timing.name:46}{target:>8}{timing.first * _MS:>9.1f}{best:>9.1f}{median:>9.1f}{p95:>9.1f}{ratio:>15}{bare}"
    )


def _shape_of(engine: Engine) -> str:
    with engine.connect() as conn:
        counts = [conn.execute(select(func.count()).select_from(table)).scalar_one() for table in (Run, measurements)]
    return f"{counts[0]:,} nights, {counts[1]:,} measurements"


def _print_sizes(engine: Engine) -> None:
    with engine.connect() as conn:
        rows = conn.execute(text(_SIZES[engine.dialect.name])).all()
        count = conn.execute(select(func.count()).select_from(measurements)).scalar_one()
        nights_with = conn.execute(select(Samples.run).distinct()).scalars().all()
        sampled = conn.execute(select(func.count()).where(measurements.c.run.in_(nights_with))).scalar_one()
        packed = conn.execute(select(func.sum(func.length(Samples.data)), func.sum(Samples.count))).one()
        with_evidence = conn.execute(select(func.count()).select_from(Evidence)).scalar_one()
    print(f"\n{'bytes':>14}{'a measurement':>15}")
    apart = {name: sum(size for table, _, size in rows if table == name) for name in _APART}
    for table, name, size in rows:
        if table not in _APART and size / count >= 0.1:
            print(f"{size:>14,}{size / count:>15.1f}  {name}")
    whole = sum(size for table, _, size in rows if table not in _APART)
    print(
        f"{whole:>14,}{whole / count:>15.1f}  all but samples and evidence; target {_LIMIT_B}, ratio "
        f"{whole / count / _LIMIT_B:.2f}"
    )
    if sampled:
        print(
            f"{apart['samples']:>14,}{apart['samples'] / sampled:>15.1f}  samples, a measurement that has them; "
            f"compressed {packed[0] / packed[1]:.2f} bytes a sample, 8 as they come"
        )
        print(
            f"{apart['evidence']:>14,}{apart['evidence'] / with_evidence:>15.1f}  evidence, a measurement that has it"
        )


#: Table, table or index, bytes.
_SIZES = {
    "sqlite": """
        SELECT m.tbl_name, s.name, SUM(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name
        GROUP BY m.tbl_name, s.name ORDER BY 3 DESC""",
    "postgresql": """
        SELECT COALESCE(i.relname, c.relname), c.relname,
               pg_relation_size(c.oid) + pg_relation_size(c.oid, 'vm') + pg_relation_size(c.oid, 'fsm')
               + COALESCE(pg_total_relation_size(NULLIF(c.reltoastrelid, 0)), 0)
        FROM pg_class c LEFT JOIN pg_index x ON x.indexrelid = c.oid LEFT JOIN pg_class i ON i.oid = x.indrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'i') ORDER BY 3 DESC""",
}


if __name__ == "__main__":
    main()
