"""CPU time of a cell: of its process, of the compile workers it has, and of those that have ended."""

from __future__ import annotations

import os
from pathlib import Path

#: Fields of /proc/PID/stat after the command's name, from 0 (proc(5)): session, then user and system time of the process
#: and of the children it has waited for, in clock ticks.
_SESSION, _TIMES = 3, slice(11, 15)


def session_cpu_s() -> float | None:
    """CPU seconds of every process in this process's session; None where there is no /proc.

    A process that left the session, or was never waited for, is not in it.
    """
    session, ticks = os.getsid(0), 0
    try:
        entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return None
    for entry in entries:
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[_SESSION]) == session:
            ticks += sum(int(field) for field in fields[_TIMES])
    return round(ticks / os.sysconf("SC_CLK_TCK"), 2)
