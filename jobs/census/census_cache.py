"""Generated code, kept by the content of what it was generated from, so that a commit that changes none of it costs nothing.

A census process reports which files of torch it imported. Code is kept under what these files say, comments and layout left
out, beside everything else that it depends on: the wheel, the other libraries, the device, the settings that decide about
code, this program's own collector, the cell, a user's own model and the answers to the cell's questions. A file that was not
imported cannot become important by itself: another one has to import it.
"""

from __future__ import annotations

import ast
import fcntl
import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import collector
from collector.bundle import CENSUS
from collector.code import NAME_OF_SOURCE
from collector.machine.environment import PACKAGES, cpu_name, environment_id
from collector.output_file import write_output
from collector.own_models import described
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Cell, Status, short_hash
from jobs.builds.overlay import Wheel
from jobs.census.census_pool import Answers, CensusPlace, CensusPool

#: What is kept of a cell: what its code depends on is known. A cell that died may do better next time.
_KEPT = (Status.NOT_CHECKED, Status.UNAVAILABLE, Status.FAIL_TO_COMPILE, Status.FAIL_TO_RUN)


class CensusCache:
    """The kept outcomes for one place. `is_used` is False where nothing can be kept: torch is a working tree."""

    def __init__(self, place: CensusPlace, settings: Settings) -> None:
        self._wheel, self._place = Wheel.installed(), place
        self.is_used = not (self._wheel.folder / ".git").exists()
        libraries = {name: _version(name) for name in PACKAGES}
        host = [cpu_name(), place.threads]
        own = {"flags": str(settings.flags), "optimizer": settings.optimizer}
        base = [place.device_name, host, str(self._wheel), libraries, own, _collector_digest()]
        self._settings, self._models = settings, dict[tuple[str, str], dict[str, Any]]()
        self._folder = place.cache.expanduser() / "generated" / short_hash(base)
        self._imported: set[str] | None = None
        self._digest = ""

    def find(self, cell: Cell, answers: Answers) -> Outcome | None:
        """Return the outcome of a cell if it was generated from the same files before."""
        if not self.is_used or not self._sources():
            return None
        with suppress(OSError, ValueError, KeyError, TypeError):
            packed = self._path(cell, answers).read_bytes()
            outcome = Outcome.from_json(json.loads(gzip.decompress(packed)))
            self._rename_source(outcome)
            outcome.measurement.details[CENSUS]["cached"] = True
            return outcome
        return None

    def keep(self, outcome: Outcome, answers: Answers, imported: Iterable[str]) -> None:
        """Keep an outcome; `imported` are all files of torch that were imported for any cell so far."""
        if not self.is_used or outcome.measurement.status not in _KEPT:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._add_imported(set(imported))
        packed = gzip.compress(json.dumps(outcome.to_json()).encode(), 6)
        write_output(self._path(outcome.measurement.cell, answers), packed)

    def _add_imported(self, imported: set[str]) -> None:
        """Add to the list of imported files, to which the census of another commit may add meanwhile."""
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept, self._imported = self._imported, None
            known = self._read_imported() or set()
            self._imported = known | imported
            if imported - known:
                write_output(self._folder / "imported", "\n".join(sorted(self._imported)))
        if self._imported != kept:
            self._digest = ""

    def _path(self, cell: Cell, answers: Answers) -> Path:
        given = {key: answer for key, (answer, _) in answers.items()}
        name = short_hash([self._sources(), cell.to_json(), self._model(cell), given], 20)
        return self._folder / f"{name}.json.gz"

    def _model(self, cell: Cell) -> dict[str, Any]:
        """Return what defines a user's own model; empty for another one, which this program defines."""
        key = cell.suite, cell.model
        if key not in self._models:
            self._models[key] = described(*key, self._settings.own_models)
        return self._models[key]

    def _sources(self) -> str:
        """Return a digest of the imported files as the place has them; empty where none is known yet."""
        if not self._digest and (imported := self._read_imported()):
            own = {name: meaning for name in sorted(imported) if (meaning := self._own_meaning(name))}
            self._digest = short_hash(own, 20)
        return self._digest

    def _own_meaning(self, name: str) -> str:
        """Return what a file says; empty where the wheel's says the same."""
        if not self._place.overlay:
            return ""
        own, of_wheel = Path(self._place.overlay, name), self._wheel.folder / name
        if os.path.realpath(own) == os.path.realpath(of_wheel):
            return ""
        meaning = _meaning(own)
        return "" if meaning == _meaning(of_wheel) else meaning

    def _read_imported(self) -> set[str] | None:
        if self._imported is None:
            with suppress(OSError):
                self._imported = set((self._folder / "imported").read_text().split("\n"))
        return self._imported

    def _rename_source(self, outcome: Outcome) -> None:
        """Name the source of this place in an outcome that was generated from another one with the same files."""
        data = {key: value for key, value in outcome.environment.items() if key != NAME_OF_SOURCE}
        outcome.environment = data | ({NAME_OF_SOURCE: self._place.source} if self._place.source else {})
        outcome.measurement.environment_id = environment_id(outcome.environment)


class CachedPool:
    """The processes of a census at one place, and what was generated there before; use it as a context."""

    def __init__(self, place: CensusPlace, settings: Settings) -> None:
        self._pool, self._cache = CensusPool(place, settings), CensusCache(place, settings)

    def __enter__(self) -> CachedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    @property
    def keeps(self) -> bool:
        """Whether what is generated is kept: not where torch is a working tree."""
        return self._cache.is_used

    def find(self, cells: Iterable[Cell], answers: Mapping[str, Answers]) -> Iterator[Outcome]:
        """Yield the outcomes of the cells that were generated before from the same files."""
        found = (self._cache.find(cell, answers.get(cell.cell_id, {})) for cell in cells)
        return (outcome for outcome in found if outcome)

    def generate(self, cells: Sequence[Cell], answers: Mapping[str, Answers]) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it comes, and keep it. Raises what `CensusPool.generate` raises."""
        for outcome in self._pool.generate(cells, answers) if cells else ():
            self._cache.keep(outcome, answers.get(outcome.measurement.cell.cell_id, {}), self._pool.imported)
            yield outcome


def _meaning(path: Path) -> str:
    """Return a digest that is equal for Python sources that differ in comments and layout only."""
    try:
        content = path.read_bytes()
    except OSError:
        return "missing"
    if path.suffix == ".py":
        with suppress(SyntaxError, ValueError):
            content = ast.dump(ast.parse(content)).encode()
    return hashlib.sha256(content).hexdigest()


@cache
def _collector_digest() -> str:
    """Return a digest of this program's collector: its models and its census decide about the code, too."""
    folder = Path(str(collector.__file__)).parent
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".c"))
    return short_hash({str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files})


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
