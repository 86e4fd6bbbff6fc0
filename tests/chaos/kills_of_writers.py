"""SIGKILL of whoever writes a bundle, of the one who takes it up again too: what it had said is there, and once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from collector.bundle import BundleError, BundleWriter, RunHeader, read_bundle
from collector.bundle_file import both_paths, read_lines
from collector.vocabulary import Cell
from db.ingest import ingest_bundle
from tests.chaos import material
from tests.chaos.material import Reference
from tests.chaos.processes import AFTER_THE_END, Child, usual_duration
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally
from tests.factories import at, header, new_store, passing

_MODELS = tuple(f"model{number}" for number in range(4))
_PLANNED, _CLOSED, _RESUMED = "planned", "closed", "resumed"
_MOST_KILLS = 3


def run(setting: Setting) -> Tally:
    """Kills writers until enough have died, each run up to three times; then the run is finished and stored."""
    tally = Tally("kill: bundle writer")
    kills = setting.amount(60, 4)
    cells = material.cells_of(_MODELS)
    spare = iter(range(10**6))
    duration = usual_duration(lambda: _start(setting.folder, header(f"spare{next(spare)}"), cells))
    tally.notes.append(f"an undisturbed writer takes {duration * 1000:.0f} ms for {len(cells)} measurements")
    number = 0
    while tally.tries < kills:
        head, number = header(f"w{number}"), number + 1
        said = _disturb(setting, tally, head, cells, duration, kills)
        _finish(setting, tally, head, cells, said)
    return tally


def _disturb(
    setting: Setting, tally: Tally, head: RunHeader, cells: list[Cell], duration: float, most: int
) -> Counter[str]:
    """Kills the writer of one run up to three times; what it had said by then."""
    said: Counter[str] = Counter()
    for attempt in range(setting.rng.randint(1, _MOST_KILLS)):
        if tally.tries == most:
            break
        child = _start(setting.folder, head, cells)
        killed = child.kill_at(setting.rng.uniform(0, duration * 1.05))
        marks = child.marks()
        said.update(marks)
        tally.tries += killed
        tally.hits[_place(marks, killed, bool(attempt))] += 1
        _check(setting, tally, head, cells, said)
        child.forget()
        if _CLOSED in said:
            break
    return said


def _place(marks: list[str], killed: bool, is_resumed: bool) -> str:
    if not killed:
        return AFTER_THE_END
    kind = "resumed" if is_resumed else "new"
    if not marks:
        return f"{kind}: before the first write"
    return f"{kind}: while closing" if marks[-1] in ("closing", _CLOSED) else f"{kind}: while writing"


def _start(folder: Path, head: RunHeader, cells: list[Cell]) -> Child:
    return Child(folder, lambda child: write(child, folder, head, cells))


def write(child: Child, folder: Path, head: RunHeader, cells: list[Cell]) -> int:
    """In the child: begins the run or goes on with it, and says what is done only once the writer has returned."""
    path = folder / f"{head.run_id}.jsonl"
    done: set[str] = set()
    if any(place.exists() for place in both_paths(path)):
        writer, contents = BundleWriter.reopen(path, at(300))
        done = set(contents.latest())
        child.mark(_RESUMED)
    else:
        writer = BundleWriter(folder, head, cells)
        child.mark(_PLANNED)
    for cell in cells:
        if cell.cell_id not in done:
            item = passing(cell)
            writer.environment(str(item.environment_id), {"gpu": "Synthetic GPU"})
            writer.program(str(item.program_id), {"backend": "inductor"})
            writer.measurement(item)
            child.mark(cell.cell_id)
    child.mark("closing")
    writer.close(at(600))
    child.mark(_CLOSED)
    return 0


def _check(setting: Setting, tally: Tally, head: RunHeader, cells: list[Cell], said: Counter[str]) -> None:
    """What the writer had acknowledged is in the file once; the plan is whole or the file is not there."""
    plain, packed = both_paths(setting.folder / f"{head.run_id}.jsonl")
    there = next((path for path in (plain, packed) if path.exists()), None)
    # Of a closed run all was promised, also the line that was written and not yet told when a kill came.
    promised = {cell.cell_id for cell in cells if said[_CLOSED] or cell.cell_id in said}
    if there is None:
        tally.lose(len(promised) + said[_PLANNED], f"{head.run_id}: no file")
        return
    if len(promised) == len(cells):  # the last line of an earlier state may be one that nobody had been told of
        setting.meddle_bundle(there)
    try:
        contents = read_bundle(there)
    except BundleError as error:
        tally.lose(len(promised), str(error))
        return
    found = Counter(item.cell.cell_id for item in contents.measurements)
    tally.lose(len(promised - set(found)), f"measurements of {head.run_id}")
    tally.double(sum(count - 1 for count in found.values()), f"measurements of {head.run_id}")
    tally.lose(len(cells) - len(contents.planned), f"planned cells of {head.run_id}")
    if packed.exists() and (_damage(packed) or (said[_CLOSED] and contents.finished_at is None)):
        tally.err(f"{packed.name} is closed and not whole")


def _damage(path: Path) -> list[str]:
    found: list[str] = []
    for _ in read_lines(path, found):
        pass
    return found


def _finish(setting: Setting, tally: Tally, head: RunHeader, cells: list[Cell], said: Counter[str]) -> None:
    """Takes the run up undisturbed, and compares what a store makes of it with one of a run that nobody disturbed."""
    if _CLOSED not in said:
        child = _start(setting.folder, head, cells)
        done = child.wait()
        if done.code != 0:
            tally.trace(done.err)
            return
        said.update(child.marks())
        child.forget()
    _check(setting, tally, head, cells, said)
    packed = both_paths(setting.folder / f"{head.run_id}.jsonl")[1]
    if read_bundle(packed).damage:
        tally.err(f"{packed.name} is damaged after its run was finished")
    store = setting.folder / "writers.db"
    material.remove_store(store)
    engine = new_store(store)
    ingest_bundle(engine, packed)
    engine.dispose()
    reference = _undisturbed(setting, head, cells, read_bundle(packed).attempt)
    material.check_answers(tally, str(store), reference, "of a run that was killed")
    packed.unlink()


def _undisturbed(setting: Setting, head: RunHeader, cells: list[Cell], attempts: int) -> Reference:
    """The same run, which nobody killed and which was taken up as often."""
    folder = setting.folder / "undisturbed"
    folder.mkdir(exist_ok=True)
    path = folder / f"{head.run_id}.jsonl"
    for attempt in range(1, attempts):
        writer = BundleWriter(folder, head, cells) if attempt == 1 else BundleWriter.reopen(path, at(300))[0]
        writer.abandon()
    child = _start(folder, head, cells)
    assert child.wait().code == 0
    child.forget()
    return material.make_reference(folder, lambda _: [folder / f"{head.run_id}.jsonl.gz"])
