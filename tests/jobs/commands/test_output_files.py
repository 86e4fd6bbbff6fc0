"""Every option that names an output file leaves links and what is no regular file in place, and writes through them."""

import os
import stat
import threading

import pytest
from click.testing import CliRunner

from db.ingest import ingest_bundle
from jobs.cli import app
from tests.factories import cell, new_store, night

#: What comes before the file's name.
OPTIONS = {
    "export -o": ["export", "r2", "--force", "-o"],
    "report --out": ["report", "r1", "r2", "--out"],
    "report --again-plan": ["report", "r1", "r2", "--again-plan"],
    "report --picture": ["report", "r1", "r2", "--chart", "suites", "--picture"],
    "regressions feed --out": ["regressions", "feed", "--out"],
}


@pytest.fixture
def call(tmp_path):
    engine = new_store(tmp_path / "s.db")
    for number, name in enumerate(("r1", "r2")):
        ingest_bundle(engine, night(tmp_path / "runs", name, minutes=number, cells=[cell()]))
    engine.dispose()
    return lambda *words: CliRunner().invoke(app, [*map(str, words), "--db", str(tmp_path / "s.db")])


@pytest.mark.parametrize("words", OPTIONS.values(), ids=OPTIONS)
def test_a_link_stays_and_so_does_the_fifo_behind_one(call, tmp_path, words):
    (tmp_path / "link.svg").symlink_to("file.svg")
    (tmp_path / "file.svg").write_text("old")
    done = call(*words, tmp_path / "link.svg")
    assert (tmp_path / "link.svg").is_symlink(), done.output
    content = (tmp_path / "file.svg").read_bytes()
    assert len(content) > 40

    fifo, found = tmp_path / "fifo", []
    os.mkfifo(fifo)
    (tmp_path / "pipe.svg").symlink_to(fifo)
    thread = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    thread.start()
    call(*words, tmp_path / "pipe.svg")
    thread.join(30)
    assert [len(text) > 40 for text in found] == [True]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert (tmp_path / "pipe.svg").is_symlink()
