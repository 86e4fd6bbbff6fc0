"""Files are written whole or not at all; a run is taken up where it stopped, whatever a kill left of its files."""

import gzip
import json
import os
import random
import stat
import threading

import pytest

from collector.bundle import BundleWriter, check_bundle, read_bundle
from collector.output_file import write_output
from collector.usage_errors import BundleError
from collector.vocabulary import Status
from tests.factories import ENVIRONMENT, at, cell, failing, header, passing, write_bundle


def test_a_new_file_and_an_old_one_are_written_whole_and_a_link_stays(tmp_path):
    target = tmp_path / "report.md"
    write_output(target, "one")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("one", 0o644)  # what the suite's umask leaves
    target.chmod(0o640)
    write_output(target, b"two")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("two", 0o640)
    assert list(tmp_path.iterdir()) == [target]
    (tmp_path / "link").symlink_to("far/x")
    (tmp_path / "far").mkdir()
    for text in ("new", "newer"):
        write_output(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert [path.read_text() for path in (tmp_path / "far").iterdir()] == [text]


def test_a_fifo_behind_a_link_stays_and_is_written_to(tmp_path):
    fifo, found = tmp_path / "fifo", []
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to(fifo)
    thread = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    thread.start()
    write_output(tmp_path / "link", "text")
    thread.join(30)
    assert found == [b"text"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_cannot_be_written_leaves_what_was_there(tmp_path):
    target, fifo, link = tmp_path / "x", tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to("link")

    def take(stream):
        stream.write(b"mine")
        target.write_text("theirs")

    def fail(stream):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(FileExistsError):
        write_output(target, take, force=False)
    with pytest.raises(FileExistsError):
        write_output(fifo, "x", force=False)
    with pytest.raises(OSError, match="space"):
        write_output(target, fail)
    with pytest.raises(OSError, match="symbolic links"):
        write_output(link, "x")
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        write_output(tmp_path / "no" / "x", "x")
    assert (target.read_text(), link.is_symlink()) == ("theirs", True)
    assert sorted(tmp_path.iterdir()) == [fifo, link, target]


CELLS = [cell(f"m{number}") for number in range(4)]


def measured(which):
    return passing(which, rounds=2, details={})


def finish(path):
    """Takes a run up, measures what it plans and has not, and closes it."""
    writer, contents = BundleWriter.reopen(path, at(30))
    assert read_bundle(writer.path).damage == [], "nothing is left of a line that was cut"
    done = contents.latest()
    for which in contents.planned:
        if which.cell_id not in done:
            item = measured(which)
            writer.environment(item.environment_id, ENVIRONMENT)
            writer.program(item.program_id, {"freezing": True})
            writer.measurement(item)
    return writer.close(at(60))


def test_a_run_cut_at_any_byte_ends_with_each_planned_cell_once(tmp_path):
    lines = [measured(which) for which in CELLS[:2]]
    whole = write_bundle(tmp_path, header("r1"), lines, planned=CELLS, closed=False).read_bytes()
    # Before that the run has no plan yet; a writer makes first line and plan appear at once.
    head = [i + 1 for i, byte in enumerate(whole) if byte == 10][len(CELLS)]
    boundaries = {i + step for i, byte in enumerate(whole) if byte == 10 and i >= head for step in (0, 1, 2)}
    lengths = {*random.Random(7).sample(range(head, len(whole)), 20), *boundaries, head, len(whole)}
    for length in sorted(length for length in lengths if length <= len(whole)):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / "r1.jsonl").write_bytes(whole[:length])
        found = read_bundle(path := finish(folder / "r1.jsonl"))
        assert sorted(item.cell.model for item in found.measurements) == [which.model for which in CELLS], length
        assert (found.damage, found.planned, found.attempt, found.finished_at) == ([], CELLS, 2, at(60))
        assert [path.name for path in folder.iterdir()] == ["r1.jsonl.gz"]
    after = gzip.decompress(path.read_bytes()).removeprefix(whole)
    # What was written before is not written again: environment and program are those of the cells that were measured.
    kinds = [json.loads(line)["record"] for line in after.splitlines()]
    assert kinds == ["resumed", "measurement", "measurement", "end"]


def test_a_closed_run_is_taken_up_and_the_retried_cell_counts(tmp_path):
    lines = [failing(CELLS[0], Status.CRASHED), passing(CELLS[1])]
    path = write_bundle(tmp_path, header("r1"), lines)
    assert read_bundle(path).finished_at == at(600)
    writer, contents = BundleWriter.reopen(path, at(700))
    assert contents.finished_at == at(600)
    assert read_bundle(writer.path).finished_at is None
    writer.measurement(passing(CELLS[0]))
    again = read_bundle(writer.close(at(800)))
    assert (again.attempt, again.finished_at, len(again.measurements)) == (2, at(800), 3)
    assert {item.status for item in again.latest().values()} == {Status.PASS}


def test_what_a_kill_left_of_a_file_in_the_making_is_no_hindrance(tmp_path):
    left = b"x\n" * 9999 + b"half a li"
    for name in ("r1.jsonl.partial", "r1.jsonl.gz.partial"):
        (tmp_path / name).write_bytes(left)
    path = write_bundle(tmp_path, header("r1"), [passing(CELLS[0])])
    (tmp_path / "r1.jsonl.partial").write_bytes(left)
    found = read_bundle(finish(path))
    assert (len(found.measurements), found.damage, found.attempt) == (1, [], 2)
    assert [path.name for path in tmp_path.iterdir()] == ["r1.jsonl.gz"]


def test_the_plan_is_there_as_soon_as_the_run_is(tmp_path):
    planned = (which if not list(tmp_path.glob("*.jsonl")) else pytest.fail("visible too early") for which in CELLS)
    writer = BundleWriter(tmp_path, header("r1"), planned)
    writer.abandon()
    assert read_bundle(writer.path).planned == CELLS


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r9.jsonl", None, "cannot read"),
        ("notes.txt", b"x\n", "does not end in"),
        ("r9.jsonl.gz", b"\x1f\x8b\x00", "not a bundle"),
    ],
)
def test_what_cannot_be_taken_up_is_refused_in_one_line_and_left_as_it_is(name, content, said, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BundleError, match=said) as caught:
        BundleWriter.reopen(tmp_path / name, at(1))
    assert "\n" not in str(caught.value)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([content] if content is not None else [])


