"""What happens around measuring: plan, pool, nightly, and the command line."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def tool_version() -> str:
    """The installed version of this program."""
    try:
        return version("inductor-watch")
    except PackageNotFoundError:
        return "0"
