"""Checks that a value fits into a column of any database."""

from __future__ import annotations

import math
from typing import Any

from db.errors import one_line

#: The exceptions that a value of a wrong type or size causes.
UNFIT = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

#: Whole numbers beyond this fit no integer column of PostgreSQL.
_LARGEST = 2**31 - 1


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


def said(error: Exception) -> str:
    """An exception in one line."""
    return one_line(f"{type(error).__name__}: {error}", 160)
