"""Whatever states, attempts and pieces of a run are stored, in whatever order and how often: one answer."""

import gzip
import random

import pytest

from collector.bundle import BundleWriter
from collector.vocabulary import Status
from db.ingest import ingest_bundle
from db.maintenance.consistency import check_store
from db.queries.cells import revision
from tests.db.answers import answers
from tests.factories import CONFIGS, at, cell, failing, header, matrix, new_store, passing, write_bundle

CELLS = matrix(["bert", "gpt2"], CONFIGS[:2])


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """What may come to us of one run, newest last: a bundle as it was resumed, cut, other attempts, a shard."""
    folder = tmp_path_factory.mktemp("pieces")
    found = []

    def keep(data):
        path = folder / f"{len(found)}" / "r1.jsonl"
        path.parent.mkdir()
        path.write_bytes(data)
        found.append(path)

    first = [failing(CELLS[0], Status.CRASHED, minutes=1), passing(CELLS[1], minutes=2)]
    path = write_bundle(folder / "run", header("r1"), first, planned=CELLS)
    closed = gzip.decompress(path.read_bytes())
    keep(closed[: len(closed) * 2 // 3])
    keep(closed)
    writer, _ = BundleWriter.reopen(path, at(700))
    writer.measurement(passing(CELLS[2], minutes=701))
    keep(writer.path.read_bytes())
    writer.measurement(passing(CELLS[0], minutes=690))  # a clock that went back
    whole = writer.path.read_bytes()
    keep(whole[: len(whole) - 100])
    keep(gzip.decompress(writer.close(at(710)).read_bytes()))
    # Two more attempts as files of their own, and a shard that measured another cell beside them.
    for attempt, seed in ((2, 5), (3, 6)):
        place, made = folder / f"attempt{attempt}", [passing(CELLS[1], minutes=5, seed=seed)]
        keep(gzip.decompress(write_bundle(place, header("r1", attempt=attempt), made, planned=CELLS).read_bytes()))
    shard = write_bundle(folder / "shard", header("r1"), [passing(cell("extra")), passing(CELLS[3], replicate=1)])
    keep(gzip.decompress(shard.read_bytes()))
    return found


def stored(engine, paths):
    for path in paths:
        ingest_bundle(engine, path)
    number = revision(engine)
    assert not ingest_bundle(engine, paths[-1]).changed
    assert revision(engine) == number
    assert check_store(engine) == []
    return answers(engine)


@pytest.fixture(scope="module")
def in_order(pieces, tmp_path_factory):
    """What a file answers that got the pieces one after the other."""
    return stored(new_store(tmp_path_factory.mktemp("stored") / "store.db"), pieces)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_pieces_backwards_and_mixed_give_the_same_answers(pieces, in_order, store, is_mixed):
    mixed = random.Random(7).sample(pieces, len(pieces))
    assert stored(store, mixed + mixed[:3] if is_mixed else pieces[::-1]) == in_order
    (run,) = in_order["runs"]
    assert (run.attempt, run.statuses, run.planned, run.missing) == (3, {"pass": 5}, 5, 0)
