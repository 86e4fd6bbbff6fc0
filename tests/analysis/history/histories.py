"""Synthetic histories for tests: a real git repository, and nights that measured some of its commits."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from sqlalchemy import Engine

from analysis.history.alerts import survey
from collector.vocabulary import Config, Status, short_hash
from db.engine import open_store
from jobs.cli import app
from tests.analysis.compare.judging import put_run
from tests.factories import DEFAULT, ENVIRONMENT, TESTBED, cell, failing, new_store, passing
from tests.jobs.repositories import RepositoryWriter

MODELS = ("bert", "gpt2", "t5", "vit")
LEVELS = {"eager_ms": 4.0, "compiled_ms": 2.0, "eager_kernel_ms": 3.0, "compiled_kernel_ms": 1.5}
LEVELS |= {"compile_cold_s": 20.0, "compiled_peak_bytes": 1e9}
#: Night 14 is place 42; 43 is reverted by 44, and 45 is what night 15 measured.
TITLES = {
    41: "[inductor] Fuse more (#4242)",
    43: "Bad idea (#77)",
    44: 'Revert "Bad idea (#77)"\n\nThis reverts commit {reverted}.',
}
#: Commits that land between two nights, the measured one included.
A_NIGHT = 3
Factors = Callable[[str, str], float]


class History:
    """A store in `folder`, to which nights are added; night n measures the commit of place n * A_NIGHT."""

    def __init__(self, folder: Path, nights: int = 40, titles: Mapping[int, str] | None = None) -> None:
        self.folder = folder
        self.location = str(folder / "store.db")
        self.store: Engine = new_store(folder / "store.db")
        with RepositoryWriter(folder / "clone") as writer:
            self.shas: list[str] = []
            for place in range(nights * A_NIGHT):
                title = (titles or {}).get(place, f"Synthetic commit {place} (#{1000 + place})")
                message = title.replace("{reverted}", self.shas[place - 1]) if self.shas else title
                self.shas.append(writer.commit(message, at=1_790_000_000 + 3600 * place))

    def import_commits(self) -> None:
        """Through the command line, as a user would."""
        words = ["commits", "import", "--git", str(self.folder / "clone"), "--db", str(self.location)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output

    def commit(self, number: int) -> str:
        """What night `number` measured."""
        return self.shas[number * A_NIGHT]

    def night(
        self,
        number: int,
        factors: Factors | None = None,
        *,
        fails: tuple[str, ...] = (),
        missing: tuple[str, ...] = (),
        configs: tuple[Config, ...] = (DEFAULT,),
        sd: float = 0.003,
        environment: Mapping[str, object] | None = None,
        run_id: str = "",
        minutes: float | None = None,
        **changes: object,
    ) -> str:
        """Stores a night; `factors` multiply the levels of a model's metrics. Returns its run_id."""
        minutes = 1440 * number if minutes is None else minutes
        rng = np.random.default_rng([number, len(run_id)])
        run_id = run_id or f"n{number:03}"
        made, planned = [], []
        of_night = {**ENVIRONMENT, "torch_git": self.commit(number), **(environment or {})}
        for model in MODELS:
            for config in configs:
                which = cell(model, config)
                noise = {name: math.exp(rng.normal(0, sd)) for name in LEVELS}
                planned.append(which)
                if model in missing:
                    continue
                ids = {"environment_id": short_hash(of_night)}
                if model in fails:
                    made.append(failing(which, Status.FAIL_TO_RUN, minutes=minutes + 1, **ids))
                    continue
                noise |= {"compiled_peak_bytes": 1.0}
                metrics = {name: level * noise[name] for name, level in LEVELS.items()} | {"graph_breaks": 0.0}
                metrics |= {name: metrics[name] * factors(model, name) for name in LEVELS if factors}
                made.append(passing(which, minutes=minutes + 1, samples={}, metrics=metrics, **ids))
        head = {"minutes": minutes, "commit": self.commit(number), "testbed": TESTBED, **changes}
        put_run(self.store, self.folder, run_id, made, planned=planned, environment=of_night, **head)
        return run_id

    def nights(self, first: int, last: int, factors: Factors | None = None, **more: object) -> None:
        """Nights `first` up to but not `last`."""
        for number in range(first, last):
            self.night(number, factors, **more)


def copied(history: History, folder: Path) -> History:
    """Return a copy in another folder, without its clone."""
    history.store.dispose()
    for path in history.folder.glob("store.db*"):  # the write-ahead log, too
        shutil.copy(path, folder)
    found = copy(history)
    found.folder, found.location = folder, str(folder / "store.db")
    found.store = open_store(found.location, write=True)
    return found


def slower(factor: float, models: tuple[str, ...] = ("bert",), metrics: tuple[str, ...] = ("compiled_ms",)) -> Factors:
    """Factors that make some models slower by some metrics."""
    return lambda model, name: factor if model in models and name in metrics else 1.0


def find_alerts(store, **options):
    """The alerts of a store."""
    return list(survey(store, **options).alerts)
