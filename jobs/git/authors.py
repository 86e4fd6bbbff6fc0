"""Who writes a record: whoever says so, else whoever the machine says."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Mapping

#: Names the author where `--author` does not; GitHub Actions names the actor.
VARIABLES = ("INDUCTOR_WATCH_AUTHOR", "GITHUB_ACTOR")


def author_of(given: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The name given, that of the environment, git's `user.name`, or the user's; `unknown` where there is none."""
    names = (given, *(environ.get(name) for name in VARIABLES))
    return next((name.strip() for name in names if name and name.strip()), None) or _git_name() or _user() or "unknown"


def _git_name() -> str:
    try:
        done = subprocess.run(["git", "config", "user.name"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
