"""Addresses of the PyTorch HUD's compiler dashboard, translated: the same comparison, as far as this store has it.

There `lCommit` is the new side and `rCommit` the base, whatever the words on its page say (the query builder reads the left one
as new); here they are called what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: What only a HUD link has: by these it is known.
_SIDES = {"new": ("lBranch", "lCommit"), "base": ("rBranch", "rCommit")}
KEYS = (*_SIDES["new"], *_SIDES["base"])
#: What else it may have; what has no meaning here is dropped with a word.
_OTHERS = ("dashboard", "startTime", "stopTime", "granularity", "mode", "deviceName")


def is_hud_link(query: Mapping[str, Sequence[str]]) -> bool:
    """Whether an address comes from the HUD."""
    return any(key in query for key in KEYS)


def translate(query: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """The query of the same page here, and a sentence for whatever of the link was not taken over."""
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
    if device in ("cuda", "cpu"):
        ours["device"] = [device]
    elif device:
        notes.append(f"The HUD link asks for the device {theirs['deviceName']!r}; all devices are shown.")
    for key, name in (("since", "startTime"), ("until", "stopTime")):
        if day := _day(theirs[name]):
            ours[key] = [day]
        elif theirs[name]:
            notes.append(f"The HUD link's {name} {theirs[name][:80]!r} is no date and was left out.")
    # There a point may be an hour; here it is a night at the least.
    if (by := theirs["granularity"].lower()) not in ("", "hour"):
        ours["by"] = [by]
    return ours, notes


def _day(moment: str) -> str:
    """The day of a moment as HUD addresses spell it (as mails do, or ISO 8601), in UTC; empty if it is none."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError):
            when = read(moment)
            return (when.astimezone(UTC) if when.tzinfo else when).date().isoformat()
    return ""
