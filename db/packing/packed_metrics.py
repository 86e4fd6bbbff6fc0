"""The metrics that `packed_cells` has no room for, and why the GPU was held back: of a run and model, a column each.

Each column is kept in the fewest bytes that lose nothing. A row belongs to the row of `packed_cells` with the same key, and
entry i of its columns to record i there. The bytes: the number of the format, how many entries and how many columns there
are, a byte a column that says how it is kept, then the columns one after the other, little-endian.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from db.packing.throttling import THROTTLED
from db.queries.columns import Values

#: The columns. Part of the format: new ones go to the end, none ever moves. A row that has fewer has nothing of the others;
#: of one that has more, as a later version writes it, the others are passed over.
OTHERS = (
    *("eager_ms", "eager_kernel_ms", "device_speedup", "eager_peak_bytes", "compiled_peak_bytes", "compression"),
    *("graphs", "graph_breaks", "recompiles", "cudagraph_skips", "cudagraph_partitions"),
    *("kernels_generated", "kernels_extern", "error_rmse_ratio", "cosine"),
    *("leak_bytes_per_call", "compile_warm_s", "compile_instructions"),
    THROTTLED,
)
#: So many columns every row has. Later ones are left off at the end of a row that has nothing of them, so that rows from before
#: there were such are what they would be today.
_ALWAYS = 15
#: What is over what, where a metric is a quotient: it takes no bytes where dividing gives every bit of it.
_QUOTIENTS = {
    "device_speedup": ("eager_kernel_ms", "compiled_kernel_ms"),
    "compression": ("eager_peak_bytes", "compiled_peak_bytes"),
}
#: The one metric of `packed_cells` that a quotient needs.
KERNEL = "compiled_kernel_ms"

# How a column is kept. Whole numbers: the greatest of their type stands for none. Sectors: memory comes in pieces of 512 bytes.
_ABSENT, _QUOTIENT, _EQUAL, _BYTES, _SHORTS, _LONGS, _SECTORS, _DOUBLES = range(8)
_TYPES = {_EQUAL: "<f8", _BYTES: "u1", _SHORTS: "<u2", _LONGS: "<u4", _SECTORS: "<u4", _DOUBLES: "<f8"}
_WHOLE = {_BYTES: (1, 2**8 - 1), _SHORTS: (1, 2**16 - 1), _LONGS: (1, 2**32 - 1), _SECTORS: (512, 2**32 - 1)}
_FORMAT, _HEAD = 1, 3


class UnreadableError(ValueError):
    """Bytes that are of no format."""


def pack(columns: Mapping[str, Values]) -> bytes:
    """The bytes of `OTHERS`; `columns` holds them and `KERNEL`, at most 255 entries each, NaN where nothing was measured."""
    kept = [_kept(name, columns) for name in OTHERS]
    while len(kept) > _ALWAYS and kept[-1][0] == _ABSENT:
        kept.pop()
    head = bytes([_FORMAT, len(columns[KERNEL]), len(kept), *(way for way, _ in kept)])
    return head + b"".join([data for _, data in kept])


def _kept(name: str, columns: Mapping[str, Values]) -> tuple[int, bytes]:
    values = columns[name]
    there = values[values == values]
    if not len(there):
        return _ABSENT, b""
    if name in _QUOTIENTS and _same(_divided(*(columns[part] for part in _QUOTIENTS[name])), values):
        return _QUOTIENT, b""
    way = _narrowest(there)
    size = np.dtype(_TYPES[way]).itemsize
    if size * len(values) > 8 and len(there) == len(values) and _same(np.full(len(values), values[0]), values):
        return _EQUAL, values[:1].astype("<f8").tobytes()
    if way == _DOUBLES:
        return way, np.where(values == values, values, np.nan).astype("<f8").tobytes()
    step, none = _WHOLE[way]
    return way, np.where(values == values, values / step, none).astype(_TYPES[way]).tobytes()


def _narrowest(there: Values) -> int:
    """The way that takes the fewest bytes and loses nothing, a minus before a zero included."""
    if np.signbit(there).any():
        return _DOUBLES
    highest = there.max()
    for way, (step, none) in _WHOLE.items():
        if highest < none * step and (there % step == 0).all():
            return way
    return _DOUBLES


def _same(one: Values, other: Values) -> bool:
    """Bit by bit; one NaN is like another."""
    nothing = one != one
    return np.array_equal(nothing, other != other) and np.array_equal(
        one[~nothing].view(np.int64), other[~nothing].view(np.int64)
    )


def _divided(over: Values, under: Values) -> Values:
    with np.errstate(all="ignore"):
        found: Values = over / under
        return found


def unpack(rows: Sequence[bytes], counts: NDArray[np.int64], kernel: Values, names: Sequence[str]) -> dict[str, Values]:
    """The columns that are named, of all rows after one another; NaN where nothing was measured.

    `counts` says how many entries each row should have, `kernel` is `KERNEL` of all of them.

    Raises:
        UnreadableError: bytes that are of no format, or not as many entries.
    """
    starts = np.cumsum(counts) - counts
    found = {name: np.full(len(kernel), np.nan) for name in names}
    alike: dict[bytes, list[int]] = {}
    for place, data in enumerate(rows):
        alike.setdefault(data[: _HEAD + data[2]] if len(data) >= _HEAD else b"", []).append(place)
    for head, places in alike.items():
        count, ways, record = _layout(head)
        size = len(head) + record.itemsize
        if any(len(rows[place]) != size for place in places) or (counts[places] != count).any():
            raise UnreadableError
        data = b"".join([rows[place][len(head) :] for place in places])
        entries = (starts[places][:, None] + np.arange(count)).ravel()
        table = np.frombuffer(data, dtype=record) if record.itemsize else np.empty(0, dtype=record)
        part = _Part(ways, table, count, kernel[entries])
        for name in names:
            if ways.get(name, _ABSENT) != _ABSENT:
                found[name][entries] = part.column(name)
    return found


@lru_cache(maxsize=1024)
def _layout(head: bytes) -> tuple[int, dict[str, int], np.dtype[np.void]]:
    """How many entries rows with this head have, how each column is kept, and what follows the head."""
    if len(head) < _HEAD or head[0] != _FORMAT or len(head) != _HEAD + head[2]:
        raise UnreadableError
    later = [f"later {number}" for number in range(head[2] - len(OTHERS))]
    count, ways = head[1], dict(zip((*OTHERS, *later), head[_HEAD:], strict=False))
    if any(way > _DOUBLES for way in ways.values()):
        raise UnreadableError
    if any(ways.get(name) == _QUOTIENT for name in OTHERS if name not in _QUOTIENTS):
        raise UnreadableError
    fields = [(name, _TYPES[way], (1 if way == _EQUAL else count,)) for name, way in ways.items() if way in _TYPES]
    return count, ways, np.dtype(fields)


class _Part:
    """Rows that are kept alike."""

    def __init__(self, ways: Mapping[str, int], table: NDArray[np.void], count: int, kernel: Values) -> None:
        self._ways, self._table, self._count, self._kernel = ways, table, count, kernel

    def column(self, name: str) -> Values:
        """The values of all rows after one another."""
        if name == KERNEL:
            return self._kernel
        way = self._ways.get(name, _ABSENT)
        if way == _ABSENT:
            return np.full(len(self._kernel), np.nan)
        if way == _QUOTIENT:
            return _divided(*(self.column(part) for part in _QUOTIENTS[name]))
        raw = self._table[name]
        values: Values = raw.astype(np.float64)
        if way == _EQUAL:
            return np.repeat(values.ravel(), self._count)
        if way in _WHOLE:
            step, none = _WHOLE[way]
            values = np.where(raw == none, np.nan, values * step)
        return values.ravel()
