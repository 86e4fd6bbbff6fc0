"""Links to the host of the code, for commits, ranges of them and pull requests.

Made from the name of the repository as it is stored, and only where that is an owner and a name and the rest is a sha or a
number: nothing that a person or a bundle wrote becomes an address. The page itself asks the host for nothing; a link that is
followed does not tell it where from.
"""

from __future__ import annotations

import re

from dashboard.components.markup import text
from db.queries.sides import Side

_HOST = "https://github.com"
_REPO = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_SHA = re.compile(r"[0-9a-f]{7,64}")
_TALK = re.compile(re.escape(_HOST) + r"/([^/\s]+/[^/\s]+)/(pull|issues)/([1-9][0-9]{0,8})")
_NUMBER = re.compile(r"#([1-9][0-9]{0,8})")
#: Digits of a sha that are shown.
SHOWN = 10


def commit(repo: str, sha: str | None, absent: str = "") -> str:
    """The first digits of a sha, as HTML: a link to the commit where there can be one."""
    if not sha:
        return text(absent)
    return _link(repo, f"commit/{sha}", sha[:SHOWN], "commit", is_there=_SHA.fullmatch(sha) is not None)


def commits(repo: str, base: str | None, new: str | None) -> str:
    """`base...new` as HTML, a link to what landed between the two; the one commit where they are the same."""
    if not (base and new) or base == new:
        return commit(repo, new or base)
    both = f"{base}...{new}"
    is_there = all(_SHA.fullmatch(sha) for sha in (base, new))
    return _link(repo, f"compare/{both}", f"{base[:SHOWN]}...{new[:SHOWN]}", "commits between", is_there=is_there)


def pull(repo: str, number: int | None, absent: str = "") -> str:
    """The number of a pull request as HTML, with its link."""
    return _link(repo, f"pull/{number}", f"#{number}", "pull request") if number else text(absent)


def reference(repo: str, written: str) -> str:
    """What a person wrote as a link, as HTML: one where it means an issue or pull request of this very repository."""
    if match := _NUMBER.fullmatch(written.strip()):
        return _link(repo, f"issues/{match[1]}", written, "issue or pull request")
    match = _TALK.fullmatch(written.strip())
    if match and match[1] == repo:
        return _link(repo, f"{match[2]}/{match[3]}", written, "issue or pull request")
    return text(written)


def side(found: Side, said: str) -> str:
    """`said`, in which the side is spelled as `Side.title` does, as HTML with links for its commits."""
    where = f"{'+'.join(found.branches)}@"
    shas = "+".join(sha[:SHOWN] for sha in found.commits)
    before, between, after = said.partition(where + shas)
    if not between:
        return text(said)
    repos = {run.commit: run.repo for run in found.runs}
    linked = "+".join(commit(repos[sha], sha) for sha in found.commits)
    return f"{text(before)}{text(where)}{linked}{text(after)}"


def between(base: Side, new: Side) -> str:
    """What landed between two sides of one commit each, as HTML; empty where that is no range."""
    places = [{(run.repo, run.commit) for run in found.runs} for found in (base, new)]
    if any(len(place) != 1 for place in places):
        return ""
    (first,), (second,) = places
    return commits(first[0], first[1], second[1]) if first[0] == second[0] and first[1] != second[1] else ""


def _link(repo: str, path: str, shown: str, what: str, *, is_there: bool = True) -> str:
    if not is_there or _REPO.fullmatch(repo) is None:
        return text(shown)
    title = f"{what} {shown} on {_HOST.removeprefix('https://')}, in a new tab"
    # The words that are seen are a part of the name that is heard.
    return (
        f'<a class="out" href="{text(f"{_HOST}/{repo}/{path}")}" target="_blank" rel="noopener noreferrer" '
        f'title="{text(title)}">{text(shown)}</a>'
    )
