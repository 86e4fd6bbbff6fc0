"""The earlier nights that a night is compared with: one rule for `latest~1`, the pages' "previous" and CI."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sqlalchemy import Connection, select, union

from collector.bundle import CONFIRM
from db.connecting import Source, connected
from db.runs import NightInfo, RunInfo, list_nights
from db.schema import Planned, measurements

#: Triggers of runs that a person or a search starts. Such a run is often of a few cells, under a load or a commit of its own.
AD_HOC = frozenset({"adhoc", "again", "backfill", "bisect", "check"})
#: An earlier night is a base if it expects at least this share of the cells.
ENOUGH = 0.5


def base_nights(source: Source, runs: Sequence[RunInfo]) -> Iterator[NightInfo]:
    """Yield the earlier nights that `runs` can be compared with, those of the same branch first, each newest first.

    A base measured something before `runs`, on a testbed of `runs`, and expects there (by its plan, or by measuring it
    without one) at least half of the cells that `runs` expect. What was started ad hoc is a base of ad hoc runs only.
    """
    with connected(source) as conn:
        ours = {run.key for run in runs}
        testbeds, branches = {run.testbed_id for run in runs}, {(run.repo, run.branch) for run in runs}
        own = [run for run in runs if run.trigger != CONFIRM] or runs
        is_ad_hoc = {run.trigger for run in own} <= AD_HOC
        newest = {run.night: (run.started_at, run.night) for run in sorted(own, key=lambda run: run.started_at)}
        before = min(newest.values())
        candidates = [
            night
            for night in list_nights(conn)
            if (night.started_at, night.night) < before
            and any(run.measured and run.testbed_id in testbeds for run in night.runs)
            and (is_ad_hoc or not {run.trigger for run in night.runs} & AD_HOC)
        ]
        cells = expected_cells(conn, ours)
        for night in sorted(candidates, key=lambda night: branches.isdisjoint((r.repo, r.branch) for r in night.runs)):
            theirs = expected_cells(conn, [run.key for run in night.runs if run.testbed_id in testbeds])
            if len(cells & theirs) >= ENOUGH * len(cells):
                yield night


def previous_night(source: Source, night: str) -> str:
    """Return the newest base of a night (`base_nights`); empty where there is none, or the night is not stored."""
    with connected(source) as conn:
        runs = next((one.runs for one in list_nights(conn) if one.night == night), ())
        return next((one.night for one in base_nights(conn, runs)), "") if runs else ""


def expected_cells(conn: Connection, runs: Collection[int]) -> set[int]:
    """Return the store's numbers of the cells that some runs (by number) planned or measured."""
    planned = select(Planned.cell).where(Planned.run.in_(runs))
    return set(conn.execute(union(planned, select(measurements.c.cell).where(measurements.c.run.in_(runs)))).scalars())
