"""Real processes for tests: cells that end early, and code of the test's own run by a launcher's processes."""

import json
import os
import secrets
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from collector.machine.toolchain import SKIP_VARIABLE
from collector.process.launcher import Launcher, Preload
from collector.process.orphans import PREFIX, VARIABLE, kill_tokens, processes_with_token
from collector.settings import Settings
from collector.vocabulary import Cell, Config, Phase

ROOT = Path(__file__).resolve().parents[2]
LONG = Settings(rounds=5, timeout_s=120)
MODEL = "ViTTinyForImageClassification"

#: Runs the code in a variable in place of the cell, however the process was started.
_HOOK = """
import os, sys, traceback

def run():
    code = os.environ.pop("RUN_THIS", None)
    if code is None:
        return
    try:
        exec(code, {"__name__": "script"})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
"""
_PRELOADED = """
import collector.process.worker, hook

serve = collector.process.worker.serve

def run_or_serve(request, host):
    hook.run()
    serve(request, host)

collector.process.worker.serve = run_or_serve
"""

#: Imports torch and the hook; there is no such device to compile for, which saves the import of the compiler.
PRELOAD = Preload("nowhere", ["broken_library", "preloaded"], ["wave:Wave_read", "wave:NoSuchClass", "nosuch:Class"])
SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
#: A child of the same memory, a child of another program, and one that left the session.
FAMILY = """
import os, subprocess, sys, time
if os.fork() == 0:
    time.sleep(600)
for apart in (False, True):
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    subprocess.Popen(command, start_new_session=apart)
print("ready", flush=True)
time.sleep(600)
"""


def cell(template="triton", model=MODEL, **changes):
    fields = {"phase": Phase.INFERENCE, "dtype": "float32", "device": "cpu", "batch_size": 1, **changes}
    return Cell("huggingface", model, config=Config(template=template), **fields)


def write_hook(folder, torch=True):
    """The folder that, on a process's PYTHONPATH, has it run `RUN_THIS`; `preloaded` does that for a fork server.

    Without torch its import fails at once, which a server does not mind: how it starts and ends is the same.
    """
    folder.mkdir(exist_ok=True)
    if not torch:
        (folder / "torch.py").write_text("raise ImportError('left out')\n")
    (folder / "hook.py").write_text(_HOOK)
    (folder / "preloaded.py").write_text(_PRELOADED)
    (folder / "sitecustomize.py").write_text("import hook; hook.run()\n")
    return folder


def stat(pid):
    """The fields of /proc/PID/stat from the state on; None once the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def state(pid):
    fields = stat(pid)
    return fields[0] if fields else "gone"


def dead(pid):
    return state(pid) in ("gone", "Z", "X")


def children(pid):
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [number for number in numbers if (found := stat(number)) and int(found[1]) == pid and found[0] != "Z"]


def servers():
    """The fork servers that this process has started and that live."""
    found = []
    for pid in children(os.getpid()):
        with suppress(OSError):
            if b"collector.process.forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def pooled(cells, settings, place=None, preload=None):
    """The outcomes of a run of cells, each in a process of its own that does not ask the compiler what the CPU can do."""
    from jobs.pool.gpu_scheduler import DeviceSlot, GpuScheduler
    from jobs.pool.runner import Pool

    environ = {**os.environ, "PYTHONPATH": str(ROOT), SKIP_VARIABLE: "1"}
    lane = GpuScheduler(cells, settings, place or DeviceSlot([[]]), environ, preload)
    return [outcome for _, outcome in Pool([lane]).run()]


class Script:
    """Code of a test, run by a process of a launcher."""

    def __init__(self, launcher, code, folder, cores=(), **environ):
        self.token = PREFIX + secrets.token_hex(4)
        self.given = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",  # else Python adds one by itself
            "PYTHONPATH": f"{folder}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
            VARIABLE: self.token,
            **environ,
        }
        self._launcher, self._text = launcher, b""
        theirs, answers = os.pipe()
        self.output, output = os.pipe()
        report, their_report = os.pipe()
        self._mine = [answers, self.output, report]
        os.set_blocking(self.output, False)
        try:
            environ = {**self.given, "RUN_THIS": code}
            self.pid = launcher.start(self.token, environ, cores, [theirs, output, their_report])
        finally:
            for descriptor in (theirs, output, their_report):
                os.close(descriptor)
        with suppress(BrokenPipeError):  # it ended as soon as it was started
            os.write(answers, b"{}\n")

    def read(self):
        with suppress(BlockingIOError):
            while chunk := os.read(self.output, 65536):
                self._text += chunk
        return self._text.decode()

    def says(self, text="ready"):
        wait_until(lambda: text in self.read())
        return self

    def code(self):
        wait_until(lambda: self._launcher.exit_code(self.pid) is not None)
        return self._launcher.exit_code(self.pid)

    def result(self):
        assert self.code() == 0, self.read()
        return json.loads(self.read())

    def close(self):
        if any(processes_with_token(self.token)):
            os.killpg(self.pid, signal.SIGKILL)
            self._launcher.await_end(self.pid, 5)
            kill_tokens([self.token])
        self._launcher.reap(self.pid)
        for descriptor in self._mine:
            os.close(descriptor)


@contextmanager
def serving(folder, kind):
    """A server, fresh or forking, that imports no torch, which would take it seconds."""
    write_hook(folder, torch=False)
    (folder / "broken_library.py").write_text("raise RuntimeError('built for another torch')\n")
    (folder / "tmp").mkdir()
    environ = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "TMPDIR": str(folder / "tmp"), "SERVER_S": "1"}
    environ.pop("PYTHONUNBUFFERED", None)
    launcher = Launcher(environ, PRELOAD if kind == "fork" else None)
    try:
        wait_until(lambda: launcher.is_ready, 120)
        yield launcher
    finally:
        launcher.close()
