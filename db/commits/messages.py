"""Reads commit messages: the pull request, the commits that a revert names, the pull request that a reland repeats.

The forms are those of PyTorch's merge bot, of `git revert` and of GitHub: a subject that ends with its pull request in
brackets, the subject of another commit in quotes after "Revert", "Reapply", "Reland" or "Back out", and
"This reverts commit <sha>." in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

#: `plain` lands a change, `revert` reverts one, `reland` lands a reverted one again.
MessageKind = Literal["plain", "revert", "reland"]

#: At most nine digits, which fit an integer column of every database.
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
#: Reverted commits that are read from one message.
_MOST = 100


@dataclass(frozen=True, slots=True)
class Subject:
    """A parsed subject. `pr_number` is the pull request at its end, `quoted_pr` that of the commit it quotes.

    The bot's revert has no pull request of its own: `pr_number` is then the one that it reverts. `title` is the
    innermost quoted subject, or the whole subject.
    """

    kind: MessageKind
    pr_number: int | None
    quoted_pr: int | None
    title: str

    @property
    def undoes_its_own(self) -> bool:
        """Whether the commit reverts `pr_number` instead of landing it."""
        return self.kind == "revert" and self.pr_number is not None and self.pr_number == self.quoted_pr

    @property
    def bare(self) -> str:
        """The title of the change itself, in lower case, without numbers and tags that say "reland"."""
        without = _LEADING_WORD.sub("", _TAGS.sub(lambda tags: _RELAND_TAG.sub("", tags[0]), self.title))
        return " ".join(re.sub(_NUMBER, " ", without).replace("]", "] ").split()).lower()


@dataclass(frozen=True, slots=True)
class Message:
    """A parsed message: the shas that it reverts, as written but in lower case, and the pull request that it lands again."""

    subject: Subject
    reverts: tuple[str, ...]
    relands_pr: int | None

    @property
    def tells_of_others(self) -> bool:
        """Whether the message refers to another commit at all."""
        return self.subject.kind != "plain" or bool(self.reverts) or self.relands_pr is not None


def read_subject(subject: str) -> Subject:
    """Parses the first line of a message."""
    subject = " ".join(subject.split())
    lowered = subject.lower()
    # Most commits refer to no other.
    kind, quoted = _unquote(subject) if any(word in lowered for word in _WORDS) else ("plain", None)
    own = _OWN.search(subject) or _MERGE.match(subject)
    inner = _QUOTED_OWN.search(quoted) if quoted is not None else None
    quoted_pr = int(inner[1]) if inner else None
    return Subject(kind, int(own[1]) if own else quoted_pr, quoted_pr, quoted or subject)


def read_message(subject: str, message: str) -> Message:
    """Parses a subject and the whole message."""
    read, lowered = read_subject(subject), message.lower()
    shas: list[str] = []
    if "reverts commit" in lowered:
        shas += [sha for match in _REVERTS.finditer(lowered) for sha in _DIGITS.findall(match[1])]
    if read.kind == "revert" and _BACK_OUT.match(subject):
        shas += [sha for match in _CHANGESET.finditer(lowered) for sha in _DIGITS.findall(match[1])]
    stated = _RELANDS.search(lowered) if read.kind != "revert" and "land" in lowered else None
    relands = int(stated[1]) if stated else read.quoted_pr if read.kind == "reland" else None
    return Message(read, tuple(dict.fromkeys(shas))[:_MOST], relands)


def _unquote(subject: str) -> tuple[MessageKind, str | None]:
    """The kind of a subject, and the innermost subject that it quotes: a revert of a revert lands again."""
    undone, relands, rest, quoted = 0, False, subject, None
    while match := _QUOTING.match(rest):
        word = match[1].lower()
        undone, relands = (undone + 1, relands) if word.startswith(("revert", "back")) else (undone, True)
        end = rest.rfind('"')
        rest = quoted = rest[match.end() : end] if end >= match.end() else rest[match.end() :]
    if quoted is None and _BACK_OUT.match(subject):
        return "revert", None
    if quoted is None:
        return ("reland" if _TAG.match(subject) or _RELAND.match(subject) else "plain"), None
    # The reverted commit may itself be a reland: "Revert "Reapply "x""" takes x back.
    return ("revert" if undone % 2 else "reland" if relands or undone else "plain"), quoted
