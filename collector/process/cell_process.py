"""The parent's side of one cell: a process with empty caches and a time limit that leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collector.failures import HINT_OF_EXIT, hint_of_signal, hint_of_timeout
from collector.masking import ending, mask_own, shorten
from collector.process.launcher import Launcher, LauncherError
from collector.process.orphans import PREFIX, VARIABLE, kill_tokens, strays
from collector.process.outcome import Outcome, union_length
from collector.process.worker import STACK_SIGNAL
from collector.settings import Settings
from collector.vocabulary import KEPT_BYTES, Cell, Failure, Measurement, Stage, Status

#: Stages before a cell compiles: memory that it keeps in them stays until it has compiled. Memory of a graph's pool and of a
#: check comes later and stays for a shorter time.
_BEFORE_COMPILING = frozenset({Stage.START, Stage.RESOLVE_CONFIG, Stage.LOAD_MODEL, Stage.EAGER})
_LOG_KEPT, _TAIL_KEPT = 256 * 1024, 8 * 1024
#: Seconds that a process has to end by itself once its outcome is known.
_GRACE_S = 5.0
#: Seconds for which a process that has reported waits to free its memory while no other cell measures. A cell that has a lost GPU
#: alone never gives it back, and what others have reported must be seen for that to be found.
_LEAVE_S = 10.0
#: The most seconds between two checks of a process's time limit.
_LATE_S = 1.0
#: Seconds that a process past its time limit has to print its stacks.
_STACK_S = 0.3
#: By metric of compile time, the key of the detail with the seconds for which the process was paused in it.
_STOOD = {"compile_cold_s": "stood_s", "compile_warm_s": "stood_warm_s", "tuning_s": "stood_tuning_s"}


class CellProcess:
    """A running cell. Call `pump` when it has written something; once it is `finished`, `close` returns the outcome.

    `parent` is the folder in which the cell gets a folder of its own, which `close` removes. If a signal interrupts this process
    before, removing that folder is left to the owner of `parent`.
    """

    def __init__(
        self,
        cell: Cell,
        settings: Settings,
        launcher: Launcher,
        environ: Mapping[str, str] | None = None,
        cores: Sequence[int] = (),
        parent: Path | None = None,
    ) -> None:
        self.cell, self.settings = cell, settings
        self.stage = Stage.START
        #: The purpose for which the process asks for the device, and whether it holds the device.
        self.asks: str | None = None
        self.holds = False
        #: Bytes of device memory that the process needs in all to go on, None if it cannot know; and bytes that it kept when it
        #: last gave the device back; `most_kept` is the largest of these before it compiles.
        self.needs: int | None = None
        self.keeps = self.most_kept = 0
        #: The most bytes that it has asked for, and the last promise to a process that could not know: None for no limit.
        self.most_asked = 0
        self.promised: float | None = None
        self.began = time.monotonic()
        #: Spans in which the process was stopped or waited for a grant; neither the time limit nor compile time counts them.
        self.stood: list[tuple[float, float]] = []
        #: The spans among these in which it was stopped for another cell.
        self.stops: list[tuple[float, float]] = []
        #: Seconds for which the process held the device, by purpose.
        self.held_s: dict[str, float] = {}
        #: The purpose of the last grant.
        self.purpose, self._granted_at = "", 0.0
        self._stands_since: float | None = None
        self._stopped_strays: set[int] = set()
        self._asked_at = 0.0
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._outcome: Outcome | None = None
        self._done_at: float | None = None
        self._log = bytearray()
        self._pending = b""
        self._launcher = launcher
        self._token = PREFIX + secrets.token_hex(4)
        self._folder = (parent or Path(tempfile.gettempdir())) / self._token
        self._folder.mkdir(mode=0o700)
        self._start(environ or os.environ, cores)

    def _start(self, environ: Mapping[str, str], cores: Sequence[int]) -> None:
        their_answers, answers = os.pipe()
        self._output, their_output = os.pipe()
        self._report, their_report = os.pipe()
        theirs = (their_answers, their_output, their_report)
        self._answers = os.fdopen(answers, "wb")
        for descriptor in (self._report, self._output):
            os.set_blocking(descriptor, False)
        kept = Path(self.settings.compiled, self.cell.cell_id) if self.settings.compiled else None
        variables = cell_environment(environ, self._folder, self._token, kept)
        self._log_is_wanted = bool(environ.get("TORCH_LOGS"))
        try:
            self.pid = self._launcher.start(self._token, variables, cores, theirs)
            self.began = time.monotonic()  # the time that the launcher took is not part of the cell
            self._late_at = self.began + self.settings.timeout_s
        except LauncherError:
            self._let_go()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._write({"cell": self.cell.to_json(), "settings": self.settings.to_json()})

    @property
    def descriptors(self) -> list[int]:
        """The file descriptors to wait on before the next `pump`."""
        return [self._report, self._output]

    def pump(self) -> None:
        """Read the reports and the log that the process has written. Past the time limit the outcome is a time-out."""
        for line in self._report_lines():
            self._take(json.loads(line))
        self._drain_log()
        if self._outcome is not None or time.monotonic() < self._late_at:
            return
        if (left_s := self.left_s()) > 0:
            # Pauses extend the time limit. There may be thousands, so they are not added up in each call.
            self._late_at = time.monotonic() + min(left_s, _LATE_S)
        else:
            said = f"not done after {self.settings.timeout_s:g} s"
            self._outcome = self._lost(Status.TIMEOUT, "TimeoutError", said, hint_of_timeout(self.stage))
            self._ask_where()

    def left_s(self) -> float:
        """Return the seconds until the time limit, without the time in which the process was stopped or waited for a grant."""
        return self.settings.timeout_s - (time.monotonic() - self.began - self._paused_s(self.began, time.monotonic()))

    @property
    def finished(self) -> bool:
        """Return whether the process has ended, or has reported its outcome and may be ended."""
        code = self._launcher.exit_code(self.pid)
        if code is not None:
            self.pump()
            if self._outcome is None:
                self._outcome = self._died(code)
            return True
        if self._outcome is None:
            return False
        timed_out = self._outcome.measurement.status is Status.TIMEOUT
        since = self._asked_at if self.asks else self._stands_since
        if not timed_out and since is not None and time.monotonic() - since < _LEAVE_S:
            return False  # it waits for the device to free its memory
        self._done_at = self._done_at or time.monotonic()
        return time.monotonic() - self._done_at > (_STACK_S if timed_out else _GRACE_S)

    @property
    def is_leaving(self) -> bool:
        """Return whether the process has reported its outcome, so that all it has yet to do is to free its memory and end."""
        return self._outcome is not None

    def _ask_where(self) -> None:
        # The stacks at the end of the log show where the cell is stuck.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, STACK_SIGNAL)

    @property
    def asked_s(self) -> float:
        """The seconds for which the process has been asking for the device; 0 if it does not ask."""
        return time.monotonic() - self._asked_at if self.asks else 0.0

    def describe(self) -> str:
        """Return a text with the cell's stage, its time, the device memory that it keeps, and its wait for the device."""
        took_s = time.monotonic() - self.began
        words = f"{self.cell} in {self.stage} ({took_s:.0f} s"
        words += f", keeps {self.keeps / 1e9:.1f} GB" if self.keeps else ""
        if self.asks:
            needs = "" if self.needs is None else f" with {self.needs / 1e9:.1f} GB"
            words += f", waits {self.asked_s:.0f} s for the device ({self.asks}){needs}"
        return f"{words})"

    def grant(
        self,
        idle_ms: float = 0.0,
        room_bytes: float = float("inf"),
        eager_ms: float = 0.0,
        promised: float | None = None,
    ) -> None:
        """Give the device to the process.

        `idle_ms` is the duration of the idle probe on an idle device, `room_bytes` the device memory of all cells together,
        `eager_ms` the least eager latency of the model so far, `promised` the most memory that this process may take.
        """
        self.stood.append((self._asked_at, time.monotonic()))
        self.purpose, self._granted_at = self.asks or "", time.monotonic()
        self.asks, self.holds = None, True
        self.promised = promised
        facts = {"room_bytes": room_bytes, "promised_bytes": math.inf if promised is None else promised}
        known = {name: int(size) if math.isfinite(size) else None for name, size in facts.items()}
        self._write({"idle_ms": idle_ms, "eager_ms": eager_ms, **known})

    def move(self, cores: Sequence[int]) -> None:
        """Restrict every thread of the process to these cores; threads that they start inherit the restriction."""
        moved: set[str] = set()
        with contextlib.suppress(OSError):  # it has ended
            # Repeated until all threads are moved: a thread that has not been moved yet may start another one.
            while threads := set(os.listdir(f"/proc/{self.pid}/task")) - moved:  # noqa: PTH208 - names, no paths
                moved |= threads
                for thread in threads:
                    with contextlib.suppress(OSError):
                        os.sched_setaffinity(int(thread), cores)

    def stand(self) -> None:
        """Stop every process of the cell (SIGSTOP)."""
        stand_together([self])

    def go_on(self) -> None:
        """Continue the stopped processes, and record the span of the stop."""
        if self._stands_since is None:
            return
        self.stops.append((self._stands_since, time.monotonic()))
        self.stood.append(self.stops[-1])
        self._stands_since = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)
        for pid in self._stopped_strays:
            _send(pid, signal.SIGCONT)
        self._stopped_strays.clear()

    def _stop_group(self) -> bool:
        """Stop the group of the process; return False if it was stopped already or has ended."""
        if self._stands_since is not None:
            return False
        try:
            os.killpg(self.pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        self._stands_since = time.monotonic()
        return True

    def _stop_strays(self, pids: Iterable[int]) -> bool:
        """Stop these processes, which are in other groups; return whether any of them was not stopped yet."""
        new = set(pids) - self._stopped_strays
        for pid in new:
            _send(pid, signal.SIGSTOP)
        self._stopped_strays |= new
        return bool(new)

    def _paused_s(self, start: float, end: float) -> float:
        open_spans = [(self._stands_since, end)] if self._stands_since is not None else []
        open_spans += [(self._asked_at, end)] if self.asks else []
        inside = [(max(begin, start), min(stop, end)) for begin, stop in self.stood + open_spans]
        return union_length(inside)  # the spans overlap: a waiting process is stopped like any other

    def close(self) -> Outcome:
        """End every process of the cell, remove its caches and return the outcome."""
        self._drain_log()
        self.kill()
        self._drain_log()
        self._let_go()
        outcome = self._outcome or self._lost(Status.CRASHED, "Interrupted", "the run was interrupted")
        if outcome.measurement.status is not Status.PASS or self._log_is_wanted:
            outcome.measurement.log_tail = self._tail()
        hide_paths(outcome.measurement)
        return outcome

    def kill(self) -> None:
        """Kill the process, its group, and its processes that left the group."""
        _close_quietly(lambda: os.killpg(self.pid, signal.SIGKILL))
        self._launcher.await_end(self.pid, _GRACE_S)
        kill_tokens([self._token])
        self._launcher.reap(self.pid)

    def _let_go(self) -> None:
        for close in (self._answers.close, lambda: os.close(self._report), lambda: os.close(self._output)):
            _close_quietly(close)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self, message: Mapping[str, Any]) -> None:
        if "stage" in message:
            self.stage = Stage(message["stage"])
        elif "ask" in message:
            # The time is the cell's own, by the same clock: this process may read late, while it ends another cell.
            self.asks, self._asked_at = str(message["ask"]), float(message.get("at", time.monotonic()))
            self.needs = message.get("bytes")
            self.most_asked = max(self.most_asked, self.needs or 0)
        elif "done" in message:
            self.holds, self.keeps = False, int(message.get("bytes") or 0)
            if self.stage in _BEFORE_COMPILING:
                self.most_kept = max(self.most_kept, self.keeps)
            spent = self.held_s.get(self.purpose, 0.0) + time.monotonic() - self._granted_at
            self.held_s[self.purpose] = round(spent, 3)
        elif "outcome" in message:
            outcome = Outcome.from_json(message["outcome"])
            self._subtract_standing(outcome)
            outcome.measurement.details |= self._costs()
            self._outcome = outcome
        elif "error" in message:
            failure = Failure.from_json(message["error"]["failure"])
            self._outcome = Outcome(self._blank(Status(message["error"]["status"]), failure))

    def _subtract_standing(self, outcome: Outcome) -> None:
        """Subtract the pauses of the process from the metrics of compile time, and record them in the details."""
        details, metrics = outcome.measurement.details, outcome.measurement.metrics
        for metric, spans in outcome.compile_windows.items():
            if metric in metrics:
                paused_s = sum(self._paused_s(begin, end) for begin, end in spans)
                metrics[metric] = max(0.0, metrics[metric] - paused_s)
                details[_STOOD[metric]] = round(paused_s, 3)

    def _costs(self) -> dict[str, Any]:
        """Return the seconds for which the cell waited or was stopped, the seconds of stops among them, the seconds for which it
        held the device by purpose, and the most device memory that it kept; a crashed cell has these details too."""
        now = time.monotonic()
        stopped = [*self.stops, *([(self._stands_since, now)] if self._stands_since is not None else [])]
        return {
            "waited_s": round(self._paused_s(self.began, now), 3),
            "stopped_s": round(union_length(stopped), 3),
            "held_s": dict(self.held_s),
            **({KEPT_BYTES: self.most_kept} if self.most_kept else {}),
        }

    def _report_lines(self) -> Iterator[bytes]:
        while chunk := _read(self._report):
            *whole, self._pending = (self._pending + chunk).split(b"\n")
            yield from whole

    def _drain_log(self) -> None:
        # Bounded per call: a process that prints faster than this reads must not block the parent.
        for _ in range(256):
            chunk = _read(self._output)
            if not chunk:
                break
            self._log += chunk
            if len(self._log) > 2 * _LOG_KEPT:
                del self._log[:-_LOG_KEPT]

    def _tail(self) -> str:
        return ending(bytes(self._log), _TAIL_KEPT)

    def _write(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process has just died; `finished` notices that
            self._answers.write(json.dumps(message).encode() + b"\n")
            self._answers.flush()

    def _died(self, code: int) -> Outcome:
        if code >= 0:
            said = f"the process ended with code {code} and without a result"
            return self._lost(Status.CRASHED, "ExitCode", said, HINT_OF_EXIT)
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return self._lost(Status.CRASHED, name, f"the process was ended by {name}", hint_of_signal(name))

    def _lost(self, status: Status, exception: str, message: str, hint: str | None = None) -> Outcome:
        return Outcome(self._blank(status, Failure(self.stage, exception, f"{message}, in stage {self.stage}", hint)))

    def _blank(self, status: Status, failure: Failure) -> Measurement:
        wall_s = round(time.monotonic() - self.began, 3)
        return Measurement(self.cell, status, self._started_at, wall_s, failure=failure, details=self._costs())


def stand_together(cells: Iterable[CellProcess]) -> None:
    """Stop every process of these cells (SIGSTOP), with one search through the host's processes for all cells.

    A child in a session of its own would go on computing beside the cell that measures. The search is repeated while it finds
    such children, since they may start further ones in the meantime.
    """
    stopped = {cell.pid: cell for cell in cells if cell._stop_group()}
    while stopped:
        found = strays(stopped)
        stopped = {pid: cell for pid, cell in stopped.items() if cell._stop_strays(found[pid])}


def hide_paths(measurement: Measurement) -> None:
    """Remove the host's folders and secrets from all texts of a measurement, since a bundle may be shared."""
    measurement.details = shorten(mask_own(measurement.details))
    measurement.log_tail = shorten(mask_own(measurement.log_tail))
    if measurement.failure:
        measurement.failure.message = shorten(mask_own(measurement.failure.message))
        measurement.failure.hint = shorten(mask_own(measurement.failure.hint))


def cell_environment(
    environ: Mapping[str, str], folder: Path, token: str, caches: Path | None = None
) -> dict[str, str]:
    """Return a cell's environment: the caller's, without access to a model hub, with caches in `caches` or else empty ones."""
    found = dict(environ)
    # A cache shared with an earlier cell would turn a cold compile into a warm one.
    places = {
        "TORCHINDUCTOR_CACHE_DIR": (caches or folder) / "inductor",
        "TRITON_CACHE_DIR": (caches or folder) / "triton",
        "TMPDIR": folder / "tmp",
    }
    for name, place in places.items():
        place.mkdir(parents=True, exist_ok=True)
        found[name] = str(place)
    return found | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", VARIABLE: token}


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.kill(pid, number)


def _close_quietly(action: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        action()
