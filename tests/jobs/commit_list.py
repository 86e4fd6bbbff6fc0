"""Reads a commit list as PyTorch's site prints it: newest first, of each commit its author, `sha title`, text and date."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIRST = re.compile(r"([0-9a-f]{10}) (\S.*)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d")


@dataclass(frozen=True)
class ListedCommit:
    sha: str  # ten digits
    author: str
    date: str
    title: str
    text: str


def read_commit_list(text: str) -> list[ListedCommit]:
    """The commits, newest first. A commit starts two lines after the date of the one before."""
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("Author SHA1")) + 1
    found = []
    while start + 1 < len(lines) and (first := _FIRST.fullmatch(lines[start + 1])):
        end = next(index for index in range(start + 2, len(lines)) if _DATE.fullmatch(lines[index]))
        body = "\n".join(lines[start + 2 : end])
        found.append(ListedCommit(first[1], lines[start], lines[end], first[2], body))
        start = end + 1
    return found
