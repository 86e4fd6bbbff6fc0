"""Names that repositories give their commits for good: git's tags, as `commits import` found them in a clone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, delete, exists, insert, select

from db.connecting import chunks
from db.schema import Commit, Run, Tag
from db.texts import clean

#: Bots tag by the thousand, under names such as `ciflow/trunk/1234`; people name releases.
_OF_BOTS = "/"


def put_tags(conn: Connection, repo: str, tags: Mapping[str, str]) -> bool:
    """Stores what a clone says (whole shas by name); says whether that changed anything.

    A tag that was moved names its new commit from now on; one that the clone does not have stays, as not every clone has all.
    With a slash in its name it is kept only if the database knows its commit.
    """
    wanted = {clean(name): sha for name, sha in tags.items() if clean(name).strip()}
    known = _known(conn, repo, {sha for name, sha in wanted.items() if _OF_BOTS in name})
    wanted = {name: sha for name, sha in wanted.items() if _OF_BOTS not in name or sha in known}
    stored = {row.name: row.sha for row in conn.execute(select(Tag.name, Tag.sha).where(Tag.repo == repo))}
    changed = sorted(name for name, sha in wanted.items() if stored.get(name) != sha)
    for names in chunks(changed):
        conn.execute(delete(Tag).where(Tag.repo == repo, Tag.name.in_(names)))
        conn.execute(insert(Tag), [{"repo": repo, "name": name, "sha": wanted[name]} for name in names])
    return bool(changed)


def tagged(conn: Connection, name: str) -> list[tuple[str, str]]:
    """The commits that go by this name, as repository and sha, sorted: one a repository."""
    query = select(Tag.repo, Tag.sha).where(Tag.name == name).order_by(Tag.repo)
    return [(repo, sha) for repo, sha in conn.execute(query)]


def measured_tags(conn: Connection) -> list[str]:
    """The names of commits that some run measured, sorted."""
    ran = exists().where(Run.commit == Commit.id, Commit.repo == Tag.repo, Commit.sha == Tag.sha)
    return list(conn.execute(select(Tag.name).where(ran).distinct().order_by(Tag.name)).scalars())


def tags_of(conn: Connection, shas: Iterable[str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """By repository and sha the names of these commits, sorted; commits without any are left out."""
    by_commit: dict[tuple[str, str], list[str]] = {}
    for some in chunks(sorted(set(shas))):
        query = select(Tag.repo, Tag.sha, Tag.name).where(Tag.sha.in_(some)).order_by(Tag.name)
        for repo, sha, name in conn.execute(query):
            by_commit.setdefault((repo, sha), []).append(name)
    return {key: tuple(names) for key, names in by_commit.items()}


def _known(conn: Connection, repo: str, shas: set[str]) -> set[str]:
    known: set[str] = set()
    for some in chunks(sorted(shas)):
        known |= set(conn.execute(select(Commit.sha).where(Commit.repo == repo, Commit.sha.in_(some))).scalars())
    return known
