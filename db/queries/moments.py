"""Times: ISO 8601 texts outside, seconds since 1970 inside (eight bytes, sortable, the same in every database)."""

from __future__ import annotations

from datetime import UTC, datetime

_END = 9e9


def to_epoch(text: str) -> float:
    """Seconds since 1970 of an ISO 8601 text; one without an offset is UTC.

    Raises `ValueError` for any other text, and for times outside 1970 to 2255, which not every reader can show.
    """
    moment = datetime.fromisoformat(text)
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < _END:
        raise ValueError(f"{text} is not between 1970 and 2255")
    return seconds


def from_epoch(seconds: float) -> datetime:
    """The moment in UTC, to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_of(seconds: float | None) -> datetime | None:
    """The moment, or None where there is none."""
    return None if seconds is None else from_epoch(seconds)
