"""Eight processes ingest overlapping bundles into one database while a ninth reads: no half run, nobody turned away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine

from collector.bundle import read_bundle
from db.engine import open_store
from db.errors import StoreError
from db.runs import list_runs
from tests.chaos import material
from tests.chaos.material import Key, Reference
from tests.chaos.processes import Child, Done, start_cli
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import header, new_store, passing, write_bundle

_WRITERS, _RUNS = 8, 6
#: What a reader may meet before anything was stored.
_NOT_YET = ("no database here yet", "is empty")


def sqlite(setting: Setting) -> Tally:
    """Into one file; in every other round the file does not exist yet, and eight processes want to create it."""
    tally = Tally("8 writers: SQLite")
    path = setting.folder / "crowded.db"

    def prepare(number: int) -> str:
        material.remove_store(path)
        if number % 2:
            new_store(path).dispose()
        return str(path)

    _rounds(setting, tally, prepare, setting.amount(6, 1))
    return tally


def postgres(setting: Setting) -> Tally:
    """Into one PostgreSQL database."""
    tally = Tally("8 writers: PostgreSQL")
    if setting.postgres is None:
        tally.skipped = setting.no_postgres
        return tally
    make = setting.postgres
    _rounds(setting, tally, lambda _: make(), setting.amount(4, 1))
    return tally


def _rounds(setting: Setting, tally: Tally, prepare: Callable[[int], str], rounds: int) -> None:
    reference = material.make_reference(setting.folder, _nights)
    early = _half_done(setting.folder, reference.bundles)
    states = _states(reference, early)
    for number in range(rounds):
        place = prepare(number)
        done, reader = _crowd(setting, place, [*reference.bundles, *early], states)
        tally.tries += len(done)
        for end in done:
            if end.is_unforeseen:
                tally.trace(end.err)
            elif end.code != 0:
                tally.err(f"a writer was turned away: {end.err}")
        _judge_reader(tally, reader)
        setting.meddle_store(place)
        material.check_answers(tally, place, reference, "after a crowd")


def _nights(folder: Path) -> list[Path]:
    cells = material.cells_of()
    return [
        write_bundle(folder, header(f"c{run}", minutes=60 * run), [passing(cell, seed=run) for cell in cells])
        for run in range(_RUNS)
    ]


def _half_done(folder: Path, bundles: list[Path]) -> list[Path]:
    """The state of every run in which half of its cells were measured, as somebody may have copied it meanwhile."""
    (folder / "early").mkdir()
    found = []
    for bundle in bundles:
        contents = read_bundle(bundle)
        half = contents.measurements[: len(contents.measurements) // 2]
        found.append(write_bundle(folder / "early", contents.header, half, planned=contents.planned, closed=False))
    return found


def _states(reference: Reference, early: list[Path]) -> dict[str, list[set[Key]]]:
    """The states of each run that a reader may see."""
    halves = {key[0]: material.keys_of([path]) for path in early for key in material.keys_of([path])}
    return {run: [halves[run], whole] for run, whole in reference.by_run.items()}


def _crowd(
    setting: Setting, place: str, bundles: list[Path], states: dict[str, list[set[Key]]]
) -> tuple[list[Done], list[str]]:
    stop = setting.folder / "stop"
    stop.unlink(missing_ok=True)
    reader = Child(setting.folder, lambda child: _read(child, place, stop, states))
    writers = []
    for number in range(_WRITERS):
        mine = list(bundles) if number < 2 else setting.rng.sample(bundles, len(bundles) * 2 // 3)
        setting.rng.shuffle(mine)
        writers.append(start_cli(setting.folder, "ingest", *map(str, mine), "--db", place))
    done = [writer.wait() for writer in writers]
    stop.touch()
    end = reader.wait()
    marks = reader.marks()
    if end.code != 0:
        marks.append(f"traceback {end.err}")
    for child in (reader, *writers):
        child.forget()
    return done, marks


def _read(child: Child, place: str, stop: Path, states: dict[str, list[set[Key]]]) -> int:
    """In the reader: looks again and again, marks what it sees."""
    while not stop.exists():
        try:
            engine = open_store(place, write=False)
            try:
                for _ in range(5):
                    child.mark(_look(engine, states))
            finally:
                engine.dispose()
        except StoreError as error:
            early = any(words in str(error) for words in _NOT_YET)
            child.mark("nothing yet" if early else f"error {error}")
    return 0


def _look(engine: Engine, states: dict[str, list[set[Key]]]) -> str:
    found: dict[str, set[Key]] = {}
    for key in material.stored_keys(engine):
        found.setdefault(key[0], set()).add(key)
    half = [run for run, keys in found.items() if keys not in states[run]]
    counts = {run.run_id: run.measured for run in list_runs(engine)}
    # Read in a later transaction: a run may have grown meanwhile, but no count may fit none of its states.
    half += [run for run, count in counts.items() if count not in map(len, states[run])]
    return f"half {half}" if half else "whole"


def _judge_reader(tally: Tally, marks: list[str]) -> None:
    for mark in marks:
        kind, _, rest = mark.partition(" ")
        if kind in ("half", "error"):
            tally.err(f"the reader saw {mark}")
        elif kind == "traceback":
            tally.trace(rest)
    seen = Counter(mark for mark in marks if mark in ("whole", "nothing yet"))
    tally.hits.update({f"reads: {name}": count for name, count in seen.items()})
