"""SIGKILL of a command while it changes a database: `ingest`, `import`; then it is given again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from collector.bundle import read_bundle
from tests.chaos import material, mutated_imports
from tests.chaos.material import Reference
from tests.chaos.processes import Child, cli, start_cli, struck, usual_duration
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import COMMIT_A, LABEL, new_store


def ingest_sqlite(setting: Setting) -> Tally:
    """Kills `ingest` into a SQLite file, half of the times into one that does not exist yet."""
    tally = Tally("kill: ingest, SQLite")
    reference = material.make_reference(setting.folder)
    path = setting.folder / "killed.db"

    def prepare(number: int) -> str:
        material.remove_store(path)
        if number % 2:
            new_store(path).dispose()
        return str(path)

    _kill_ingests(setting, tally, reference, prepare, setting.amount(50, 3))
    return tally


def ingest_postgres(setting: Setting) -> Tally:
    """Kills `ingest` into a PostgreSQL database; the server stays."""
    tally = Tally("kill: ingest, PostgreSQL")
    if setting.postgres is None:
        tally.skipped = setting.no_postgres
        return tally
    make = setting.postgres
    reference = material.make_reference(setting.folder)
    _kill_ingests(setting, tally, reference, lambda _: make(), setting.amount(30, 2))
    return tally


def _kill_ingests(
    setting: Setting, tally: Tally, reference: Reference, prepare: Callable[[int], str], kills: int
) -> None:
    def start(place: str) -> Child:
        return start_cli(setting.folder, "ingest", *reference.words, "--db", place)

    numbers = iter(range(10**6))
    duration = usual_duration(lambda: start(prepare(next(numbers))))
    tally.notes.append(f"an undisturbed ingest of {len(reference.bundles)} bundles takes {duration * 1000:.0f} ms")
    while tally.tries < kills:
        place = prepare(next(numbers))
        child = start(place)
        killed = child.kill_at(setting.rng.uniform(0, duration * 1.05))
        tally.tries += killed
        tally.hits[struck(child, killed)] += 1
        material.check_after_kill(tally, place, reference, _acknowledged(child, reference))
        child.forget()
        again = cli(setting.folder, "ingest", *reference.words, "--db", place)
        if again.code != 0:
            tally.trace(again.err) if again.is_unforeseen else tally.err(f"ingest after a kill: {again.err}")
            continue
        setting.meddle_store(place)
        material.check_answers(tally, place, reference, "after a kill and another ingest")


def _acknowledged(child: Child, reference: Reference) -> set[str]:
    """The runs of which the command had printed that they are stored; a line cut by the kill counts as none."""
    lines = child.printed().split("\n")[:-1]
    return {run for run in reference.by_run for line in lines if f": run {run}: " in line}


def imports(setting: Setting) -> Tally:
    """Kills `import` of a table and of records: its bundles are whole or absent, and so are their runs."""
    tally = Tally("kill: import")
    files = _files_to_import(setting.folder)
    path, runs = setting.folder / "imported.db", setting.folder / "runs"

    def start() -> Child:
        material.remove_store(path)
        shutil.rmtree(runs, ignore_errors=True)
        return start_cli(setting.folder, *words)

    words = ("import", *files, *_TOLD, "--runs", str(runs), "--db", str(path))
    duration = usual_duration(start)
    bundles = sorted(runs.glob("*.jsonl.gz"))
    reference = material.make_reference(setting.folder, lambda _: bundles)
    tally.notes.append(f"an undisturbed import makes {len(bundles)} runs and takes {duration * 1000:.0f} ms")
    while tally.tries < setting.amount(30, 2):
        child = start()
        killed = child.kill_at(setting.rng.uniform(0, duration * 1.05))
        tally.tries += killed
        tally.hits[struck(child, killed)] += 1
        child.forget()
        material.check_after_kill(tally, str(path), reference, set())
        for bundle in runs.glob("*.jsonl.gz"):
            if read_bundle(bundle).damage:
                tally.err(f"{bundle.name} is cut")
        again = cli(setting.folder, *words)
        if again.code != 0:
            tally.trace(again.err) if again.is_unforeseen else tally.err(f"import after a kill: {again.err}")
            continue
        if sorted(runs.glob("*.jsonl.gz")) != bundles:
            tally.err(f"other bundles than undisturbed: {sorted(path.name for path in runs.iterdir())}")
        setting.meddle_store(str(path))
        material.check_answers(tally, str(path), reference, "after a killed import and another")
    return tally


_TOLD = ("--branch", "main", "--commit", COMMIT_A, "--date", "2026-08-01T02:00:00+00:00", "--label", LABEL)


def _files_to_import(folder: Path) -> list[str]:
    content = {
        f"{mutated_imports.STEM}_performance.csv": mutated_imports.performance_csv(),
        f"{mutated_imports.STEM}_accuracy.csv": mutated_imports.accuracy_csv(),
        "records.json": mutated_imports.json_lines(),
    }
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return [str(folder / name) for name in content]
