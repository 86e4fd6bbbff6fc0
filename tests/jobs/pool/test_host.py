"""What a run asks of this machine: its own age; the rest is under test where it is used."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.collector.processes import ROOT


def test_the_age_of_a_process_counts_from_its_start():
    code = (
        "import time; from jobs.pool.host import since_start_s; now = time.monotonic(); print(now, since_start_s(now))"
    )
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    now, age_s = map(float, done.stdout.split())
    tick_s = 0.02  # the kernel counts in hundredths
    assert 0 < age_s < now - before + tick_s
