#!/usr/bin/env python3
"""Run the tests that need a GPU, each file in a pytest of its own, and print a line for each file at the end.

So a file that crashes, or holds memory, does not affect the other files. When this script, or the process that started it, is
ended, pytest is interrupted and none of its processes is left on the GPU.

    python scripts/gpu_tests.py [OPTION of pytest ...]
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn
from xml.etree import ElementTree

#: Seconds that an interrupted pytest has to end what its tests have started.
_GRACE_S = 10.0
#: The prctl option for a signal when the parent dies (linux/prctl.h).
_PR_SET_PDEATHSIG = 1
_HAS_GPU = "import sys, torch; sys.exit(not torch.cuda.is_available())"


@dataclass(frozen=True)
class Result:
    """The result of a file's pytest: its exit code, its seconds, and the numbers of tests by outcome."""

    file: str
    code: int
    seconds: float
    tests: Counter[str]

    def __str__(self) -> str:
        word = "passed" if self.code == 0 else f"FAILED with exit code {self.code}"
        return f"{self.file}: {word} in {self.seconds:.0f} s ({spell(self.tests)})"


def main(options: Sequence[str]) -> int:
    """Run all files; return 0 if every pytest passed, else 1."""
    if subprocess.run([sys.executable, "-c", _HAS_GPU], check=False).returncode:
        print("no GPU here: nothing was run")
        return 1
    results = [run_file(file, options) for file in marked_files(Path("tests"))]
    print("", *results, sep="\n")
    total = sum((result.tests for result in results), Counter[str]())
    files = f"{len(results)} file{'' if len(results) == 1 else 's'}"
    print(f"in all: {spell(total)} in {files}, {sum(result.seconds for result in results):.0f} s")
    return int(any(result.code for result in results))


def marked_files(folder: Path) -> list[str]:
    """Return the test files in which a test has the mark `gpu`."""
    return sorted(str(path) for path in folder.rglob("test_*.py") if re.search(r"mark\.gpu\b", path.read_text()))


def run_file(file: str, options: Sequence[str]) -> Result:
    """Run the marked tests of one file. However this function ends, no process is left in pytest's group."""
    print(f"== {file}", flush=True)
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-rxs", file, f"--junitxml={report}", *options]
        pytest = subprocess.Popen(command, start_new_session=True, preexec_fn=interrupt_with_parent)
        try:
            code = pytest.wait()
        finally:
            if pytest.poll() is None:
                interrupt(pytest)
            with suppress(ProcessLookupError):
                os.killpg(pytest.pid, signal.SIGKILL)
        code = code if code >= 0 else 128 - code  # a shell's exit code of a signal
        return Result(file, code, time.monotonic() - began, outcomes(report))


def interrupt(pytest: subprocess.Popen[bytes]) -> None:
    """Interrupt pytest, as from the keyboard, so that it ends its fixtures; wait for it for at most `_GRACE_S`."""
    pytest.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        pytest.wait(_GRACE_S)


def interrupt_with_parent() -> None:
    """Make the kernel interrupt this process when its parent dies for any reason."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def outcomes(report: Path) -> Counter[str]:
    """Count the tests in pytest's report by outcome; return no counts if pytest died before it wrote a report."""
    found: Counter[str] = Counter()
    with suppress(OSError, ElementTree.ParseError):
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314
            marks = {child.tag: child.get("type") for child in case}
            if "failure" in marks or "error" in marks:
                found["failed"] += 1
            elif "skipped" in marks:
                found["expected to fail" if marks["skipped"] == "pytest.xfail" else "skipped"] += 1
            else:
                found["passed"] += 1
    return found


def spell(tests: Counter[str]) -> str:
    """Spell numbers of tests as `3 tests passed, 1 failed`."""
    words = [f"{number} {outcome}" for outcome, number in tests.items() if number and outcome != "passed"]
    return ", ".join([f"{tests['passed']} test{'' if tests['passed'] == 1 else 's'} passed", *words])


def end(number: int, _: FrameType | None) -> NoReturn:
    """Handle a signal by `SystemExit`, so that the stack unwinds and pytest is interrupted."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    interrupt_with_parent()
    for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(ending, end)
    sys.exit(main(sys.argv[1:]))
