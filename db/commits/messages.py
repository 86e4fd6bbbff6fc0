"""What a commit's message tells: its pull request, what it reverts, what it lands again.

The forms are those of PyTorch's merge bot, of `git revert` and of GitHub: a subject that ends with its pull request in
brackets, the subject of another commit in quotes after "Revert", "Reapply", "Reland" or "Back out", and
"This reverts commit <sha>." in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

#: `plain` lands a change, `revert` takes one back, `reland` says that it lands one again.
MessageKind = Literal["plain", "revert", "reland"]

#: Nine digits: what an integer column holds everywhere. More is no pull request.
_NUMBER = r"\(#([1-9][0-9]{0,8})\)"
_OWN = re.compile(rf"{_NUMBER}\s*$")
_QUOTED_OWN = re.compile(rf"{_NUMBER}[\s\"'.…]*$")
_MERGE = re.compile(r"Merge pull request #([1-9][0-9]{0,8})\b")
_QUOTING = re.compile(
    r"(?:\[[^\]]{0,40}\]\s*)*(revert|back[ -]?(?:ed )?out|re-?apply|re-?land)(?:\s+of)?\s*:?\s*\"", re.IGNORECASE
)
_TAG = re.compile(r"^(?:\[[^\]]{0,40}\]\s*)*?\[\s*(?:re-?land(?:ing|ed)?|re-?apply)\b[^\]]{0,40}\]", re.IGNORECASE)
_TAGS = re.compile(r"^(?:\[[^\]]{0,40}\]\s*)+")
_RELAND_TAG = re.compile(r"\[\s*re-?(?:land|apply)[^\]]{0,40}\]", re.IGNORECASE)
_LEADING_WORD = re.compile(r"^re-?(?:land|apply)(?:\s+of)?\s*:?\s+", re.IGNORECASE)
_BACK_OUT = re.compile(r"(?:\[[^\]]{0,40}\]\s*)*back[ -]?(?:ed )?out\b", re.IGNORECASE)
_RELAND = re.compile(r"(?:\[[^\]]{0,40}\]\s*)*re-?(?:land|apply)\b", re.IGNORECASE)
_SHA = r"`?\b[0-9a-f]{7,64}\b`?"
_REVERTS = re.compile(rf"this reverts commits?:?\s+({_SHA}(?:(?:\s*,\s*|\s+)(?:and\s+)?{_SHA})*)")
_CHANGESET = re.compile(rf"original commit changeset:\s*({_SHA})")
_DIGITS = re.compile(r"[0-9a-f]{7,64}")
_RELANDS = re.compile(
    r"\bre-?land(?:s|ing)?(?:\s+of)?:?\s+(?:of\s+)?(?:the\s+)?(?:pr\s+)?"
    r"(?:#|https://github\.com/[\w.-]{1,100}/[\w.-]{1,100}/pull/)([1-9][0-9]{0,8})\b"
)
_WORDS = ("revert", "land", "apply", "back")
#: A commit that names more others than this is no revert that a person could follow.
_MOST = 100


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject, read. `pr_number` is the pull request that a reader is led to, `quoted_pr` that of the commit it quotes.

    The bot's revert has no pull request of its own: `pr_number` is then the one that it takes back. `title` is the
    innermost that is quoted, or the whole subject.
    """

    kind: MessageKind
    pr_number: int | None
    quoted_pr: int | None
    title: str

    @property
    def undoes_its_own(self) -> bool:
        """Whether the commit takes `pr_number` back instead of landing it."""
        return self.kind == "revert" and self.pr_number is not None and self.pr_number == self.quoted_pr

    @property
    def bare(self) -> str:
        """The title of the change itself, in lower case, without numbers and tags that say "reland"."""
        return _bare(self.title)


@dataclass(frozen=True, slots=True)
class Message:
    """What a whole message says about other commits: shas as they are written, in lower case, and a pull request."""

    subject: Subject
    reverts: tuple[str, ...]
    relands_pr: int | None

    @property
    def tells_of_others(self) -> bool:
        """Whether some other commit is meant at all."""
        return self.subject.kind != "plain" or bool(self.reverts) or self.relands_pr is not None


def read_subject(subject: str) -> Subject:
    """What the first line of a message says."""
    subject = " ".join(subject.split())
    lowered = subject.lower()
    # Most commits speak of no other: they need no closer look.
    kind, quoted = _unquote(subject) if any(word in lowered for word in _WORDS) else ("plain", None)
    own = _OWN.search(subject) or _MERGE.match(subject)
    inner = _QUOTED_OWN.search(quoted) if quoted is not None else None
    quoted_pr = int(inner[1]) if inner else None
    return Subject(kind, int(own[1]) if own else quoted_pr, quoted_pr, quoted or subject)


def read_message(subject: str, message: str) -> Message:
    """What a subject and the whole message below it say about other commits."""
    read, lowered = read_subject(subject), message.lower()
    found: list[str] = []
    if "reverts commit" in lowered:
        found += [sha for match in _REVERTS.finditer(lowered) for sha in _DIGITS.findall(match[1])]
    if read.kind == "revert" and _BACK_OUT.match(subject):
        found += [sha for match in _CHANGESET.finditer(lowered) for sha in _DIGITS.findall(match[1])]
    stated = _RELANDS.search(lowered) if read.kind != "revert" and "land" in lowered else None
    relands = int(stated[1]) if stated else read.quoted_pr if read.kind == "reland" else None
    return Message(read, tuple(dict.fromkeys(found))[:_MOST], relands)


def _unquote(subject: str) -> tuple[MessageKind, str | None]:
    """What the subject does, and the innermost subject that it quotes: a revert of a revert lands again."""
    undone, relands, rest, quoted = 0, False, subject, None
    while match := _QUOTING.match(rest):
        word = match[1].lower()
        undone, relands = (undone + 1, relands) if word.startswith(("revert", "back")) else (undone, True)
        end = rest.rfind('"')
        rest = quoted = rest[match.end() : end] if end >= match.end() else rest[match.end() :]
    if quoted is None:
        return _unquoted_kind(subject), None
    # What is taken back may itself be a landing again: "Revert "Reapply "x""" takes x back.
    return ("revert" if undone % 2 else "reland" if relands or undone else "plain"), quoted


def _unquoted_kind(subject: str) -> MessageKind:
    if _BACK_OUT.match(subject):
        return "revert"
    return "reland" if _TAG.match(subject) or _RELAND.match(subject) else "plain"


def _bare(title: str) -> str:
    without = _LEADING_WORD.sub("", _TAGS.sub(lambda tags: _RELAND_TAG.sub("", tags[0]), title))
    return " ".join(re.sub(_NUMBER, " ", without).replace("]", "] ").split()).lower()
