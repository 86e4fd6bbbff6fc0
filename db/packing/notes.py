"""What people write about a run, a commit, a cell or a night."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, insert, select

from db.changing import changing
from db.connecting import Source, connected
from db.errors import RecordError, nearest, one_line
from db.queries.moments import from_epoch
from db.schema import CellRow, Commit, Note, Run
from db.texts import clean

#: What a note can be about, and the column of the public names.
_SUBJECTS: dict[str, Any] = {"run": Run.run_id, "commit": Commit.sha, "cell": CellRow.cell_id, "night": Run.night}
SUBJECTS = tuple(_SUBJECTS)


@dataclass(frozen=True, slots=True)
class NoteInfo:
    """A note: `subject` is the kind of thing, `name` its public name."""

    subject: str
    name: str
    at: datetime
    author: str
    text: str


def add_note(target: Engine | Connection, subject: str, name: str, *, at: datetime, author: str, text: str) -> NoteInfo:
    """Writes a note down. The same once more, by the same author at the same moment, is no second one.

    Raises:
        RecordError: a subject that notes are not about, a name that the database does not know, or no text.
    """
    with changing(target) as change:
        _check(change.conn, subject, name)
        if not text.strip():
            raise RecordError("a note needs a text")
        found = NoteInfo(subject, clean(name), at, clean(author), clean(text))
        change.made = put_note(change.conn, found)
        return found


def notes(source: Source, subject: str | None = None, name: str | None = None) -> list[NoteInfo]:
    """Notes, oldest first: all of them, those about one kind of thing, or those about one thing."""
    query = select(Note.subject, Note.name, Note.at, Note.author, Note.text).order_by(Note.at, Note.id)
    if subject is not None:
        query = query.where(Note.subject == clean(subject))
    if name is not None:
        query = query.where(Note.name == clean(name))
    with connected(source) as conn:
        return [
            NoteInfo(row.subject, row.name, from_epoch(row.at), row.author, row.text) for row in conn.execute(query)
        ]


def put_note(conn: Connection, note: NoteInfo) -> bool:
    """Stores a note as it is, whatever it is about; says whether it was not there yet."""
    row = {"subject": note.subject, "name": note.name, "at": note.at.timestamp(), "author": note.author}
    row["text"] = note.text
    same = [getattr(Note, column) == value for column, value in row.items()]
    if conn.execute(select(Note.id).where(*same)).first() is not None:
        return False
    conn.execute(insert(Note), row)
    return True


def _check(conn: Connection, subject: str, name: str) -> None:
    column = _SUBJECTS.get(subject)
    if column is None:
        raise RecordError(f"no notes about a {one_line(subject)}: one of {', '.join(SUBJECTS)}")
    if conn.execute(select(column).where(column == clean(name)).limit(1)).first() is None:
        known = conn.execute(select(column).distinct().limit(10_000)).scalars()
        raise RecordError(f"no {subject} {one_line(name)!r} in the database{nearest(name, known)}")
