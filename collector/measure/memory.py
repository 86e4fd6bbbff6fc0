"""Memory of compiled calls: leaks, tensors that are saved for the backward pass, and allocations alive at the peak.

A leak is searched over the calls that are timed and profiled anyway. Only if the allocated memory has grown over these calls,
fifty compiled calls without eager ones between them measure it: a leak grows in both halves of them. Saved tensors and the peak
take one more call each.
"""

from __future__ import annotations

import gc
import linecache
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from collector.device import Device

#: Calls over which a leak is measured.
LEAK_CALLS = 50


def leaked_bytes_per_call(call: Callable[[], Any], held: Callable[[], int | None], calls: int = LEAK_CALLS) -> float:
    """Return the bytes by which `held` grows with each call, in the half of `calls` calls in which it grows less.

    One call comes first, which may still set something up. Memory that grows only once is no leak: in one of 188 cells on an
    H100 it grew once by 768 KiB, and in none of them when they were measured again.
    """
    call()
    levels = [held() or 0]
    for _ in range(2):
        for _ in range(calls // 2):
            call()
        levels.append(held() or 0)
    return max(0, min(after - before for before, after in pairwise(levels))) / (calls // 2)


def free_copies(device: Device) -> None:
    """Collect unreferenced objects, including cycles of references, and return their memory to the device.

    A model's step refers to the model, and many models to themselves. Without the collection a reference in float32 stayed
    until the end of the cell: on an H100 18 GB of a model with 9 GB of weights.
    """
    gc.collect()
    device.give_back_unused()


#: The most groups of saved tensors, and the most allocating lines, that are kept, by bytes. The others are summed.
_KEPT = 20
#: The name of that sum, and the name of the memory that was allocated before the call.
OTHERS, BEFORE = "(other)", "(before the call)"
#: The most operators that are named in a group, and the most characters of a line.
_NAMED, _LENGTH = 4, 200
#: The actions with which torch's allocator for CUDA hands memory out and takes it back.
_ALLOCATED, _FREED = "alloc", "free_requested"

#: [operators, shape, dtype, tensors, bytes], as in a measurement's details.
SavedRow = tuple[str, list[int] | None, str, int, int]
#: [line, allocations, bytes].
PeakRow = tuple[str, int, int]
#: The operators whose outputs a backward graph takes, by shape and dtype.
Operators = Mapping[tuple[tuple[int, ...], str], Sequence[str]]


class SavedTensors:
    """The tensors that autograd saves for the backward pass in a call, without tensors that stay between calls anyway.

    `resident` are the tensors that stay: weights, buffers and inputs. Tensors of one storage count once, with all of its bytes.
    """

    def __init__(self, resident: Iterable[torch.Tensor]) -> None:
        self._seen = {key for tensor in resident if (key := _storage(tensor)) is not None}
        self._found: Counter[tuple[tuple[int, ...], str, int]] = Counter()

    def watch(self, call: Callable[[], Any]) -> None:
        """Make a call and record the tensors that it saves. Raises the call's errors, e.g. if a model allows no hooks."""

        def note(tensor: torch.Tensor) -> torch.Tensor:
            key = _storage(tensor)
            if key is not None and key not in self._seen:
                self._seen.add(key)
                self._found[(tuple(tensor.shape), _dtype(tensor), tensor.untyped_storage().nbytes())] += 1
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            call()

    @property
    def bytes(self) -> int:
        """The bytes of all saved tensors."""
        return sum(size * count for (_, _, size), count in self._found.items())

    def rows(self, operators: Operators) -> list[SavedRow]:
        """Return the saved tensors grouped by shape and dtype, the group with most bytes first."""
        groups: dict[tuple[tuple[int, ...], str], list[int]] = defaultdict(lambda: [0, 0])
        for (shape, dtype, size), count in self._found.items():
            groups[shape, dtype][0] += count
            groups[shape, dtype][1] += size * count
        ordered = sorted(groups.items(), key=lambda item: -item[1][1])
        rows: list[SavedRow] = []
        for (shape, dtype), (count, size) in ordered[:_KEPT]:
            names = list(dict.fromkeys(operators.get((shape, dtype), ())))
            more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
            rows.append((", ".join([*names[:_NAMED], *more]), list(shape), dtype, count, size))
        if rest := [numbers for _, numbers in ordered[_KEPT:]]:
            rows.append((OTHERS, None, "", sum(count for count, _ in rest), sum(size for _, size in rest)))
        return rows


def _storage(tensor: torch.Tensor) -> int | None:
    with suppress(RuntimeError, NotImplementedError):  # a sparse tensor, or one that wraps others, has no storage
        return tensor.untyped_storage().data_ptr() or None
    return None


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class Peak:
    """The memory at the moment when a call held most: its bytes, and the lines that allocated them, most bytes first."""

    bytes: int
    rows: list[PeakRow]


def peak_of(trace: Sequence[Mapping[str, Any]], before: int) -> Peak:
    """Return the memory at the peak of a call, from its allocations and `before`, the bytes that were allocated before it.

    `trace` has the entries of one device in `torch.cuda.memory._snapshot`: `action`, `addr`, `size` and `frames`, the innermost
    first. Memory that was allocated before the call and that the call frees is subtracted from `before`.
    """
    alive: dict[int, Mapping[str, Any]] = {}
    held, most, at = before, before, 0
    for number, entry in enumerate(trace, 1):
        if entry["action"] == _ALLOCATED:
            alive[entry["addr"]] = entry
            held += entry["size"]
        elif entry["action"] == _FREED:
            alive.pop(entry["addr"], None)
            held -= entry["size"]
        if held > most:
            most, at = held, number
    alive, earlier = {}, before
    for entry in trace[:at]:
        if entry["action"] == _ALLOCATED:
            alive[entry["addr"]] = entry
        elif entry["action"] == _FREED and alive.pop(entry["addr"], None) is None:
            earlier -= entry["size"]
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter({BEFORE: earlier})
    for entry in alive.values():
        line = _line(entry.get("frames") or ())
        counts[line] += 1
        sizes[line] += entry["size"]
    ordered = sizes.most_common()
    rows = [(line, counts[line], size) for line, size in ordered[:_KEPT]]
    if rest := ordered[_KEPT:]:
        rows.append((OTHERS, sum(counts[line] for line, _ in rest), sum(size for _, size in rest)))
    return Peak(most, rows)


def _line(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the line of the innermost frame outside of torch, in generated code or in the model; else torch's function."""
    ours = next((frame for frame in frames if not str(frame["filename"]).startswith(_TORCH)), None)
    frame = ours or next(iter(frames), None)
    if frame is None:
        return "(no Python frame)"
    text = linecache.getline(str(frame["filename"]), int(frame["line"])).strip()
    if text and ours is not None:
        return _BUFFER.sub(r"\1", text)[:_LENGTH]
    return f"{Path(str(frame['filename'])).name}: {frame['name']}"[:_LENGTH]


_TORCH = str(Path(torch.__file__).parent)
#: Inductor numbers the buffers of a graph, so that one more buffer renames all that follow.
_BUFFER = re.compile(r"\b(buf|primals_|tangents_|arg)\d+(?:_1)?\b")
