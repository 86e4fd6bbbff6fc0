"""The life of a regression: its states, and which of them may follow which."""

from __future__ import annotations

from db.errors import RecordError, one_line

#: Somebody has still to look, or it is still slow: what such a regression was found with must not be thinned out.
OPEN = ("new", "confirmed", "acknowledged", "returned")
CLOSED = ("expected", "false_alarm", "fixed")
STATES = (*OPEN, *CLOSED)

#: A closed one is taken up again by a person who thinks otherwise or, once fixed, by its return; never as new.
_AFTER = {
    "new": ("confirmed", "acknowledged", *CLOSED),
    "confirmed": ("acknowledged", *CLOSED),
    "acknowledged": ("confirmed", *CLOSED),
    "returned": ("confirmed", "acknowledged", *CLOSED),
    "expected": ("acknowledged", "false_alarm", "fixed"),
    "false_alarm": ("confirmed", "acknowledged", "expected"),
    "fixed": ("returned", "acknowledged"),
}


def following(state: str) -> tuple[str, ...]:
    """The states that may follow one. Raises `RecordError` for a word that is no state."""
    check_state(state)
    return _AFTER[state]


def check_state(state: str) -> None:
    """Raises `RecordError` for a word that is no state."""
    if state not in STATES:
        raise RecordError(f"no state {one_line(state)!r}: one of {', '.join(STATES)}")


def check_link(link: str | None) -> None:
    """Raises `RecordError` for a link that is no http(s) address; none, or an empty one, is fine."""
    if link and (not link.startswith(("https://", "http://")) or not link.isprintable() or " " in link):
        raise RecordError(f"link {one_line(link[:80])!r}: write an address that begins with https://")


def check_transition(name: str, old: str, new: str) -> None:
    """Raises `RecordError`, with the states that may follow, where `new` may not follow `old`."""
    check_state(new)
    if new not in following(old):
        raise RecordError(
            f"regression {one_line(name)} is {old}: that can become {', '.join(following(old))}, not {new}"
        )
