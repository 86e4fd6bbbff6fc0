"""What compiled outputs were compared with, in the words that people see beside a status. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The key among a measurement's details. Its value is the precision of the reference, or `BY_COSINE` where at least one
#: floating tensor had to be compared with eager's alone.
CHECKED_BY = "checked_by"
BY_COSINE = "cosine"


def status_words(status: str, details: Mapping[str, Any]) -> str:
    """A status as people see it: `pass`, or `pass (checked by cosine)` where no reference vouches for it."""
    weak = status == "pass" and details.get(CHECKED_BY) == BY_COSINE
    return f"{status} (checked by cosine)" if weak else str(status)
