"""Compresses raw samples and long texts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

from collector.masking import mask

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
