"""A SQLite file that lost pages or its end: noticed where SQLite can, one line with advice, and a rebuild from the bundles.

SQLite keeps no checksum of a page: a byte that changed within a value is read as it is. How often a damage was noticed
by a command, and how often by the integrity check alone or not at all, is counted, not judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.chaos import material
from tests.chaos.processes import Done, cli
from tests.chaos.setting import Setting
from tests.chaos.tally import Tally

_READING: tuple[tuple[str, ...], ...] = (
    ("runs", "--json"),
    ("compare", "latest~1", "latest", "--json"),
    ("compare", "r0", "r1"),
    ("db", "info"),
)


def _random_page(data: bytearray, size: int, rng: Random) -> None:
    page = rng.randrange(len(data) // size)
    data[page * size : (page + 1) * size] = rng.randbytes(size)


def _zero_page(data: bytearray, size: int, rng: Random) -> None:
    page = rng.randrange(len(data) // size)
    data[page * size : (page + 1) * size] = bytes(size)


def _few_bytes(data: bytearray, size: int, rng: Random) -> None:
    start = rng.randrange(len(data) - 16)
    data[start : start + 16] = rng.randbytes(16)


def _one_bit(data: bytearray, size: int, rng: Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _page_head(data: bytearray, size: int, rng: Random) -> None:
    page = rng.randrange(len(data) // size)
    data[page * size : page * size + 12] = rng.randbytes(12)


def _two_pages_swapped(data: bytearray, size: int, rng: Random) -> None:
    one, two = (rng.randrange(1, len(data) // size) * size for _ in range(2))
    data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]


def _cut(data: bytearray, size: int, rng: Random) -> None:
    del data[rng.randrange(len(data)) :]


_DAMAGES: dict[str, Callable[[bytearray, int, Random], None]] = {
    "page of noise": _random_page,
    "page of zeros": _zero_page,
    "page head": _page_head,
    "16 bytes": _few_bytes,
    "one bit": _one_bit,
    "two pages swapped": _two_pages_swapped,
    "cut": _cut,
}


def run(setting: Setting) -> Tally:
    """Damages copies of a store, gives commands on them, and rebuilds the store from its bundles."""
    tally = Tally("corrupt SQLite file")
    reference = material.make_reference(setting.folder)
    sound = (setting.folder / "reference.db").read_bytes()
    size = int.from_bytes(sound[16:18], "big")
    path = setting.folder / "corrupt.db"
    told = {words: _ask(setting, path, sound, words).out for words in _READING}
    for number in range(setting.amount(70, 7)):
        name = list(_DAMAGES)[number % len(_DAMAGES)]
        data = bytearray(sound)
        _DAMAGES[name](data, size, setting.rng)
        _try(setting, tally, path, bytes(data), told, name)
        _ingest_into(setting, tally, path, bytes(data), reference)
    _rebuild(setting, tally, path, reference)
    return tally


def _ask(setting: Setting, path: Path, data: bytes, words: tuple[str, ...]) -> Done:
    material.remove_store(path)
    path.write_bytes(data)
    return cli(setting.folder, *words, "--db", str(path))


def _try(setting: Setting, tally: Tally, path: Path, data: bytes, told: dict[tuple[str, ...], str], name: str) -> None:
    answers = [(words, _ask(setting, path, data, words)) for words in _READING]
    material.remove_store(path)
    path.write_bytes(data)
    is_noticed = material.integrity(path) != ["ok"]
    tally.tries += 1
    for words, done in answers:
        _judge(tally, done, f"{' '.join(words)} after {name}")
    if any(done.code for _, done in answers):
        outcome = "noticed by a command"
    elif all(_same(done.out, told[words]) for words, done in answers):
        outcome = "no answer differs" + (", noticed by the integrity check" if is_noticed else ", not noticed")
    else:
        outcome = "another answer" + (", noticed by the integrity check" if is_noticed else ", not noticed")
    tally.hits[outcome] += 1


def _same(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return one == other


def _judge(tally: Tally, done: Done, what: str) -> None:
    if done.is_unforeseen:
        tally.trace(f"{what}: exit code {done.code}: {done.err}")
    elif done.code not in (0, 2, 3, 4) or not done.is_one_line:
        tally.err(f"{what}: exit code {done.code}: {done.err}")


def _ingest_into(setting: Setting, tally: Tally, path: Path, data: bytes, reference: material.Reference) -> None:
    """A writer on the damaged file: a result or one line, as for a reader."""
    material.remove_store(path)
    path.write_bytes(data)
    done = cli(setting.folder, "ingest", *reference.words, "--db", str(path))
    _judge(tally, done, "ingest")
    tally.hits["(ingest refused)" if done.code else "(ingest went through)"] += 1


def _rebuild(setting: Setting, tally: Tally, path: Path, reference: material.Reference) -> None:
    """What the advice says: move the file away and ingest the bundles again."""
    path.rename(path.with_suffix(".away"))
    material.remove_store(path)
    done = cli(setting.folder, "ingest", *reference.words, "--db", str(path))
    if done.code:
        tally.err(f"the rebuild: {done.err}")
        return
    setting.meddle_store(str(path))
    material.check_answers(tally, str(path), reference, "rebuilt from the bundles")
