"""Measures a request in the environment that it is started in: `python -m jobs.builds.worker`, the request on standard input.

A run of the request's folder that was not finished is taken up again. When the process that asked is gone, standard input
ends, and so does this process, as if it had been interrupted.
"""

from __future__ import annotations

from pathlib import Path

from jobs.builds.request import Request
from jobs.pool.child import serve


def measure(request: Request) -> None:
    """Measures the request's cells, or what is left of them.

    Raises:
        NothingPlannedError: no cell can be measured here.
        ResumeError: what was begun was begun with another torch or on another testbed.
    """
    from jobs.plan.selection import planned_night
    from jobs.pool.resuming import asked_of, find_night
    from jobs.pool.session import measure_and_store, resume_and_store
    from jobs.pool.testbeds import device_of, find_testbeds, testbeds_of

    folder = Path(request.folder)
    if any(folder.glob("*.jsonl*")):
        from jobs.pool.requested_options import asked_pace

        found = find_night(folder, None)
        if found:
            paces = [asked_pace(asked_of(run), float("inf")) for run in found]
            resume_and_store(found, testbeds_of(found, paces, serve=True), None)
        return
    testbeds = find_testbeds(request.selection.device, request.pace, serve=True)
    plan = planned_night(device_of(testbeds), request.selection, request.configs)
    measure_and_store(plan, testbeds, request.names, request.settings, folder, None)


if __name__ == "__main__":
    serve(lambda told: measure(Request.from_json(told)))
