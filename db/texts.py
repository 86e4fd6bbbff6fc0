"""Makes texts, numbers and JSON values fit for any database."""

from __future__ import annotations

import json
import math
from typing import Any

from db.errors import one_line

#: The exceptions that a value of a wrong type or size causes.
UNFIT = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

#: Whole numbers beyond this fit no integer column of PostgreSQL.
_LARGEST = 2**31 - 1
#: PostgreSQL cannot store it.
_NUL = "\x00"


def clean(text: str) -> str:
    """The text with NUL characters and lone surrogates replaced by U+FFFD; everything else stays as it is."""
    if text.isascii() and _NUL not in text:
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace(_NUL, "\N{REPLACEMENT CHARACTER}")


def clean_json(value: Any) -> Any:
    """The value with clean texts, and with NaN and infinities as texts, since JSON has no such numbers."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(inner) for inner in value]
    return value


def compact(value: Any) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def whole(value: Any, name: str) -> int:
    """The value, if it is a whole number that an integer column holds; else raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{name} {one_line(str(value))} is no whole number from 0 to {_LARGEST}")
    return value


def finite(value: float, name: str) -> float:
    """The value, if it is finite; else raises `ValueError`."""
    if not math.isfinite(value):
        raise ValueError(f"{name} is not finite")
    return value


def error_text(error: Exception, limit: int = 160) -> str:
    """An exception in one line."""
    return one_line(f"{type(error).__name__}: {error}", limit)
