"""Commits in their order: stored from a repository, the range between two of them, tags, the story of a pull request, a search.

Commits are ordered by the position in the line that `commits import` stored, never by dates. To store a history, the stored
commits of the repository and the line of the import are held in memory and compared there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.orm import aliased

from db.commits.links import CommitsReport, Mark, link, read_message, read_subject
from db.connecting import Source, changing, chunks, connected
from db.incoming import branch_key
from db.schema import Branch, Commit, CommitLink, Run, Tag
from db.store_errors import CommitError, one_line
from db.stored_values import clean, moment_of

#: Names with a slash, such as `ciflow/trunk/1234`, are the tags of bots, which tag by the thousand; people name releases.
_OF_BOTS = "/"


def put_tags(conn: Connection, repo: str, tags: Mapping[str, str]) -> bool:
    """Store the tags of a clone (whole shas by name), and return whether that changed anything.

    A tag that was moved names its new commit from now on; one that the clone does not have stays, as not every clone has all.
    A tag with a slash in its name is kept only if the database knows its commit.
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
    """Return the commits with this tag, as sorted pairs of repository and sha: at most one for each repository."""
    query = select(Tag.repo, Tag.sha).where(Tag.name == name).order_by(Tag.repo)
    return [(repo, sha) for repo, sha in conn.execute(query)]


def measured_tags(conn: Connection) -> list[str]:
    """Return the tags of commits that some run measured, sorted."""
    ran = exists().where(Run.commit == Commit.id, Commit.repo == Tag.repo, Commit.sha == Tag.sha)
    return list(conn.execute(select(Tag.name).where(ran).distinct().order_by(Tag.name)).scalars())


