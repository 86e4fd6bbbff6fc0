"""How a fork server ends: closed, killed, or never ready. Its processes end with it.

These servers import no torch, which takes them seconds; those of test_launcher.py do.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from collector.process.launcher import Launcher, LauncherError, Preload
from collector.process.orphans import processes_with_token
from tests.collector.processes import FAMILY, ROOT, SLEEP, Script, dead, serving, wait_until, write_hook


@pytest.fixture(params=["spawn", "fork"])
def kind(request):
    return request.param


def test_closing_the_channel_ends_every_process_of_every_cell(tmp_path, kind):
    with serving(tmp_path / "hook", kind, torch=False) as launcher:
        found = [Script(launcher, FAMILY, tmp_path / "hook").says() for _ in range(2)]
        os.killpg(found[1].pid, signal.SIGSTOP)
        processes = [pid for item in found for pid in processes_with_token(item.token)]
        assert len(processes) == 8
        server = launcher.pid
    assert dead(server)
    wait_until(lambda: all(map(dead, processes)), 3)


def test_a_server_that_is_kept_outlives_a_run_unless_it_is_lost(tmp_path, kind):
    with serving(tmp_path / "hook", kind, torch=False) as launcher:
        launcher.is_kept = True
        launcher.close()
        assert not launcher.lost
        found = Script(launcher, SLEEP, tmp_path / "hook").says()
        launcher.is_kept = False
    assert dead(launcher.pid)
    wait_until(lambda: dead(found.pid))


def test_a_killed_server_takes_its_children_along_and_is_lost(tmp_path, kind):
    with serving(tmp_path / "hook", kind, torch=False) as launcher:
        found = [Script(launcher, SLEEP, tmp_path / "hook").says() for _ in range(2)]
        os.killpg(found[1].pid, signal.SIGSTOP)
        assert not launcher.lost
        os.kill(launcher.pid, signal.SIGKILL)
        wait_until(lambda: launcher.lost)
        wait_until(lambda: all(dead(item.pid) for item in found), 3)
        assert launcher.exit_code(found[0].pid) is None
        for _ in range(2):
            with pytest.raises(LauncherError, match="the fork server is gone"):
                Script(launcher, SLEEP, tmp_path / "hook")
        launcher.reap(found[0].pid)  # nobody answers, nobody complains


def test_a_server_that_dies_while_it_starts_is_lost_at_once(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(1)\n")
    launcher = Launcher({**os.environ, "PYTHONPATH": str(tmp_path)})
    wait_until(lambda: launcher.lost)
    assert not launcher.is_ready
    launcher.import_also(Preload("nowhere"))
    launcher.close()
    launcher.import_also(Preload("nowhere"))  # nobody listens, nobody complains


def test_a_server_that_does_not_get_ready_is_given_up_in_time(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(600)\n")
    launcher = Launcher({**os.environ, "PYTHONPATH": str(tmp_path)}, timeout_s=0.5)
    assert not launcher.is_ready
    with pytest.raises(LauncherError, match=r"did not answer within 0\.5 s"):
        Script(launcher, SLEEP, tmp_path)
    wait_until(lambda: not launcher.is_ready and launcher.lost)
    launcher.close()
    assert dead(launcher.pid)


def test_a_server_closed_while_it_imports_leaves_no_process(tmp_path):
    code = "import pathlib, time\npathlib.Path(__file__).with_name('begun').touch()\ntime.sleep(600)\n"
    (tmp_path / "endless.py").write_text(code)
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{write_hook(tmp_path, torch=False)}:{ROOT}"}
    launcher = Launcher(environ, Preload("nowhere", ["endless"]))
    wait_until((tmp_path / "begun").exists, 60)
    assert not launcher.is_ready
    launcher.close()
    assert dead(launcher.pid)
    assert using(tmp_path) == []


#: What writes to standard error: C++, Python's warnings, and, as Python 3.12 does it, a fork beside threads.
_NOISY = """
import os, warnings

def warn_and_fork(fork=os.fork):
    said = f"This process (pid={os.getpid()}) is multi-threaded, use of fork() may lead to deadlocks in the child."
    warnings.warn(said, DeprecationWarning, stacklevel=2)
    return fork()

os.fork = warn_and_fork
os.write(2, b"a line of a C++ library\\n")
warnings.warn("a hint")
"""


def test_a_server_imports_what_it_is_told_later_and_prints_nothing(tmp_path, capfd):
    with serving(tmp_path / "hook", "fork", torch=False) as launcher:
        (tmp_path / "hook" / "noisy.py").write_text(_NOISY)
        launcher.import_also(Preload("nowhere", ["colorsys", "noisy"], ["tabnanny:check"]))
        wait_until(lambda: launcher.is_ready)
        code = "import json, sys; print(json.dumps(['colorsys' in sys.modules, 'tabnanny' in sys.modules]))"
        script = Script(launcher, code, tmp_path / "hook")
        assert script.result() == [True, True]
        script.close()
    assert capfd.readouterr().err == ""


def using(folder):
    """The processes that were started with this folder for their temporary files."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found
