"""What is wrong, in the words of an installer: the lines that it prints, made into one."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from jobs.output.terminal import one_line

_LONGEST = 300
#: How pip begins its list of what excludes each other, and how it names what was asked for and what a file holds.
_CONFLICT = "The conflict is caused by:"
_REQUESTED = "The user requested "
_CONSTRAINT = "(constraint) "


def last_words(said: str) -> str:
    """The line that says what is wrong: uv gives a cause, pip marks it, a traceback ends with it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for index, line in reversed(list(enumerate(lines))):
        if line.startswith(("cause:", "╰─▶")):  # uv's cause goes on until its hints
            cause = " ".join(lines[index:]).partition(" hint:")[0]
            return one_line(cause.removeprefix("cause:").removeprefix("╰─▶").strip(), _LONGEST)
    # pip's very last line on a conflict is where to read about conflicts.
    marked = [line for line in lines if line.startswith(("ERROR:", "error:")) and "ResolutionImpossible" not in line]
    return one_line(re.sub(r"^(ERROR:|error:)\s*", "", (marked or lines or ["no output"])[-1]), _LONGEST)


def conflict(said: str, places: Sequence[str], own: Sequence[str] = ()) -> str | None:
    """What pip says excludes each other, None where it says no such thing.

    Each constraint comes with the one of `places`, files of constraints, that it stands in; `own` are those that we gave.
    """
    _, found, after = said.partition(_CONFLICT)
    if not found:
        return None
    listed = [line.strip().removeprefix(_REQUESTED) for line in after.strip().partition("\n\n")[0].splitlines()]
    return one_line("these exclude each other: " + "; ".join(_named(item, places, own) for item in listed), _LONGEST)


def constraint_places(config_list: str) -> list[str]:
    """The files and addresses that `pip config list` names as constraints, those of variables first."""
    lines = [line.partition("=") for line in sorted(config_list.splitlines())]
    return [
        place for name, _, value in lines if name.endswith(".constraint") for place in ast.literal_eval(value).split()
    ]


def _named(item: str, places: Sequence[str], own: Sequence[str]) -> str:
    if not item.startswith(_CONSTRAINT):
        return item
    wanted = item.removeprefix(_CONSTRAINT)
    if _plain(wanted) in map(_plain, own):
        return f"the constraint {wanted}, as it is installed here"
    holding = [place for place in places if _plain(wanted) in _lines_of(place)]
    # Else it is in a file that another one names, or behind an address.
    found = holding or (places if len(places) == 1 else [])
    return f"the constraint {wanted}" + (f" in {found[0]}" if found else "")


def _lines_of(place: str) -> set[str]:
    try:
        return {_plain(line.partition("#")[0]) for line in Path(place).read_text().splitlines()}
    except (OSError, ValueError):
        return set()


def _plain(requirement: str) -> str:
    return re.sub(r"\s", "", requirement).replace("_", "-").lower()
