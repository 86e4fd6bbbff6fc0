"""What every fault is given: a folder, its own random numbers, whether to be short, and perhaps a saboteur."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from db.engine import open_store
from tests.chaos import material

#: What a saboteur can do, so that a test can see the counters move.
SABOTAGES = ("drop-a-line", "double-a-line", "drop-a-row", "double-a-row")
_ON_BUNDLES = {"drop-a-line": material.drop_line, "double-a-line": material.double_line}
_ON_STORES = {"drop-a-row": material.drop_row, "double-a-row": material.double_row}


@dataclass(slots=True)
class Setting:
    """The surroundings of one fault. `postgres` makes a new, migrated database and returns its URL, where there is one."""

    folder: Path
    rng: random.Random
    is_short: bool = False
    sabotage: str = ""
    postgres: Callable[[], str] | None = None
    no_postgres: str = "no PostgreSQL was started"

    def amount(self, full: int, short: int) -> int:
        """How often to try; once is enough to see a saboteur."""
        if self.is_short and self.sabotage and full < 1000:
            return 1
        return short if self.is_short else full

    def meddle_bundle(self, path: Path) -> None:
        """Lets the saboteur at a bundle, once."""
        if act := _ON_BUNDLES.get(self.sabotage):
            self.sabotage = ""
            act(path)

    def meddle_store(self, place: str) -> None:
        """Lets the saboteur at a store, once."""
        if act := _ON_STORES.get(self.sabotage):
            self.sabotage = ""
            engine = open_store(place, write=True)
            act(engine)
            engine.dispose()
