"""Addresses of the PyTorch HUD's compiler dashboard, translated: the same comparison, as far as this store has it.

There `lCommit` is the new side and `rCommit` the base, whatever the words on its page say (the query builder reads the left one
as new); here they are called what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: What only a HUD link has: by these it is known.
KEYS = ("lBranch", "lCommit", "rBranch", "rCommit")
#: What else it may have; what has no meaning here is dropped with a word.
_OTHERS = ("dashboard", "startTime", "stopTime", "granularity", "mode", "deviceName")
_DEVICES = {"cuda": "cuda", "cpu": "cpu"}


def is_hud_link(query: Mapping[str, Sequence[str]]) -> bool:
    """Whether an address comes from the HUD."""
    return any(key in query for key in KEYS)


def translate(query: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """The query of the same page here, and a sentence for whatever of the link was not taken over."""
    found = {key: list(values) for key, values in query.items() if key not in (*KEYS, *_OTHERS)}
    notes = []
    for key, letter in (("new", "l"), ("base", "r")):
        if side := _side(_one(query, f"{letter}Branch"), _one(query, f"{letter}Commit")):
            found[key] = [side]
    mode = _one(query, "mode")
    if mode in ("inference", "training"):
        found["phase"] = [mode]
    elif mode:
        notes.append(f"The HUD link asks for the mode {mode!r}; there are inference and training.")
    if name := _one(query, "deviceName"):
        device = _DEVICES.get(name.split(maxsplit=1)[0].lower())
        if device:
            found["device"] = [device]
        else:
            notes.append(f"The HUD link asks for the device {name!r}; all devices are shown.")
    times, said = _times(query)
    return found | times, notes + said


def _times(query: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Time range and granularity, which trends have here."""
    found, notes = {}, []
    for key, theirs in (("since", "startTime"), ("until", "stopTime")):
        if moment := _one(query, theirs):
            if day := _day(moment):
                found[key] = [day]
            else:
                notes.append(f"The HUD link's {theirs} {moment[:80]!r} is no date and was left out.")
    # There a point may be an hour; here it is a night at the least.
    if (by := _one(query, "granularity").lower()) and by != "hour":
        found["by"] = [by]
    return found, notes


def _day(moment: str) -> str:
    """The day of a moment as HUD addresses spell it (as mails do, or ISO 8601), in UTC; empty if it is none."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            found = read(moment)
        except ValueError:
            continue
        return (found.astimezone(UTC) if found.tzinfo else found).date().isoformat()
    return ""


def _one(query: Mapping[str, Sequence[str]], key: str) -> str:
    return next(iter(query.get(key, ())), "").strip()


def _side(branch: str, commit: str) -> str:
    return f"{branch}@{commit}" if branch and commit else commit or branch