def bomb(folder, line, count):
    """A gzipped bundle of one run whose lines after the first are all the same."""
    path = folder / "bomb.jsonl.gz"
    first = write_bundle(folder / "made", header("r1"), [])
    with gzip.open(first) as stream, gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(stream.readline())
        for _ in range(count):
            packed.write(line)
    return path


def test_a_bundle_that_unpacks_to_too_much_or_is_all_damage_costs_little(tmp_path, monkeypatch):
    monkeypatch.setattr("collector.output_file.LARGEST", 3 << 20)
    path = bomb(tmp_path, b" " * (1 << 20) + b"\n", 4)
    assert check_bundle(path).run_id == "r1"
    with pytest.raises(BundleError, match="larger than any bundle"):
        read_bundle(path)
    assert path.stat().st_size < 50_000
    found = read_bundle(bomb(tmp_path / "damage", b"{}\n", 1000))
    assert len(found.damage) == 101
    assert found.damage[0].startswith("line 2 is not a record")
    assert found.damage[-1] == "900 more things are wrong with it"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "folder"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, make):
    make(tmp_path / "r1.jsonl")
    with pytest.raises(BundleError, match="no regular file"):
        read_bundle(tmp_path / "r1.jsonl")


def test_a_second_run_of_one_name_is_refused(tmp_path):
    for closed in (False, True):
        folder = tmp_path / str(closed)
        path = write_bundle(folder, header("r1"), [passing(CELLS[0])], closed=closed)
        before = path.read_bytes()
        with pytest.raises(FileExistsError):
            BundleWriter(folder, header("r1"), CELLS)
        assert path.read_bytes() == before
        assert check_bundle(path).run_id == "r1"


@pytest.mark.parametrize("run_id", ["../up", "..", "", "a\\b", ".hidden", "a\x00b", "\u00e9" * 101, "a\u202eb"])
def test_a_run_id_that_is_no_file_name_is_refused_and_nothing_is_made(run_id, tmp_path):
    with pytest.raises(BundleError, match=r"cannot name a file: choose at most 200 bytes") as caught:
        BundleWriter(tmp_path / "runs", header(run_id), [cell()])
    assert str(caught.value).isprintable() and str(caught.value).isascii()
    assert list(tmp_path.iterdir()) == []
