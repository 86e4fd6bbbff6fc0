"""The facts that a CI service gives about the job of this process, and the outputs that a step hands to later steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from collector.usage_errors import ConfigError


def job_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the job's page, so that a run links to its log; empty outside a service that gives it.

    GitHub Actions documents the URL's three parts under "Default environment variables"; GitLab and Jenkins give the whole URL.
    """
    server, repo, run = (environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repo and run:
        attempt = environ.get("GITHUB_RUN_ATTEMPT", "")
        return f"{server}/{repo}/actions/runs/{run}" + (f"/attempts/{attempt}" if attempt else "")
    return environ.get("CI_JOB_URL") or environ.get("BUILD_URL") or ""


def workflow_night(environ: Mapping[str, str] = os.environ) -> str:
    """Return a name for the night of this workflow run, equal in all of its jobs; empty outside GitHub Actions.

    The name has the attempt, since a workflow that is run again from its start is another night.
    """
    run, attempt = environ.get("GITHUB_RUN_ID", ""), environ.get("GITHUB_RUN_ATTEMPT", "")
    return f"actions-{run}-{attempt or 1}" if run else ""


def write_outputs(values: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
    """Hand values to the later steps and jobs of a workflow, as lines `name=value` in the file `GITHUB_OUTPUT`.

    Raises:
        ConfigError: `GITHUB_OUTPUT` names no file.
    """
    with outputs_file(environ).open("a", encoding="utf-8") as stream:
        stream.write("".join(f"{name}={text}\n" for name, text in values.items()))


def outputs_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of a step's outputs. Raises `ConfigError` outside a step of GitHub Actions."""
    path = environ.get("GITHUB_OUTPUT")
    if not path:
        raise ConfigError("GITHUB_OUTPUT names no file: --github-output is for a step of GitHub Actions")
    return Path(path)
