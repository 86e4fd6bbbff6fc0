"""Links to the host of the code, addresses of the dashboard's pages, and addresses of the PyTorch HUD translated to these.

A link to the host is made from the stored name of the repository, if that is an owner and a name, and from a sha or a number.
Nothing else that a person or a bundle wrote becomes an address. The page asks the host for nothing.

An address of a page names tomorrow the same sides as today; `dashboard/url.py` reads it. In addresses of the HUD `lCommit` is the
new side and `rCommit` the base, whatever the words on its page say (its query builder reads the left one as new). Here the sides
are called new and base.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode

from markupsafe import Markup, escape

from db.queries.cells import CellName
from db.queries.sides import Side

_HOST = "https://github.com"
_REPO = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_SHA = re.compile(r"[0-9a-f]{7,64}")
_THREAD = re.compile(re.escape(_HOST) + r"/([^/\s]+/[^/\s]+)/((?:pull|issues)/[1-9][0-9]{0,8})")
#: Commits of local clones, which get no link. Each run of the dashboard's script and each publication sets them for its store.
LOCAL: ContextVar[frozenset[str]] = ContextVar("local_commits", default=frozenset())
#: Digits of a sha that are shown.
SHOWN = 10


def commit(repo: str, sha: str | None, absent: str = "") -> Markup:
    """Return the first digits of a sha, with a link to the commit if it is on the host."""
    if not sha:
        return escape(absent)
    return _link(repo, f"commit/{sha}", sha[:SHOWN], "commit", linked=_is_hosted(sha))


def commits(repo: str, base: str | None, new: str | None) -> Markup:
    """Return `base...new` with a link to the commits that landed in between; the one commit if both are equal."""
    if not (base and new) or base == new:
        return commit(repo, new or base)
    linked = all(map(_is_hosted, (base, new)))
    shown = f"{base[:SHOWN]}...{new[:SHOWN]}"
    return _link(repo, f"compare/{base}...{new}", shown, "commits between", linked=linked)


def pull(repo: str, number: int | None, absent: str = "") -> Markup:
    """Return the number of a pull request with its link."""
    return _link(repo, f"pull/{number}", f"#{number}", "pull request") if number else escape(absent)


def reference(repo: str, written: str) -> Markup:
    """Return a text that a person gave as a link: linked if it is an issue or pull request of this very repository."""
    match = _THREAD.fullmatch(written.strip())
    if match and match[1] == repo:
        return _link(repo, match[2], written, "issue or pull request")
    return escape(written)


def between(base: Side, new: Side) -> Markup:
    """Return a link to the commits between two sides of one commit each; empty if they form no range."""
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


#: Keys that only a HUD link has.
_SIDES = {"new": ("lBranch", "lCommit"), "base": ("rBranch", "rCommit")}
KEYS = (*_SIDES["new"], *_SIDES["base"])
#: Other keys of a HUD link; values without a meaning here are dropped with a note.
_OTHERS = ("dashboard", "startTime", "stopTime", "granularity", "mode", "deviceName")


def is_hud_link(query: Mapping[str, Sequence[str]]) -> bool:
    """Return whether an address comes from the HUD."""
    return any(key in query for key in KEYS)


def translate(query: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Translate a HUD link to the query of the page here, with a sentence for each part that was not taken over."""
    theirs = {key: next(iter(query.get(key, ())), "").strip() for key in (*KEYS, *_OTHERS)}
    ours = {key: list(values) for key, values in query.items() if key not in theirs}
    notes = []
    sides = {key: "@".join(filter(None, map(theirs.get, names))) for key, names in _SIDES.items()}
    ours |= {key: [side] for key, side in sides.items() if side}
    if (mode := theirs["mode"]) in ("inference", "training"):
        ours["phase"] = [mode]
    elif mode:
        notes.append(f"The HUD link asks for the mode {mode!r}; there are inference and training.")
    device = theirs["deviceName"].partition(" ")[0].lower()
    if device in ("cuda", "xpu", "mps", "cpu"):
        ours["device"] = [device]
    elif device:
        notes.append(f"The HUD link asks for the device {theirs['deviceName']!r}; all devices are shown.")
    for key, name in (("since", "startTime"), ("until", "stopTime")):
        if day := _day(theirs[name]):
            ours[key] = [day]
        elif theirs[name]:
            notes.append(f"The HUD link's {name} {theirs[name][:80]!r} is no date and was left out.")
    # On the HUD a point may be an hour; here it is a night or more.
    if (by := theirs["granularity"].lower()) not in ("", "hour"):
        ours["by"] = [by]
    return ours, notes


def _day(moment: str) -> str:
    """Return the day (UTC) of a moment as HUD addresses spell it (as in mails, or ISO 8601); empty if it is no moment."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError):
            when = read(moment)
            return (when.astimezone(UTC) if when.tzinfo else when).date().isoformat()
    return ""


def fixed_side(side: Side) -> str:
    """Return a text that still names this side tomorrow: a night, a run, or a branch with the commit in full."""
    if side.kind in ("latest", "night"):
        return side.nights[0]
    if side.kind == "run" or len(side.branches) > 1:
        return side.run_ids[0]
    return f"{side.branches[0]}@{side.commits[0]}"


def address(page: str, query: Mapping[str, Iterable[str]]) -> str:
    """Return the address of a page with its query."""
    text = urlencode([(key, value) for key, values in query.items() for value in values], safe="/@~,")
    return f"{page}?{text}" if text else page


def comparison_link(dashboard: str, base: Side, new: Side, across: tuple[str, str] | None = None) -> str:
    """Return the address of the page of all cells of two sides, or of two configs of one side, on the given dashboard."""
    query = _sides(base, new)
    if across:
        query |= {"mode": ["configs"], "from": [across[0]], "to": [across[1]]}
    return address(f"{dashboard.rstrip('/')}/compare", query)


def cell_link(dashboard: str, base: Side, new: Side, cell: CellName, across: tuple[str, str] | None = None) -> str:
    """Return the address of the page of one cell (see `cell_query`) of two sides, or of two configs of one side."""
    query = _sides(base, new) | cell_query(cell)
    if across:
        query |= {"config": list(across), "versus": ["configs"]}
    return address(f"{dashboard.rstrip('/')}/model", query)


def cell_query(cell: CellName) -> dict[str, list[str]]:
    """Return the query that names a cell on the model page: suite, model, phase, dtype, device, batch_size and config."""
    setting = ",".join(map(str, cell.axes[2:]))
    return {"model": [f"{cell.suite}/{cell.model}"], "setting": [setting], "config": [cell.config]}


def _sides(base: Side, new: Side) -> dict[str, list[str]]:
    return {"base": [fixed_side(base)], "new": [fixed_side(new)]}
