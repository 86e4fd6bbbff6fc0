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

#: Samples as a JSON list: what clocks give has few decimals, and takes half as much room as its doubles.
_JSON = "json"


def pack(values: Sequence[float]) -> tuple[str, bytes]:
    """The samples' number format and compressed bytes: what was measured comes back bit for bit."""
    return _JSON, zlib.compress(json.dumps(list(values), separators=(",", ":")).encode(), 6)


def unpack(number_format: str, data: bytes) -> NDArray[np.float64]:
    """The inverse of `pack`, always as float64; also reads the binary formats of older rows."""
    raw = zlib.decompress(data)
    if number_format == _JSON:
        return np.array(json.loads(raw), dtype=np.float64)
    if number_format == "<u4e-6":  # millionths by the bytes' weight: the smallest, then what each is above it
        planes = np.frombuffer(raw, dtype=np.uint8).reshape(4, -1)
        least, *above = np.ascontiguousarray(planes.T).view("<u4").ravel().astype(np.float64).tolist()
        return (np.array(above) + least) / 1e6
    return np.frombuffer(raw, dtype=number_format).astype(np.float64)


def relative_spread(values: Sequence[float]) -> float | None:
    """Robust relative spread: 1.4826 x MAD / median, the standard deviation over the mean for normal data.

    Stored with the samples at ingest, so that it stays when old samples are thinned out. None for fewer than two samples
    or a median that is not positive. Hampel, "The influence curve and its role in robust estimation", JASA 69 (1974).
    """
    if len(values) < 2:
        return None
    # Not numpy's median, which takes ten times as long for so few.
    middle = median(values)
    return 1.4826 * median([abs(value - middle) for value in values]) / middle if middle > 0 else None


class PackedText(TypeDecorator[str]):
    """A text kept zlib-compressed: logs and evidence are long, repetitive and seldom read."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Compresses on the way in."""
        return None if value is None else zlib.compress(value.encode("utf-8", "replace"), 6)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Decompress on the way out, without passwords and tokens."""
        return None if value is None else str(mask(zlib.decompress(value).decode("utf-8", "replace")))


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


def clean_compact(value: Any) -> str:
    """Return the JSON of `clean_json`, which is asked only where JSON as it is has something to clean."""
    with suppress(ValueError):  # a NaN
        if "\\u" not in (text := compact(value)):
            return text
    return compact(clean_json(value))


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


class MaskedText(TypeDecorator[str]):
    """A text that a person wrote or that may quote an address. A server sorts it by its bytes, as SQLite does."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the database."""
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Mask on the way in."""
        return None if value is None else str(mask(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Mask on the way out."""
        return None if value is None else str(mask(value))


class MaskedJson(TypeDecorator[dict[str, Any]]):
    """A JSON object whose texts may quote an address. None is NULL."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        """Return the type of what a part of the object is compared with."""
        return self.impl_instance.coerce_compared_value(op, value)

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:
        """Mask on the way in."""
        return self._masked(value)

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> dict[str, Any] | None:
        """Mask on the way out."""
        return self._masked(value)

    def _masked(self, value: Any) -> dict[str, Any] | None:
        masked: dict[str, Any] | None = mask(value)
        return masked


class MaskedFingerprint(MaskedJson):
    """An environment, of whose variables only those are told that are known to matter."""

    cache_ok = True

    def _masked(self, value: Any) -> dict[str, Any] | None:
        return mask_fingerprint(value) if isinstance(value, Mapping) else super()._masked(value)


_END = 9e9


def to_epoch(text: str) -> float:
    """Seconds since 1970 of an ISO 8601 text; one without an offset is UTC.

    Raises `ValueError` for any other text, and for times outside 1970 to 2255, which not every reader can show.
    """
    moment = datetime.fromisoformat(text)
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < _END:
        raise ValueError(f"{text} is not between 1970 and 2255")
    return seconds


def from_epoch(seconds: float) -> datetime:
    """The moment in UTC, to the microsecond."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_of(seconds: float | None) -> datetime | None:
    """The moment, or None where there is none."""
    return None if seconds is None else from_epoch(seconds)
