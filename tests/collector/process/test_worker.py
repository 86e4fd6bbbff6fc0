"""CPU time of a session: all of its processes, ended children included, and no others."""

from __future__ import annotations

import os

import pytest

from collector.process.worker import session_cpu_s

SESSION = os.getsid(0)


def process(proc, pid, session, *ticks, name="python"):
    """Writes /proc/PID/stat as proc(5) describes it; `ticks` are user and system time, own and of ended children."""
    (proc / str(pid)).mkdir()
    before = f"S 1 {pid} {session} 0 -1 4194304 0 0 0 0"
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {before} {' '.join(map(str, ticks))} 20 0 1 0\n")


def test_times_of_the_session_add_up_and_others_do_not_count(tmp_path):
    process(tmp_path, 10, SESSION, 100, 20, 3, 1)
    process(tmp_path, 11, SESSION, 5, 0, 0, 0, name=") S 1 2 (")
    process(tmp_path, 12, SESSION + 1, 7000, 0, 0, 0)
    (tmp_path / "13").mkdir()  # a process that has just ended
    (tmp_path / "self").mkdir()
    assert session_cpu_s(tmp_path) == pytest.approx(129 / os.sysconf("SC_CLK_TCK"))


def test_without_proc_nothing_is_known_and_this_process_has_used_time(tmp_path):
    assert session_cpu_s(tmp_path / "nowhere") is None
    assert session_cpu_s() > 0
