"""Values as a database keeps them: compressed samples, texts that any database takes, masked columns, times as seconds.

A database from before November 2026 may hold passwords; with the masked types no query returns them.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import JSON, Dialect, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from collector.masking import mask, mask_fingerprint
from db.store_errors import one_line

#: Samples as a JSON list: clock readings have few decimals, so their text takes half as much room as doubles.
_JSON = "json"


def pack(values: Sequence[float]) -> tuple[str, bytes]:
    """Return the samples' number format and compressed bytes. `unpack` restores the samples bit for bit."""
    return _JSON, zlib.compress(json.dumps(list(values), separators=(",", ":")).encode(), 6)


def unpack(number_format: str, data: bytes) -> NDArray[np.float64]:
    """Return the samples that `pack` compressed, always as float64; also read the binary formats of older rows."""
    raw = zlib.decompress(data)
    if number_format == _JSON:
        return np.array(json.loads(raw), dtype=np.float64)
    if number_format == "<u4e-6":  # millionths as four planes of bytes: the smallest, then the excess of each over it
        planes = np.frombuffer(raw, dtype=np.uint8).reshape(4, -1)
        least, *above = np.ascontiguousarray(planes.T).view("<u4").ravel().astype(np.float64).tolist()
        return (np.array(above) + least) / 1e6
    return np.frombuffer(raw, dtype=number_format).astype(np.float64)


def relative_spread(values: Sequence[float]) -> float | None:
    """Return the robust relative spread 1.4826 x MAD / median: the standard deviation over the mean for normal data.

    Stored with the samples at ingest, so that it stays when old samples are thinned out. None for fewer than two samples
    or a median that is not positive. Hampel, "The influence curve and its role in robust estimation", JASA 69 (1974).
    """
    if len(values) < 2:
        return None
    # Not numpy's median, which takes ten times as long for so few values.
    middle = median(values)
    return 1.4826 * median([abs(value - middle) for value in values]) / middle if middle > 0 else None


class PackedText(TypeDecorator[str]):
    """A column of text that is stored zlib-compressed: logs and evidence are long, repetitive and seldom read."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Compress a text before it is stored."""
        return None if value is None else zlib.compress(value.encode("utf-8", "replace"), 6)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Decompress a stored text, and mask its passwords and tokens."""
        return None if value is None else str(mask(zlib.decompress(value).decode("utf-8", "replace")))


#: The exceptions that a value of a wrong type or size causes.
UNFIT = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

#: Whole numbers beyond this fit no integer column of PostgreSQL.
_LARGEST = 2**31 - 1
#: PostgreSQL cannot store this character.
_NUL = "\x00"


def clean(text: str) -> str:
    """Return the text with NUL characters and lone surrogates replaced by U+FFFD, and otherwise unchanged."""
    if text.isascii() and _NUL not in text:
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace(_NUL, "\N{REPLACEMENT CHARACTER}")


def clean_json(value: Any) -> Any:
    """Return the value with clean texts, and with NaN and infinities as texts, since JSON has no such numbers."""
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
    """Return the value as JSON without spaces. Raises `ValueError` for NaN and infinities."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def clean_compact(value: Any) -> str:
    """Return the compact JSON of `clean_json(value)`, but call `clean_json` only if the JSON has something to clean."""
    with suppress(ValueError):  # a NaN
        if "\\u" not in (text := compact(value)):
            return text
    return compact(clean_json(value))


def whole(value: Any, name: str) -> int:
    """Return the value if it is a whole number that an integer column holds (0 to 2**31 - 1); else raise `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{name} {one_line(str(value))} is no whole number from 0 to {_LARGEST}")
    return value


def finite(value: float, name: str) -> float:
    """Return the value if it is finite; else raise `ValueError`."""
    if not math.isfinite(value):
        raise ValueError(f"{name} is not finite")
    return value


def error_text(error: Exception, limit: int = 160) -> str:
    """Return the type and text of an exception in one line."""
    return one_line(f"{type(error).__name__}: {error}", limit)


class MaskedText(TypeDecorator[str]):
    """A column of text that a person wrote or that may quote an address. A server sorts it by its bytes, as SQLite does."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the column in the database of a dialect."""
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Mask a text before it is stored."""
        return None if value is None else str(mask(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Mask a stored text after it is read."""
        return None if value is None else str(mask(value))


class MaskedJson(TypeDecorator[dict[str, Any]]):
    """A column of JSON objects whose texts may quote an address. None is stored as NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        """Return the type of a value that a part of the object is compared with."""
        return self.impl_instance.coerce_compared_value(op, value)

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:
        """Mask an object before it is stored."""
        return self._masked(value)

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:
        """Mask a stored object after it is read."""
        return self._masked(value)

    def _masked(self, value: Any) -> dict[str, Any] | None:
        masked: dict[str, Any] | None = mask(value)
        return masked


class MaskedFingerprint(MaskedJson):
    """A column of environments. Environment variables that are not known to matter are left out."""

    cache_ok = True

    def _masked(self, value: Any) -> dict[str, Any] | None:
        return mask_fingerprint(value) if isinstance(value, Mapping) else super()._masked(value)


_END = 9e9


def to_epoch(text: str) -> float:
    """Return the seconds since 1970 of an ISO 8601 text; a text without an offset is UTC.

    Raises `ValueError` for any other text, and for times outside 1970 to 2255, which not every reader can show.
    """
    moment = datetime.fromisoformat(text)
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < _END:
        raise ValueError(f"{text} is not between 1970 and 2255")
    return seconds


def from_epoch(seconds: float) -> datetime:
    """Return the moment, in UTC and to the microsecond, of seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_of(seconds: float | None) -> datetime | None:
    """Return the moment of seconds since 1970, or None for None."""
    return None if seconds is None else from_epoch(seconds)
