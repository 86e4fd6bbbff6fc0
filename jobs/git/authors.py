"""Who writes a record where `--author` and the variables behind it name nobody."""

from __future__ import annotations

import getpass
import subprocess


def default_author() -> str:
    """git's `user.name`, or the user's; `unknown` where there is none."""
    return _git_name() or _user() or "unknown"


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
