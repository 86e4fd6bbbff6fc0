"""Plays parts of the collector in processes whose PYTHONPATH has this folder, so that nothing there imports torch.

`python -m collector.process.worker` plays PLAY_SCRIPT, or its cell's model name, steps separated by commas:

    work:S              works for S seconds
    device:S            asks for the device, holds it for S seconds; likewise `tune:S` and `measure:S`
    tune:S*N            the same N times
    end:STATUS/STATUS   the outcome of the first attempt, of the second one, ... (without it: pass)
    exit:CODE           ends without an outcome

Where PLAY_LATENCIES is set, a JSON object, a cell whose batch size it has passes with the compiled latency of its first process,
of its second one, ...; an eager one takes 10 ms.

Every step notes in the file PLAY_LOG when it asked, began, ended, and every few milliseconds that it runs: lines of
time, cell's batch size, process, event, number of the step, name of the step. A second is counted in those
milliseconds: one for which the process stands still is not among them.

`python -m collector.machine.environment` and `collector.machine.health` print and end as PLAY_ENVIRONMENT and PLAY_HEALTH say.
"""

import json
import os
import sys
import time

TICK_S = 0.005


class Actor:
    """A cell's process: its log, its pipes, and what it has to play."""

    def __init__(self):
        self.answers = os.fdopen(os.dup(0), "rb")
        self.cell = json.loads(self.answers.readline())["cell"]
        self.number, self.steps = self.cell["batch_size"], 0
        self.report = int(sys.orig_argv[-1])
        self.log = os.open(os.environ["PLAY_LOG"], os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def note(self, event, name="-"):
        now = time.monotonic()
        line = f"{now:.6f} {self.number} {os.getpid()} {event} {self.steps} {name}\n"
        os.write(self.log, line.encode())
        return now

    def send(self, message):
        os.write(self.report, f"{json.dumps(message)}\n".encode())

    def ask(self, name):
        self.send({"ask": name, "bytes": None, "at": self.note("ask", name)})
        answer = self.answers.readline()
        if not answer:
            os._exit(9)
        assert json.loads(answer)["idle_ms"] == 0.0

    def step(self, name, seconds):
        self.steps += 1
        if name != "work":
            self.ask(name)
        began = self.note("begin", name)
        for _ in range(max(1, round(seconds / TICK_S))):
            self.note("tick", name)
            time.sleep(TICK_S)
        ended = self.note("end", name)
        if name != "work":
            self.send({"done": True, "bytes": 0})
        return began, ended

    def attempts(self):
        lines = os.pread(self.log, os.fstat(self.log).st_size, 0).decode().splitlines()
        return sum(line.split()[1:4:2] == [str(self.number), "start"] for line in lines)

    def end(self, status, windows):
        found = {"cell": self.cell, "status": status, "started_at": "2026-01-01T00:00:00+00:00", "wall_s": 0.1}
        compiled = {}
        if windows:
            start, end = windows[0][0], windows[-1][1]
            compiled["compile_cold_s"] = [(start, end)]
            found["metrics"] = {"compile_cold_s": end - start}
        latencies = json.loads(os.environ.get("PLAY_LATENCIES", "{}")).get(str(self.number))
        if latencies:
            compiled_ms = latencies[min(self.attempts(), len(latencies)) - 1]
            found["metrics"] = {"eager_ms": 10.0, "compiled_ms": compiled_ms, "speedup": 10.0 / compiled_ms}
        self.note("over")
        outcome = {"measurement": found, "environment": {}, "program": {}, "compile_windows": compiled}
        self.send({"outcome": outcome})
        os._exit(0)

    def play(self):
        self.note("start")
        statuses, windows = ["pass"], []
        for part in os.environ.get("PLAY_SCRIPT", self.cell["model"]).split(","):
            name, _, value = part.partition(":")
            if name == "exit":
                os._exit(int(value))
            elif name == "end":
                statuses = value.split("/")
            else:
                seconds, _, times = value.partition("*")
                spans = [self.step(name, float(seconds)) for _ in range(int(times or 1))]
                windows += spans if name == "work" else []
        self.end(statuses[min(self.attempts(), len(statuses)) - 1], windows)


def play_environment():
    cores = os.environ.get("INDUCTOR_WATCH_CORES")
    found = json.loads(os.environ["PLAY_ENVIRONMENT"])
    found["cores"] = len(cores.split(",")) if cores else len(os.sched_getaffinity(0))
    found["workers"] = int(os.environ["INDUCTOR_WATCH_WORKERS"])
    found |= {"gpu_index": int(os.environ["INDUCTOR_WATCH_GPU"])} if "INDUCTOR_WATCH_GPU" in os.environ else {}
    os.write(1, json.dumps(found).encode() + b"\n")
    os._exit(0)


def play_health():
    os.write(2, os.environ["PLAY_HEALTH"].encode() + b"\n")
    os._exit(1 if os.environ["PLAY_HEALTH"] else 0)


if "collector.process.worker" in sys.orig_argv:
    Actor().play()
elif "collector.machine.environment" in sys.orig_argv and "PLAY_ENVIRONMENT" in os.environ:
    play_environment()
elif "collector.machine.health" in sys.orig_argv and "PLAY_HEALTH" in os.environ:
    play_health()
