"""Links to the host of the code, for commits, ranges of commits and pull requests.

An address is made from the stored name of the repository, if that is an owner and a name, and from a sha or a number.
Nothing else that a person or a bundle wrote becomes an address. The page asks the host for nothing.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

from markupsafe import Markup, escape

from db.queries.sides import Side

_HOST = "https://github.com"
_REPO = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_SHA = re.compile(r"[0-9a-f]{7,64}")
_THREAD = re.compile(re.escape(_HOST) + r"/([^/\s]+/[^/\s]+)/((?:pull|issues)/[1-9][0-9]{0,8})")
#: Commits of local clones, which get no link. Each run of the script sets them for its own store.
LOCAL: ContextVar[frozenset[str]] = ContextVar("local_commits", default=frozenset())
#: Digits of a sha that are shown.
SHOWN = 10


def commit(repo: str, sha: str | None, absent: str = "") -> Markup:
    """The first digits of a sha, with a link to the commit where there can be one."""
    if not sha:
        return escape(absent)
    return _link(repo, f"commit/{sha}", sha[:SHOWN], "commit", linked=_is_hosted(sha))


def commits(repo: str, base: str | None, new: str | None) -> Markup:
    """`base...new` with a link to what landed between the two; the one commit where they are the same."""
    if not (base and new) or base == new:
        return commit(repo, new or base)
    linked = all(map(_is_hosted, (base, new)))
    shown = f"{base[:SHOWN]}...{new[:SHOWN]}"
    return _link(repo, f"compare/{base}...{new}", shown, "commits between", linked=linked)


def pull(repo: str, number: int | None, absent: str = "") -> Markup:
    """The number of a pull request with its link."""
    return _link(repo, f"pull/{number}", f"#{number}", "pull request") if number else escape(absent)


def reference(repo: str, written: str) -> Markup:
    """What a person wrote as a link: a link where it is an issue or pull request of this very repository."""
    match = _THREAD.fullmatch(written.strip())
    if match and match[1] == repo:
        return _link(repo, match[2], written, "issue or pull request")
    return escape(written)


def between(base: Side, new: Side) -> Markup:
    """What landed between two sides of one commit each; empty where that is no range."""
    repos = {run.repo for side in (base, new) for run in side.runs}
    if len(repos) == len(base.commits) == len(new.commits) == 1 and base.commits != new.commits:
        return commits(repos.pop(), base.commits[0], new.commits[0])
    return Markup("")


def _is_hosted(sha: str) -> bool:
    return _SHA.fullmatch(sha) is not None and sha not in LOCAL.get()


def _link(repo: str, path: str, shown: str, what: str, *, linked: bool = True) -> Markup:
    if not linked or _REPO.fullmatch(repo) is None:
        return escape(shown)
    # The title contains the words that are seen, as screen readers need it.
    return Markup('<a class="out" href="{}" target="_blank" rel="noopener noreferrer" title="{}">{}</a>').format(
        f"{_HOST}/{repo}/{path}", f"{what} {shown} on {_HOST.removeprefix('https://')}, in a new tab", shown
    )
