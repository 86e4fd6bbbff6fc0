"""Compresses raw samples and long texts."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

_SINGLE, _DOUBLE, _MILLIONTHS = "<f4", "<f8", "<u4e-6"
_DENOMINATOR = 1e6


def pack(values: Sequence[float]) -> tuple[str, bytes]:
    """The samples' number format and compressed bytes: what was measured comes back bit for bit.

    Four bytes a value where that loses nothing. Else whole millionths where all are (latencies in ms, read from a clock
    that counts nanoseconds): what each is above the smallest, sorted by the bytes' weight, shrinks by more than half.
    Else eight bytes a value.
    """
    exact = np.asarray(values, dtype=_DOUBLE)
    with np.errstate(over="ignore"):
        small = exact.astype(_SINGLE)
    if np.array_equal(small.astype(_DOUBLE), exact):
        return _SINGLE, zlib.compress(small.tobytes(), 6)
    if (millionths := _millionths(exact)) is not None:
        planes = millionths.view(np.uint8).reshape(-1, 4).T
        return _MILLIONTHS, zlib.compress(planes.tobytes(), 6)
    return _DOUBLE, zlib.compress(exact.tobytes(), 6)


def unpack(number_format: str, data: bytes) -> NDArray[np.float64]:
    """The inverse of `pack`, always as float64."""
    raw = zlib.decompress(data)
    if number_format == _MILLIONTHS:
        planes = np.frombuffer(raw, dtype=np.uint8).reshape(4, -1)
        least, *above = np.ascontiguousarray(planes.T).view("<u4").ravel().astype(np.float64).tolist()
        return (np.array(above) + least) / _DENOMINATOR
    return np.frombuffer(raw, dtype=number_format).astype(np.float64)


def _millionths(exact: NDArray[np.float64]) -> NDArray[np.uint32] | None:
    """The smallest, then what each value is above it, in millionths; None where that would not be exact, or no gain."""
    if len(exact) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(exact * _DENOMINATOR)
        is_exact = np.array_equal(scaled / _DENOMINATOR, exact) and not np.signbit(exact).any()
    if not is_exact or scaled.max() >= 2**32:
        return None
    return np.append(scaled.min(), scaled - scaled.min()).astype("<u4")


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
        """Decompresses on the way out."""
        return None if value is None else zlib.decompress(value).decode("utf-8", "replace")
