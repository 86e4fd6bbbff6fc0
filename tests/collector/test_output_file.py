"""Output files: whole or not at all, through links, and never in the place of what is no regular file."""

import os
import stat
import threading
from contextlib import contextmanager

import pytest

from collector.output_file import write_output


@contextmanager
def reader(fifo, found):
    """Reads a FIFO to its end beside the test."""
    thread = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    thread.start()
    yield
    thread.join(30)


def test_a_new_file_and_an_old_one_are_written_whole(tmp_path):
    target = tmp_path / "report.md"
    write_output(target, "one")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("one", 0o644)  # what the suite's umask leaves
    target.chmod(0o640)
    write_output(target, b"two")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("two", 0o640)
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/x")
    for text in ("new", "newer"):
        write_output(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert [path.read_text() for path in (tmp_path / "far").iterdir()] == [text]


@pytest.mark.parametrize("through", ["itself", "a link"])
def test_a_fifo_stays_and_is_written_to(tmp_path, through):
    fifo, found = tmp_path / "fifo", []
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to(fifo)
    with reader(fifo, found):
        write_output(fifo if through == "itself" else tmp_path / "link", "text")
    assert found == [b"text"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_device_stays_a_device(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"")
    except OSError:
        pytest.skip("this user, or this file system, has no device nodes")
    write_output(device, "text")
    assert stat.S_ISCHR(device.stat().st_mode)


def test_without_force_nothing_is_written_over_not_even_what_came_since(tmp_path):
    target = tmp_path / "x"

    def take(stream):
        stream.write(b"mine")
        target.write_text("theirs")

    with pytest.raises(FileExistsError):
        write_output(target, take, force=False)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileExistsError):
        write_output(tmp_path / "fifo", "x", force=False)
    assert target.read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "x").write_text("old")

    def fail(stream):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="space"):
        write_output(tmp_path / "x", fail)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]


def test_links_in_a_circle_and_a_missing_folder_are_errors(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write_output(tmp_path / "a", "x")
    assert (tmp_path / "a").is_symlink()
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        write_output(tmp_path / "no" / "x", "x")
