"""What a CI service says of the job that this process runs in, and what a step tells the steps after it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from collector.usage_errors import ConfigError


def job_url(environ: Mapping[str, str] = os.environ) -> str:
    """The page of the job, so that a run leads to its log; empty outside a service that tells.

    GitHub Actions documents the three parts under "Default environment variables"; GitLab and Jenkins say it whole.
    """
    server, repo, run = (environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repo and run:
        attempt = environ.get("GITHUB_RUN_ATTEMPT", "")
        return f"{server}/{repo}/actions/runs/{run}" + (f"/attempts/{attempt}" if attempt else "")
    return environ.get("CI_JOB_URL") or environ.get("BUILD_URL") or ""


def workflow_night(environ: Mapping[str, str] = os.environ) -> str:
    """A name for the night of this workflow run, the same in each of its jobs; empty outside GitHub Actions.

    A workflow that is run again from its start is another night, therefore the attempt.
    """
    run, attempt = environ.get("GITHUB_RUN_ID", ""), environ.get("GITHUB_RUN_ATTEMPT", "")
    return f"actions-{run}-{attempt or 1}" if run else ""


def write_outputs(values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
    """Hands values to the later steps and jobs of a workflow, `name=value` a line in the file `GITHUB_OUTPUT`.

    Raises:
        ConfigError: no such file is named.
    """
    with outputs_file(environ).open("a", encoding="utf-8") as stream:
        stream.write("".join(f"{name}={text}\n" for name, text in values.items()))


def outputs_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a step's outputs go. Raises `ConfigError` outside a step of GitHub Actions."""
    path = environ.get("GITHUB_OUTPUT")
    if not path:
        raise ConfigError("GITHUB_OUTPUT names no file: --github-output is for a step of GitHub Actions")
    return Path(path)