def tags_of(conn: Connection, shas: Iterable[str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the sorted tags of commits by repository and sha; commits without any are left out."""
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


_SHORTEST_SHA = 4
_MOST_WORDS = 20
_AFTER_HEX = "g"
_IMPORT = "`inductor-watch commits import --git PATH`"
_PR_TEXT = re.compile(
    r"(?:PR\s*)?#?([1-9][0-9]{0,8})|https://github\.com/[\w.-]+/[\w.-]+/pull/([1-9][0-9]{0,8})\S*", re.I
)

LandingKind = Literal["landing", "revert"]


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """A commit with its links (shas in the order of their positions) and its tags.

    `position` is None for a commit that was not imported; `committed_at` is when it landed.
    """

    repo: str
    sha: str
    position: int | None
    title: str | None
    pr_number: int | None
    author_date: datetime | None
    committed_at: datetime | None
    reverts: tuple[str, ...] = ()
    reverted_by: tuple[str, ...] = ()
    relands: tuple[str, ...] = ()
    relanded_by: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def links(self) -> dict[str, str]:
        """Shortened shas of linked commits by kind of link, such as `reverted by`; kinds without any are left out."""
        links = {
            "reverts": self.reverts,
            "reverted by": self.reverted_by,
            "relands": self.relands,
            "relanded by": self.relanded_by,
        }
        return {word: ", ".join(sha[:10] for sha in shas) for word, shas in links.items() if shas}


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits that landed after `base`, up to and including `new`, oldest first.

    `distance` is their number in the whole history; `commits` has fewer where an import left some out.
    """

    base: CommitEntry
    new: CommitEntry
    distance: int
    commits: tuple[CommitEntry, ...]


@dataclass(frozen=True, slots=True)
class Landing:
    """One event of a pull request: it landed or was reverted. `again` says that it had landed before."""

    kind: LandingKind
    again: bool
    commit: CommitEntry


def find_commit(source: Source, sha: str, repo: str | None = None) -> CommitEntry:
    """Return the commit of a sha, or of the beginning of one. Raises `CommitError` for no commit, or several."""
    text = sha.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{4,64}", text):
        raise CommitError(f"{one_line(sha)!r} is no commit: write at least {_SHORTEST_SHA} digits of its sha")
    with connected(source) as conn:
        entries = list(_listed(conn, _begins(text), _of(repo), limit=4))
    whole = [entry for entry in entries if entry.sha == text] or entries
    if len(whole) == 1:
        return whole[0]
    if not whole:
        raise CommitError(f"the database has no commit {text[:12]}: import it with {_IMPORT}")
    names = ", ".join(f"{one_line(entry.repo)}@{entry.sha[:16]}" for entry in whole[:3])
    raise CommitError(f"{text[:12]} could be {names}: write more of it, or say --repo")


def commit_range(source: Source, base: str, new: str, repo: str | None = None) -> CommitRange:
    """Return the commits after `base` up to `new` (shas, or beginnings of them): the candidates for a change between the two.

    The range is empty if `new` is `base` or landed before it. Raises `CommitError` where one of the two is unknown, or has no
    position.
    """
    with connected(source) as conn:
        first, last = find_commit(conn, base, repo), find_commit(conn, new, repo)
        if first.repo != last.repo:
            raise CommitError(
                f"{first.sha[:12]} is of {one_line(first.repo)}, {last.sha[:12]} of {one_line(last.repo)}"
            )
        start, end = _position(first), _position(last)
        commits = commits_between(conn, first.repo, start, end)
    return CommitRange(first, last, max(end - start, 0), commits)


def commits_between(source: Source, repo: str, after: int, up_to: int) -> tuple[CommitEntry, ...]:
    """Return the commits of a repository whose position in the line is above `after` and at most `up_to`, oldest first."""
    with connected(source) as conn:
        where = (Commit.repo == repo, Commit.position > after, Commit.position <= up_to)
        return tuple(_listed(conn, *where, newest_first=False))


def landings(source: Source, pr_number: int, repo: str | None = None) -> list[Landing]:
    """Return the landings and reverts of a pull request in their order, including relands under another number."""
    with connected(source) as conn:
        of_pr = select(Commit.id, Commit.title, Commit.position).where(Commit.pr_number == pr_number, _of(repo))
        own = {row.id: row.title for row in conn.execute(of_pr) if row.position is not None}
        landed = [key for key, title in own.items() if not read_subject(title or "").undoes_its_own]
        # Commits linked to a landing, then commits linked to those: the revert of a reland under another number.
        story, added = set(own), set(landed)
        while added:
            linked = (select(CommitLink.commit).where(CommitLink.target.in_(chunk)) for chunk in chunks(sorted(added)))
            added = {key for query in linked for key in conn.execute(query).scalars()} - story
            story |= added
        entries = [entry for chunk in chunks(sorted(story)) for entry in _listed(conn, Commit.id.in_(chunk))]
    shas = {entry.sha for entry in entries}
    ordered = sorted(entries, key=lambda entry: (entry.repo, entry.position or 0))
    return [Landing(_kind(entry, pr_number, shas), not shas.isdisjoint(entry.relands), entry) for entry in ordered]


def find_commits(source: Source, text: str, limit: int = 20, repo: str | None = None) -> list[CommitEntry]:
    """Return commits for a typed text: a pull request (`12345`, `#12345`, its address), digits of a sha, words of a title.

    Matches come in this order, and for each meaning the newest first. Words are searched where no number and no sha matches.
    """
    text = text.strip()
    exact: list[ColumnElement[bool]] = []
    if match := _PR_TEXT.fullmatch(text):
        exact.append(Commit.pr_number == int(match[1] or match[2]))
    if re.fullmatch(rf"[0-9a-fA-F]{{{_SHORTEST_SHA},64}}", text):
        exact.append(_begins(text.lower()))
    matches: dict[tuple[str, str], CommitEntry] = {}
    with connected(source) as conn:
        where = _of(repo)
        for one in exact:
            matches |= {(entry.repo, entry.sha): entry for entry in _listed(conn, one, where, limit=limit)}
        if not matches and (words := text.split()[:_MOST_WORDS]):
            in_title = (Commit.title.icontains(word, autoescape=True) for word in words)
            return list(_listed(conn, *in_title, where, limit=limit))
    return list(matches.values())[:limit]


def list_commits(
    source: Source, *, repo: str | None = None, since: float | None = None, limit: int | None = None
) -> list[CommitEntry]:
    """Return imported commits, newest first; with `since` (seconds since 1970), only commits that landed then or later."""
    landed = None if since is None else Commit.committed_at >= since
    with connected(source) as conn:
        return list(_listed(conn, Commit.position.is_not(None), _of(repo), landed, limit=limit))


def _position(entry: CommitEntry) -> int:
    if entry.position is None:
        raise CommitError(
            f"{entry.sha[:12]} is not on the main line of {one_line(entry.repo)}, as far as it is imported: "
            f"run {_IMPORT}, unless it is a commit of a release or another branch"
        )
    return entry.position


def _kind(entry: CommitEntry, pr_number: int, story: set[str]) -> LandingKind:
    """Return whether a commit landed the pull request or reverted it."""
    undoes_its_own = read_subject(entry.title or "").undoes_its_own
    if not story.isdisjoint(entry.relands) or (entry.pr_number == pr_number and not undoes_its_own):
        return "landing"
    return "revert" if undoes_its_own or not story.isdisjoint(entry.reverts) else "landing"


def _begins(text: str) -> ColumnElement[bool]:
    return and_(Commit.sha >= text, Commit.sha < text + _AFTER_HEX)


def _of(repo: str | None) -> ColumnElement[bool]:
    return true() if repo is None else Commit.repo == repo


def _listed(
    conn: Connection, *where: ColumnElement[bool] | None, newest_first: bool = True, limit: int | None = None
) -> Iterator[CommitEntry]:
    order = Commit.position.desc().nulls_last() if newest_first else Commit.position.asc()
    query = (
        select(Commit)
        .where(*(condition for condition in where if condition is not None))
        .order_by(order, Commit.sha)
        .limit(limit)
    )
    rows = conn.execute(query).all()
    links, tags = _links(conn, [row.id for row in rows]), tags_of(conn, [row.sha for row in rows])
    for row in rows:
        yield CommitEntry(
            repo=row.repo,
            sha=row.sha,
            position=row.position,
            title=row.title,
            pr_number=row.pr_number,
            author_date=moment_of(row.author_date),
            committed_at=moment_of(row.committed_at),
            tags=tags.get((row.repo, row.sha), ()),
            **{name: tuple(shas) for name, shas in links[row.id].items()},
        )


_BACK = {"reverts": "reverted_by", "relands": "relanded_by"}


def _links(conn: Connection, keys: Sequence[int]) -> dict[int, dict[str, list[str]]]:
    """Return the shas that each commit is linked with, by the commit's key and the field of `CommitEntry`."""
    links: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    one, other = aliased(Commit), aliased(Commit)
    query = (
        select(CommitLink, one.sha.label("from_sha"), other.sha.label("to_sha"))
        .join(one, one.id == CommitLink.commit)
        .join(other, other.id == CommitLink.target)
        .order_by(one.position, other.position)
    )
    for chunk in chunks(keys):
        wanted = set(chunk)
        for row in conn.execute(query.where(or_(CommitLink.commit.in_(chunk), CommitLink.target.in_(chunk)))):
            if row.commit in wanted:
                links[row.commit][row.kind].append(row.to_sha)
            if row.target in wanted:
                links[row.target][_BACK[row.kind]].append(row.from_sha)
    return links


_FACTS = ("position", "author_date", "committed_at", "title", "pr_number")
#: The values of `_FACTS`, or the first of them.
Facts = tuple[Any, ...]
_CHUNK = 10_000


class LandedCommit(NamedTuple):
    """A commit as git has it: its position in the line (0 is the oldest), moments in seconds since 1970, its message."""

    position: int
    sha: str
    author_date: float | None
    committed_at: float | None
    subject: str
    message: str


def store_commits(
    target: Engine | Connection,
    repo: str,
    chosen: Iterable[LandedCommit],
    others: Iterable[tuple[int, str]] = (),
    *,
    starts: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
    replace: bool = False,
) -> CommitsReport:
    """Store the commits `chosen` of a line; `others` are the position and sha of every other commit in it.

    Both may be generators and are read once, within the transaction. `starts` has, by the name of a branch, the sha of
    the chosen commit at which it left the line; `tags` are for `put_tags`. Git's facts replace facts of bundles.
    Commits that an earlier, longer import stored keep their positions. If that import's line is another one, neither the
    beginning nor the continuation of this, `CommitError` is raised unless `replace` drops the earlier line. Raises
    `StoreError` where the database cannot be written. Nothing is half-written.
    """
    with changing(target) as change:
        line = {sha: position for position, sha in others}
        facts, marks = _read(chosen)
        line |= {sha: values[0] for sha, values in facts.items()}
        columns = (Commit.id, Commit.sha, *(getattr(Commit, name) for name in _FACTS))
        stored = {row.sha: row for row in change.conn.execute(select(*columns).where(Commit.repo == repo))}
        cleared = _settle_line(change.conn, repo, stored, line, replace)
        moved = {sha: (line[sha],) for sha in line.keys() - facts.keys() if _has_moved(stored.get(sha), line)}
        known = {sha: values for sha, values in facts.items() if sha in stored}
        updated = {sha: values for sha, values in known.items() if values != tuple(stored[sha][2:])}
        _update(change.conn, stored, moved)
        _update(change.conn, stored, updated)
        new = [sha for sha in facts if sha not in known]
        for shas in chunks(new, _CHUNK):
            rows = [{"repo": repo, "sha": sha, **dict(zip(_FACTS, facts[sha], strict=True))} for sha in shas]
            change.conn.execute(insert(Commit), rows)
        report = CommitsReport(len(line), len(new), len(updated), len(known) - len(updated))
        link(change.conn, repo, marks, line.keys(), facts.keys(), report)
        started = [put_start(change.conn, repo, name, sha) for name, sha in (starts or {}).items()]
        tagged = put_tags(change.conn, repo, tags or {})
        report.changed = bool(cleared or moved or updated or new or report.changed or tagged or any(started))
        report.tags = change.conn.execute(select(func.count()).where(Tag.repo == repo)).scalar_one()
        change.made = report.changed
        return report


def _read(chosen: Iterable[LandedCommit]) -> tuple[dict[str, Facts], list[Mark]]:
    """Return the columns of each commit by sha, and the commits whose message refers to others."""
    facts: dict[str, Facts] = {}
    marks = []
    for commit in chosen:
        title = clean(commit.subject)
        message = read_message(title, commit.message)
        if message.tells_of_others:
            marks.append(Mark(commit.sha, commit.position, message))
        dates = commit.author_date, commit.committed_at
        facts[commit.sha] = (commit.position, *dates, title, message.subject.pr_number)
    return facts, marks


def _has_moved(row: Row[Any] | None, line: Mapping[str, int]) -> bool:
    return row is not None and row.position is not None and row.position != line[row.sha]


def _settle_line(
    conn: Connection, repo: str, stored: Mapping[str, Row[Any]], line: Mapping[str, int], replace: bool
) -> int:
    """Check that the stored line and this one agree, and return how many commits lost their position because they do not.

    Raises `CommitError` where they do not agree, unless `replace` is set.
    """
    placed = [row for row in stored.values() if row.position is not None]
    strays = sorted((row for row in placed if row.sha not in line), key=lambda row: row.position)
    if not strays:
        return 0
    if strays[0].position >= len(line) and not any(_has_moved(row, line) for row in placed if row.sha in line):
        return 0  # the strays come after the end of this line: it is an older state of the same one
    if not replace:
        raise CommitError(
            f"{one_line(repo)}: {len(strays)} commits of an earlier import are not in this history, the first is"
            f" {strays[0].sha[:12]} {one_line(strays[0].title or '', 50)!r}: name the main line with --ref, or say --replace"
            " where it was rewritten"
        )
    _update(conn, stored, {row.sha: (None,) for row in strays})
    return len(strays)


def _update(conn: Connection, stored: Mapping[str, Row[Any]], changes: Mapping[str, Facts]) -> None:
    """Set the first columns of `_FACTS` of commits, by sha; all changes have equally many values."""
    if changes:
        names = _FACTS[: len(next(iter(changes.values())))]
        statement = update(Commit).where(Commit.id == bindparam("key"))
        statement = statement.values({name: bindparam(f"new_{name}") for name in names})
        parameters = ["key", *(f"new_{name}" for name in names)]
        rows = [dict(zip(parameters, (stored[sha].id, *facts), strict=True)) for sha, facts in changes.items()]
        conn.execute(statement, rows)


@dataclass(frozen=True, slots=True)
class BranchStart:
    """A branch of a repository; `start` is the commit at which it left the main line, None where it is not known."""

    repo: str
    name: str
    start: CommitEntry | None


def branch_starts(source: Source, name: str | None = None) -> list[BranchStart]:
    """Return the branches in the database (or those of one name), sorted by repository and name."""
    query = select(Branch.repo, Branch.name, Commit.sha).outerjoin(Commit, Commit.id == Branch.start)
    query = query.order_by(Branch.repo, Branch.name)
    with connected(source) as conn:
        rows = conn.execute(query if name is None else query.where(Branch.name == name)).all()
        return [
            BranchStart(row.repo, row.name, find_commit(conn, row.sha, row.repo) if row.sha else None) for row in rows
        ]


def set_branch_start(target: Engine | Connection, repo: str, name: str, sha: str) -> CommitEntry:
    """Store where a branch started; add the branch if there is none of this name.

    Raises `CommitError` for a commit that is not in the database.
    """
    with changing(target) as change:
        start = find_commit(change.conn, sha, repo)
        change.made = put_start(change.conn, repo, name, start.sha)
    return start


def put_start(conn: Connection, repo: str, name: str, sha: str) -> bool:
    """Store the start of a branch (the whole sha of a stored commit), and return whether that changed anything."""
    if not name.strip():
        raise CommitError("a branch needs a name")
    name = clean(name)
    number = conn.execute(select(Commit.id).where(Commit.repo == repo, Commit.sha == sha)).scalar_one()
    known = conn.execute(select(Branch.start).where(Branch.repo == repo, Branch.name == name)).scalar()
    if known == number:
        return False
    branch = branch_key(conn, repo, name)
    conn.execute(update(Branch).where(Branch.id == branch).values(start=number))
    return True


def measured_commits(source: Source, repo: str) -> set[str]:
    """Return the commits of a repository that runs measured."""
    return _shas(source, Commit.repo == repo, Commit.id.in_(select(Run.commit)))


def unplaced_commits(source: Source, repo: str) -> set[str]:
    """Return the commits of a repository that are in the database and have no position."""
    return _shas(source, Commit.repo == repo, Commit.position.is_(None))


def placed_commits(source: Source, repo: str) -> set[str]:
    """Return the commits of a repository that are in the database and have a position."""
    return _shas(source, Commit.repo == repo, Commit.position.is_not(None))


def _shas(source: Source, *where: ColumnElement[bool]) -> set[str]:
    with connected(source) as conn:
        return set(conn.execute(select(Commit.sha).where(*where)).scalars())


def check_repo(repo: str) -> str:
    """Return the name of a repository as it is stored, such as `pytorch/pytorch`. Raises `CommitError` for an unfit name."""
    if not repo.strip() or not repo.isprintable() or len(repo) > 200:
        raise CommitError(f"{one_line(repo)!r} is no name of a repository: write owner/name")
    return repo.strip()
