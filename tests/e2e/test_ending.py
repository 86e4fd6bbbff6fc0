"""What a signal leaves behind: no process and no temporary folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from collector.process.orphans import PREFIX
from tests.factories import new_store
from tests.jobs.acting import played_host

ROOT = Path(__file__).resolve().parents[2]
MAIN = "import sys; sys.argv[0] = 'inductor-watch'; from jobs.cli import main; main()"
#: Far more than anything here takes.
LONG_S = 120.0


def start(folder, *words, **environ):
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(condition, process):
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def group_is_empty(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_terminated_run_leaves_no_temporary_folder_and_can_be_resumed(tmp_path):
    hanging = played_host(tmp_path / "played") | {"PLAY_SCRIPT": "work:600"}
    words = ("--model", "ViTTiny*", "--backend", "eager", "--device", "cpu", "--start", "spawn", "--no-store")
    process = start(tmp_path, "run", *words, **hanging)
    try:
        wait_for(lambda: list((tmp_path / "tmp").glob(f"{PREFIX}*")), process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=LONG_S)[0]
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "Traceback" not in said
    assert list((tmp_path / "tmp").glob(f"{PREFIX}*")) == []
    assert [path.suffix for path in (tmp_path / "runs").iterdir()] == [".jsonl"]


def test_the_dashboard_leaves_no_server_behind(tmp_path):
    new_store(tmp_path / "s.db").dispose()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start(tmp_path, "dashboard", "--db", "s.db", "--port", port, STREAMLIT_SERVER_HEADLESS="true")

    def answers():
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(answers, process)
        process.terminate()
        process.communicate(timeout=LONG_S)
    finally:
        process.kill()
    assert not answers()
    assert group_is_empty(process.pid)
