"""Raw samples as small blobs, and texts as compressed ones."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

_SINGLE, _DOUBLE = "<f4", "<f8"


def pack(values: Sequence[float]) -> tuple[str, bytes]:
    """The samples' number format and compressed bytes.

    Four bytes a value where that loses nothing, else eight: what was measured comes back bit for bit.
    """
    exact = np.asarray(values, dtype=_DOUBLE)
    with np.errstate(over="ignore"):
        small = exact.astype(_SINGLE)
    if np.array_equal(small.astype(_DOUBLE), exact):
        return _SINGLE, zlib.compress(small.tobytes(), 6)
    return _DOUBLE, zlib.compress(exact.tobytes(), 6)


def unpack(number_format: str, data: bytes) -> NDArray[np.float64]:
    """The inverse of `pack`, always as float64."""
    return np.frombuffer(zlib.decompress(data), dtype=number_format).astype(np.float64)


def relative_spread(values: Sequence[float]) -> float | None:
    """Robust relative spread: 1.4826 x MAD / median, the standard deviation over the mean for normal data.

    Kept beside the samples at ingest, so that it outlives them when old samples are thinned out; the same formula,
    with its source, is `analysis.stats.spread.relative_spread`, on a floor that this room does not reach. None for
    fewer than two samples or a median that is not positive.
    """
    if len(values) < 2:
        return None
    samples = np.asarray(values, dtype=np.float64)
    middle = float(np.median(samples))
    return float(1.4826 * np.median(np.abs(samples - middle)) / middle) if middle > 0 else None


class PackedText(TypeDecorator[str]):
    """A text kept zlib-compressed: logs and evidence are long, repetitive and seldom read."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Compresses on the way in."""
        return None if value is None else zlib.compress(value.encode("utf-8", "replace"), 6)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Decompresses on the way out."""
        return None if value is None else zlib.decompress(value).decode("utf-8", "replace")
