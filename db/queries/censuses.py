"""The codes that censuses generated, run by run (`collector.census`)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import select

from collector.bundle import CENSUS
from collector.vocabulary import Status
from db.connecting import Source, connected
from db.queries.cell_names import CellName
from db.queries.filters import EVERYTHING, CellFilter
from db.runs import RunInfo, find_runs
from db.schema import Run, results

#: Runs that are read at most: the newest.
_RUNS = 200
_NAMES = tuple(field.name for field in fields(CellName))


@dataclass(frozen=True, slots=True)
class CensusCodes:
    """One census: its run, and the `code_id` of each cell whose code is known."""

    run: RunInfo
    codes: dict[CellName, str]

    @property
    def device_name(self) -> str:
        """The device that the code is for."""
        return str(self.run.testbed.get(CENSUS, ""))


def census_codes(source: Source, filters: CellFilter = EVERYTHING) -> list[CensusCodes]:
    """Return the newest censuses that have code under the filters, newest first."""
    with connected(source) as conn:
        runs = {run.run_id: run for run in find_runs(conn, Run.trigger == CENSUS)[:_RUNS]}
        row = results.c
        query = select(row.run_id, row.code_id, *(row[name] for name in _NAMES)).where(
            row.run_id.in_(runs),
            row.code_id.is_not(None),
            row.status == Status.NOT_CHECKED.value,
            *filters.of_results(),
        )
        codes: dict[str, dict[CellName, str]] = {}
        for run_id, code_id, *names in conn.execute(query):
            codes.setdefault(run_id, {})[CellName(*names)] = code_id
    return [CensusCodes(run, codes[run_id]) for run_id, run in runs.items() if run_id in codes]
