"""The errors of the store. Each message is one line that says what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from sqlalchemy.exc import DBAPIError

from collector.usage_errors import ExpectedError
from collector.usage_errors import one_line as one_line


class StoreError(ExpectedError):
    """A database that cannot be opened, read or written; the text is one line that says why and what to do."""

    exit_code = 4


class SideError(StoreError):
    """A text that names no side of a comparison, or several."""

    exit_code = 2


class NoBaseError(SideError):
    """A newest night that can be compared with none of the earlier nights."""

    exit_code = 3


class FilterError(StoreError):
    """A suite, model, phase, dtype, device or config that the database does not know."""

    exit_code = 2


class DamagedError(StoreError):
    """A database file whose pages are damaged."""


class RecordError(StoreError):
    """A regression that cannot be written: an unknown name, or a state that cannot follow the current one."""

    exit_code = 2


class CommitError(StoreError):
    """A text that names no commit of the database, or a history that contradicts the one that it holds."""

    exit_code = 2


class ExportingError(ExpectedError):
    """A target that cannot be written, or a format that does not fit the target; the text is one line."""


_WRITING = "another program is writing to it; try again when that has ended"
_FULL = "the disk is full; make room and repeat, nothing was half-written"
_READ_ONLY = "it was opened read-only"
_ROLES = "docs/store.md lists the roles"
_NO_CONNECTION = "the server has no connection left; try again, or raise max_connections"
_CLOSED = "the server closed the connection; repeat when it is back, nothing was half-written"
_NOT_OURS = "it is not a database of inductor-watch; choose another with --db"
_DAMAGED = "it is damaged; ingest the bundles into a new database, they hold everything"

#: Parts of messages of SQLite, of PostgreSQL and of its driver, and the advice for them. The first match counts.
_ADVICE = {
    "locked": _WRITING,
    "is full": _FULL,
    "readonly": "the file or its folder cannot be written; choose another place with --db",
    "query_only": _READ_ONLY,
    "unable to open": "its folder cannot be written or does not exist; choose another place with --db",
    "not a database": _NOT_OURS,
    "malformed": _DAMAGED,
    "disk i/o error": "the disk or its file system failed; nothing was half-written, see `inductor-watch db check`",
    "no such table": _NOT_OURS,
    "no space left": _FULL,
    "could not extend file": _FULL,
    "could not write": _FULL,
    "lock timeout": _WRITING,
    "deadlock detected": "another program was writing too; repeat, nothing was half-written",
    "could not serialize": "another program was writing too; repeat, nothing was half-written",
    "read-only transaction": _READ_ONLY,
    "permission denied": f"this user lacks the right to do it; {_ROLES}",
    "must be owner": f"only the user who created the tables may change them; {_ROLES}",
    "password authentication failed": "correct the user or password in --db, PGPASSWORD or ~/.pgpass",
    "no password supplied": "put the password into PGPASSWORD or ~/.pgpass",
    "peer authentication failed": "name another user: postgresql://USER@HOST/NAME",
    "no pg_hba.conf entry": "the server does not let this user in from this host; its pg_hba.conf says who may",
    "too many clients": _NO_CONNECTION,
    "remaining connection slots": _NO_CONNECTION,
    "failed to resolve": "no such host; correct it in --db",
    "connection to server": "is the server up, and are host, port and name in --db right?",
    "connection failed": "is the server up, and are host, port and name in --db right?",
    "cannot contain nul": "no name in the database has such a character",
    "timeout expired": "the server does not answer; correct host and port in --db",
    "terminating connection": _CLOSED,
    "server closed the connection": _CLOSED,
    "connection is lost": _CLOSED,
    "invalid page": _DAMAGED,
    "relation": _NOT_OURS,
}
_MISSING = re.compile(r'(database|role) "(.*)" does not exist')


def explain(error: DBAPIError, where: str = "the database") -> StoreError:
    """Return a `StoreError` of one line for a driver's error, with advice where the cause is known."""
    message = one_line(" ".join(str(error.orig).split()), 400)
    fitting = (advice for part, advice in _ADVICE.items() if part in message.lower())
    advice = next(fitting, "see `inductor-watch doctor`")
    if missing := _MISSING.search(message):
        advice = f"create it: {'createdb' if missing[1] == 'database' else 'createuser'} {missing[2]}"
    return StoreError(f"{where}: {message}: {advice}")


def nearest(wanted: str, known: Iterable[str]) -> str:
    """Return `; nearest: a, b` for names that resemble or hold `wanted`, else `; known: ` with up to three names, or nothing."""
    names = sorted(set(known))
    # Names that differ only in case are equal here.
    lower = {name.lower(): name for name in reversed(names)}
    close = [lower[word] for word in difflib.get_close_matches(wanted.lower(), lower, n=3, cutoff=0.4)]
    # A part of a long name, such as the model of a cell, has too few of its letters to be a close match.
    close = close or [name for name in names if wanted and wanted.lower() in name.lower()][:3]
    if close:
        return f"; nearest: {', '.join(map(one_line, close))}"
    return f"; known: {', '.join(map(one_line, names[:3]))}{', ...' if len(names) > 3 else ''}" if names else ""


def in_words(words: Sequence[str], last: str) -> str:
    """Join words as in `a, b and c`, with `last` in place of the last comma."""
    *others, final = words
    return f"{', '.join(others)} {last} {final}" if others else final


def counted(number: int, word: str) -> str:
    """Return a number and its noun: `1 row`, `2 rows`."""
    return f"{number} {word}{'s' * (number != 1)}"
