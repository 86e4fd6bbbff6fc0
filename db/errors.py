"""What the store says when it cannot go on: one line each, with what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sqlalchemy.exc import DBAPIError


class StoreError(Exception):
    """The database cannot be opened, read or written; the text is one line that says why and what to do."""


class SideError(StoreError):
    """A text that names no side of a comparison, or more than one."""


class FilterError(StoreError):
    """A suite, model, phase, dtype, device or config that the database does not know."""


#: What SQLite says, and what a person can do about it.
_ADVICE = (
    ("locked", "another program is writing to it; try again when that has ended"),
    ("is full", "the disk is full; make room and repeat, nothing was half-written"),
    ("readonly", "it is open for reading only, or its folder cannot be written; choose another place with --db"),
    ("query_only", "it is open for reading only"),
    ("unable to open", "its folder cannot be written or does not exist; choose another place with --db"),
    ("not a database", "it is not a database of inductor-watch; choose another file with --db"),
    ("malformed", "it is damaged; move it away and ingest the bundles again, they hold everything"),
    ("no such table", "it is not a database of inductor-watch; choose another file with --db"),
)


def explain(error: DBAPIError, where: str = "the database") -> StoreError:
    """One line for what a driver raised, with advice where the cause is known."""
    said = " ".join(str(error.orig).split())
    advice = next((advice for pattern, advice in _ADVICE if pattern in said.lower()), "see `inductor-watch doctor`")
    return StoreError(f"{where}: {said}: {advice}")


def nearest(wanted: str, known: Iterable[str], count: int = 3) -> str:
    """`; nearest: a, b` for names that resemble `wanted`, or the first few known ones, or nothing."""
    names = sorted(set(known))
    close = difflib.get_close_matches(wanted, names, n=count, cutoff=0.4)
    if close:
        return f"; nearest: {', '.join(map(one_line, close))}"
    return f"; known: {', '.join(map(one_line, names[:count]))}{', ...' if len(names) > count else ''}" if names else ""


def one_line(text: str, limit: int = 80) -> str:
    """A name fit for an error line: no line breaks or control characters, at most `limit` characters."""
    flat = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."
