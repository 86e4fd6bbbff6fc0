"""When a cell need not be measured again: it compiled to known code, and all else that latencies depend on is as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collector.vocabulary import short_hash

#: Of an environment: the name of the commit whose Python files are used. What they generate is in the code; files that
#: act when the code runs are compared by who knows them (`jobs.plan.carrying`).
NAME_OF_SOURCE = "source"


def known_by(code_id: str | None, program_id: str | None, environment: Mapping[str, Any]) -> str:
    """What two measurements of a cell share if nothing that their latencies depend on differs; empty without code."""
    if not code_id:
        return ""
    libraries = {key: value for key, value in environment.items() if key != NAME_OF_SOURCE}
    return short_hash([code_id, program_id, libraries], 16)
