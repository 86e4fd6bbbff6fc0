"""Everything around measuring: plans, the pool of workers, nights, and the command line."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def tool_version() -> str:
    """Return the installed version of this program; `0` if it is not installed."""
    try:
        return version("inductor-watch")
    except PackageNotFoundError:
        return "0"
