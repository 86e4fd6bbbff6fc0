"""Texts of a table as the values that they spell."""

from __future__ import annotations

import math
import re
from typing import Any

#: A cell of somebody's table: a number where it is one, else the text.
Value = int | float | str | bool | None

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
#: Whole numbers up to this many digits are exact in every reader of JSON.
_EXACT_DIGITS = 15


def spelled(text: str) -> Value:
    """The finite number that a text spells, else the text: `nan`, `1_000` and a 400-digit number stay as they are."""
    trimmed = text.strip()
    if len(trimmed) > 60 or not _NUMBER.fullmatch(trimmed):
        return text
    if trimmed.lstrip("+-").isdigit():
        return int(trimmed) if len(trimmed) <= _EXACT_DIGITS else text
    number = float(trimmed)
    return number if math.isfinite(number) else text


def number(value: Any) -> float | None:
    """The value as a finite number, or None if it is none."""
    if isinstance(value, str):
        value = spelled(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole_number(value: Any) -> int | None:
    """The value as a whole number from 0 to what a database's column holds, or None if it is none."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() and 0 <= found < 2**31 else None


_WORDS: dict[str, Value] = {"true": True, "false": False, "none": None, "null": None, "": None}


def meant(value: Any) -> Any:
    """A flag as it was meant: the dashboard's tables keep `True` and `None` as texts."""
    return _WORDS.get(value.lower(), value) if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """A value of somebody's JSON as ours can hold it: numbers that JSON has no word for become texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**300:
        return str(value) if abs(value) < 10**4000 else "a number of thousands of digits"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
