"""What a CI service says of the job that this process runs in."""

from __future__ import annotations

import os
from collections.abc import Mapping


def job_url(environ: Mapping[str, str] = os.environ) -> str:
    """The page of the job, so that a run leads to its log; empty outside a service that tells.

    GitHub Actions documents the three parts under "Default environment variables"; GitLab and Jenkins say it whole.
    """
    server, repo, run = (environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repo and run:
        attempt = environ.get("GITHUB_RUN_ATTEMPT", "")
        return f"{server}/{repo}/actions/runs/{run}" + (f"/attempts/{attempt}" if attempt else "")
    return environ.get("CI_JOB_URL") or environ.get("BUILD_URL") or ""
