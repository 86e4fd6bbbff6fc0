"""The dashboard's server as a person starts it: a process of its own on a free loopback port, and how much memory it takes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its address, its process, and the seconds until it answered that it is there."""

    address: str
    process: subprocess.Popen[bytes]
    started_s: float

    def spent_ms(self) -> float:
        """Processor time that it has taken so far."""
        return _spent_ms(self.process.pid)

    def peak_mb(self) -> float:
        """The most memory that it has had resident, in 10^6 bytes, as the kernel counts it."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError("the kernel does not say how much memory a process has had")


@contextmanager
def server(store: str, log: Path, app: str = "dashboard/app.py", *settings: str) -> Iterator[Server]:
    """`streamlit run` of an app on a store, until the block ends; what it prints goes to `log`.

    Raises:
        RuntimeError: it ended or did not answer; with the end of its log.
    """
    port = _free_port()
    command: list[str | Path] = [
        Path(sys.executable).with_name("streamlit"),
        "run",
        app,
        "--server.port",
        str(port),
        *settings,
    ]
    began = time.perf_counter()
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "INDUCTOR_WATCH_DB": store}, stdout=stream, stderr=stream
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _answers(address, process, log)
        yield Server(address, process, time.perf_counter() - began)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def browsers_ms() -> float:
    """Processor time that this process's browsers, with all that they have started, have taken so far."""
    parents: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue  # it has ended meanwhile
        names[int(folder.name)] = head
        parents.setdefault(int(rest.split()[1]), []).append(int(folder.name))
    waiting, found = [(os.getpid(), False)], 0.0
    while waiting:
        place, is_browser = waiting.pop()
        for child in parents.get(place, []):
            is_one = is_browser or "chrom" in names[child]
            waiting.append((child, is_one))
            found += _spent_ms(child) if is_one else 0.0
    return found


def _spent_ms(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1):  # noqa: S310 -- loopback
                return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"streamlit did not start:\n{log.read_text(errors='replace')[-2000:]}")
