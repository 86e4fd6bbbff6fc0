"""Every fault by its name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos import (
    clock,
    corrupt,
    crowd,
    disk_full,
    kills_of_commands,
    kills_of_writers,
    locked,
    mutated_bundles,
    mutated_imports,
    names,
)
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally

FAULTS: dict[str, Callable[[Setting], Tally]] = {
    "kill-writer": kills_of_writers.run,
    "kill-ingest": kills_of_commands.ingest_sqlite,
    "kill-ingest-postgres": kills_of_commands.ingest_postgres,
    "kill-import": kills_of_commands.imports,
    "crowd": crowd.sqlite,
    "crowd-postgres": crowd.postgres,
    "full-database": disk_full.database,
    "full-log": disk_full.log,
    "full-run-folder": disk_full.run_folder,
    "locked": locked.run,
    "corrupt": corrupt.run,
    "clock": clock.run,
    "mutated-bundle": mutated_bundles.plain,
    "mutated-gzip": mutated_bundles.packed,
    "mutated-csv": mutated_imports.tables,
    "mutated-json": mutated_imports.records,
    "names": names.run,
}

#: Faults that neither kill nor fill: a disk in memory is quicker, and the same to them.
ANY_DISK = ("clock", "mutated-bundle", "mutated-gzip", "mutated-csv", "mutated-json", "names", "corrupt")
