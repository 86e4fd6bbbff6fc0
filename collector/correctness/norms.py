"""Norms of tensors of any size, and the largest errors, which a root mean square does not show.

A wrong mask at the end of a block leaves a few columns wrong and the rest right. So two more errors against the reference are
compared between the compiled tensor and eager's: the error of the worst element, and the root mean square error of the worst
slice (a row, a column, a plane) along each dimension. Each is compared with eager's worst, wherever that is: rounding is larger
in some places than in others, and these places differ between two programs.

The constants are from 31 cells of the zoo on a CPU (24 models, both phases, float32, bfloat16 and amp, Inductor of torch
2.13), 1,491 tensors that pass the rule of the RMSE. The ratio of worst elements (compiled over eager) divided by the ratio of
RMSEs was 1.0 in the median, 1.6 in the 99th percentile and 4.6 at most; for worst slices it was 1.0, 1.3 and 1.6. The rules
allow 3 and 2 times the allowed ratio of RMSEs, plus the free part, and so no right tensor used more than 0.14 and 0.20 of the
allowed error.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard, TypeVar

import torch

from collector.correctness.snapshot import is_plain, same_values, widened

#: Elements that are compared at a time: bounds the float64 copies to 128 MiB each.
_CHUNK = 1 << 24


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether a leaf is a floating tensor with at least one element."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0


def chunks(*tensors: torch.Tensor) -> zip[tuple[torch.Tensor, ...]]:
    """Split tensors of one shape into flat chunks; yield a tuple of the same chunk of each tensor."""
    return zip(*(tensor.reshape(-1).split(_CHUNK) for tensor in tensors), strict=True)


def finite(chunk: torch.Tensor) -> torch.Tensor:
    """Copy a chunk in float64, with zeros in place of NaN and infinities."""
    return torch.nan_to_num(widened(chunk).double(), nan=0.0, posinf=0.0, neginf=0.0)


def numbers(*values: torch.Tensor) -> list[float]:
    """Read tensors of one number or one row each from their device at once: each wait is long if others use the GPU."""
    device = next((value.device for value in values if value.device.type != "cpu"), torch.device("cpu"))
    rows = [value.detach().reshape(-1).double().to(device) for value in values]
    return [float(number) for number in torch.cat(rows).tolist()] if rows else []


def on_host(rows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy tensors of one dtype and one dimension to the host at once: each wait for a shared device takes long."""
    if not rows:
        return []
    first = next((row.device for row in rows if row.device.type != "cpu"), rows[0].device)
    joined = torch.cat([row.to(first) for row in rows]).cpu()
    return list(joined.split([len(row) for row in rows]))


T = TypeVar("T")
#: A generator that yields tensors of one number or row each and is sent their numbers. It should hold nothing large while it
#: waits, since many wait at a time.
Asking = Generator[tuple[torch.Tensor, ...], list[float], T]


def settle(works: Iterable[Asking[T]]) -> list[T]:
    """Run generators of the kind `Asking` side by side and return their results; read the tensors of all at once in each step.

    A training step has hundreds of gradients. Every single read waits for the device, which other processes share by turns.
    """
    results: dict[int, T] = {}
    asked: list[tuple[int, Asking[T], tuple[torch.Tensor, ...]]] = []

    def go_on(number: int, work: Asking[T], read: list[float] | None) -> None:
        try:
            asked.append((number, work, next(work) if read is None else work.send(read)))
        except StopIteration as ended:
            results[number] = ended.value

    for number, work in enumerate(works):
        go_on(number, work, None)
    while asked:
        waiting, asked = asked, []
        read = iter(numbers(*(value for _, _, values in waiting for value in values)))
        for number, work, values in waiting:
            go_on(number, work, [next(read) for value in values for _ in range(value.numel())])
    return [results[number] for number in range(len(results))]


def same_bits(pairs: Sequence[tuple[object, object]]) -> list[bool]:
    """Return for each pair of leaves whether their values are equal, as `same_values` does for one pair.

    Plain tensors of one dtype are compared in packs: an optimizer has hundreds of them, most of them small, and each operation
    on a GPU that others share takes its time.
    """
    groups: dict[object, list[int]] = {}
    for number, (one, two) in enumerate(pairs):
        if one is not two and isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor) and _is_alike(one, two):
            groups.setdefault((one.dtype, one.device, two.device), []).append(number)
    packs = [pack for group in groups.values() for pack in _packs(group, pairs)]
    found = numbers(*(_which_agree([pairs[number] for number in pack]) for pack in packs))
    known = dict(zip((number for pack in packs for number in pack), found, strict=True))
    return [
        bool(known[number]) if number in known else same_values(one, _beside(two, one))
        for number, (one, two) in enumerate(pairs)
    ]


def _is_alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    return is_plain(one) and is_plain(two) and one.dtype == two.dtype and one.shape == two.shape


def _packs(members: Iterable[int], pairs: Sequence[tuple[Any, Any]]) -> Iterator[list[int]]:
    """Divide the numbers of pairs into packs of at most `_CHUNK` elements; a larger tensor is a pack of its own."""
    pack: list[int] = []
    held = 0
    for number in members:
        size = pairs[number][0].numel()
        if pack and held + size > _CHUNK:
            yield pack
            pack, held = [], 0
        pack.append(number)
        held += size
    yield pack


def _which_agree(pairs: Sequence[tuple[Any, Any]]) -> torch.Tensor:
    """Return a row that says of each pair of plain tensors of one dtype whether they are equal, NaN being equal to NaN.

    Most tensors that a step has written to differ. Reading them one by one took most of the time of an optimizer's check.
    """
    if len(pairs) == 1:
        one, two = pairs[0]
        return torch.stack([_agree(*pair).all() for pair in chunks(one, two.to(one.device))]).all().reshape(1)
    ones, twos = (torch.cat([tensor.reshape(-1) for tensor in side]) for side in zip(*pairs, strict=True))
    agree = _agree(ones, twos.to(ones.device))
    return torch.stack([part.all() for part in agree.split([one.numel() for one, _ in pairs])])


def _beside(value: object, other: object) -> object:
    """Return a tensor on the device of another one; return any other value unchanged."""
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return value.to(other.device)
    return value


def _agree(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    one, two = widened(one), widened(two)
    equal = one == two
    return equal | ((one != one) & (two != two)) if one.is_floating_point() else equal


def asking_rms(value: object) -> Asking[float]:
    """Compute the root mean square, with NaN and infinities as zeros; 0 for anything but a tensor with elements."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return 0.0
    (total,) = yield (sum_of(finite(chunk).square().sum() for (chunk,) in chunks(value)),)
    return math.sqrt(total / value.numel())


def sum_of(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """Add tensors of one number each on their device."""
    return torch.stack(list(parts)).sum()


def asking_rmse(value: object, exact: object) -> Asking[float]:
    """Compute the root mean square error, `sqrt(mean((value - exact)^2))`; infinite for anything but tensors of one shape.

    NaN and infinities count as zeros. `exact` may be on another device.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(exact, torch.Tensor) or value.shape != exact.shape:
        return math.inf
    pairs = chunks(value, exact)
    (total,) = yield (sum_of((finite(a) - finite(b.to(a.device))).square().sum() for a, b in pairs),)
    return math.sqrt(total / value.numel())


def asking_cosine(one: torch.Tensor, two: torch.Tensor) -> Asking[float]:
    """Compute the cosine of the angle between two flattened tensors; 1 for two zero tensors, 0 if only one is zero."""
    dot, a_norm, b_norm = yield (_products(one, two),)
    if a_norm == 0.0 or b_norm == 0.0:
        return 1.0 if a_norm == b_norm else 0.0
    return max(-1.0, min(1.0, dot / math.sqrt(a_norm * b_norm)))


def _products(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Return the scalar products of the two tensors, of the first with itself, and of the second with itself."""
    sums = torch.zeros(3, dtype=torch.float64, device=one.device)
    for a, b in chunks(one, two):
        x, y = finite(a), finite(b)
        sums += torch.stack([x @ y, x @ x, y @ y])
    return sums


def asking_largest_share(value: torch.Tensor, exact: torch.Tensor, tol: float, floor: float) -> Asking[float]:
    """Compute the largest `|value - exact| / (floor + tol |exact|)` of two tensors of one shape, with NaN and inf as zeros."""
    if not value.numel():
        return 0.0
    shares = [_share_of_chunk(a, b, tol, floor) for a, b in chunks(value, exact)]
    (largest,) = yield (torch.stack(shares).max(),)
    return largest


def _share_of_chunk(value: torch.Tensor, exact: torch.Tensor, tol: float, floor: float) -> torch.Tensor:
    x, y = finite(value), finite(exact)
    error = (x - y).abs_()
    # An element without an error has share 0, even if no error is allowed.
    return torch.where(error > 0, error / (floor + tol * y.abs()), error).max()


#: Elements that are compared at a time: five float64 copies of them are held.
_TAIL_CHUNK = 1 << 22
#: The worst element, and the worst slice, may be as far off as eager's worst times the RMSE's multiplier times this factor.
_ELEMENT, _SLICE = 3.0, 2.0
#: The fewest elements of a slice whose root mean square error is judged; so many elements cannot all round to zero.
_FEW = 16
#: The largest error of eager, as a share of a slice's size, with which the slice is well known.
_WELL_KNOWN = 0.1
#: In a gradient one unit that is on in one program and off in the other makes an error of one term in a sum of n: `1 / sqrt(n)`
#: of the gradient's size, 2 % behind a small convolution and 10 % with a hundred terms.
_FLIP = 0.1
#: The limit of any error as a share of the size. Zeros have an error of one.
SMALLEST_WRONG = 0.9
#: Without a reference: the largest allowed difference, over the root mean square of all differences. Of a billion values of
#: normal noise the worst is at 6; this limit is far beyond, and leaves room for layers whose noise differs.
_FAR = 50.0
#: Without a reference: the share of the size, or of the value itself, up to which any difference is allowed.
_APART = 0.2


@dataclass(slots=True)
class Tails:
    """The verdict on one tensor or more: the problem, the worst errors as shares of the allowed ones, and the tensors' number."""

    problem: str | None = None
    element: float = 0.0
    slice: float = 0.0
    judged: int = 0


@dataclass(slots=True)
class _Sums:
    """Sums over all dimensions but one: each tensor has an entry for each index of that dimension."""

    eager_error: torch.Tensor
    error: torch.Tensor
    size: torch.Tensor
    filled: torch.Tensor
    eager_filled: torch.Tensor


@dataclass(slots=True)
class _Errors:
    """The results of one pass over a tensor. `excess` is the largest error less the error that is always allowed at its place."""

    worst_eager: float = 0.0
    excess: float = -math.inf
    excess_error: float = 0.0
    place: int = 0
    sums: dict[int, _Sums] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allowed error of a tensor: `multiplier` times eager's RMSE, and in any case `free` times the tensor's `size`.

    `jumps` says that the tensor is a gradient, whose values jump if a unit goes on or off.
    """

    size: float
    multiplier: float
    free: float
    jumps: bool = False


def judge_tails(
    eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor, allowed_for: Allowed
) -> Asking[Tails]:
    """Judge the worst element and the worst slice of a tensor that has a usable reference."""
    multiplier, free = allowed_for.multiplier, max(allowed_for.free, _FLIP if allowed_for.jumps else 0.0)
    allowed_for = replace(allowed_for, free=free)
    found = yield from _pass(eager, compiled, exact, allowed_for.size, free)
    tails = Tails()
    slices = {dimension: _Slices.of(sums, allowed_for) for dimension, sums in found.sums.items()}
    read = yield tuple(one.summary for one in slices.values())
    for number, (dimension, one) in enumerate(slices.items()):
        elements = eager.numel() // eager.shape[dimension]
        problem = one.judge(tails, dimension, elements, allowed_for, read[3 * number : 3 * number + 3])
        tails.problem = problem or tails.problem
    allowed = _ELEMENT * multiplier * found.worst_eager
    tails.element = _share(found.excess, allowed)
    if tails.element > 1 and not tails.problem:
        tails.problem = (
            f"error {found.excess_error:.3g} at {_index(found.place, eager.shape)}, eager's largest {found.worst_eager:.3g}, "
            f"allowed {allowed + found.excess_error - found.excess:.3g}"
        )
    return tails


def judge_differences(eager: torch.Tensor, compiled: torch.Tensor, size: float, rms: float) -> Asking[Tails]:
    """Judge a tensor without a reference by its worst element and its worst slices; `rms` is the RMSE of all differences."""
    found = yield from _pass(eager, compiled, eager, size, _APART)
    tails = Tails(element=_share(found.excess, _FAR * rms))
    if tails.element > 1:
        place = _index(found.place, eager.shape)
        tails.problem = (
            f"{found.excess_error:.3g} from eager at {place}, {found.excess_error / rms:.0f} times the usual"
        )
    shares = {dimension: _shares_of_slices(sums, size) for dimension, sums in found.sums.items()}
    most = yield tuple(share.max() for share in shares.values())
    for (dimension, share), worst in zip(shares.items(), most, strict=True):
        tails.slice = max(tails.slice, worst)
        if worst >= 1 and not tails.problem:
            tails.problem = _other_slice(found.sums[dimension], dimension, int(share.argmax()))
    return tails


def _shares_of_slices(sums: _Sums, size: float) -> torch.Tensor:
    """Return the RMSE from eager of each slice as a share of the allowed one; 0 for slices of few or small values."""
    sizes = sums.size.sqrt()
    is_judged = (sums.eager_filled >= _FEW) & (sizes >= _APART * size)
    return torch.where(is_judged, sums.error.sqrt() / (SMALLEST_WRONG * sizes), 0.0)


def _other_slice(sums: _Sums, dimension: int, index: int) -> str:
    if not sums.filled[index]:
        return _zero(dimension, index)
    error, size = float(sums.error[index].sqrt()), float(sums.size[index].sqrt())
    return f"RMSE {error:.3g} from eager at index {index} of dimension {dimension}, where eager's size is {size:.3g}"


@dataclass(frozen=True, slots=True)
class _Slices:
    """The slices along one dimension: `errors`, `excess` over the error that is always allowed, and which are wrongly zero.

    `summary` has eager's largest error, whether a slice is wrongly zero, and the largest excess.
    """

    errors: torch.Tensor
    excess: torch.Tensor
    wrong: torch.Tensor
    summary: torch.Tensor

    @classmethod
    def of(cls, sums: _Sums, allowed_for: Allowed) -> _Slices:
        own, errors, sizes = sums.eager_error.sqrt(), sums.error.sqrt(), sums.size.sqrt()
        # Zeros that rounding cannot have made: further off than rounding gets, or many elements that eager knows well.
        wrong = (errors > allowed_for.multiplier * own.max()) & (errors > allowed_for.free * allowed_for.size)
        if not allowed_for.jumps:
            wrong |= (sums.eager_filled >= _FEW) & (own <= _WELL_KNOWN * sizes)
        wrong &= (sums.filled == 0) & (sums.eager_filled > 0)
        excess = errors - allowed_for.free * torch.clamp(sizes, min=allowed_for.size)
        return cls(errors, excess, wrong, torch.stack([own.max(), wrong.any().double(), excess.max()]))

    def judge(
        self, tails: Tails, dimension: int, elements: int, allowed_for: Allowed, summary: list[float]
    ) -> str | None:
        """Return the problem of the slices, or None, and update the worst slice in `tails`."""
        worst_eager, is_wrong, most = summary
        if is_wrong:
            return _zero(dimension, int(self.wrong.nonzero()[0]))
        if elements < _FEW:
            return None
        allowed = _SLICE * allowed_for.multiplier * worst_eager
        share = _share(most, allowed)
        tails.slice = max(tails.slice, share)
        if share <= 1:
            return None
        index = int(self.excess.argmax())
        error, more = float(self.errors[index]), float(self.errors[index] - self.excess[index])
        return (
            f"RMSE {error:.3g} at index {index} of dimension {dimension}, eager's largest {worst_eager:.3g}, "
            f"allowed {allowed + more:.3g}"
        )


def _zero(dimension: int, index: int) -> str:
    return f"all zero at index {index} of dimension {dimension}, where eager is not"


def _share(excess: float, allowed: float) -> float:
    if excess <= 0:
        return 0.0
    return excess / allowed if allowed > 0 else math.inf


def _index(place: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(index) for index in torch.unravel_index(torch.tensor(place), shape))


def _pass(
    eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor, size: float, free: float
) -> Asking[_Errors]:
    """Read the three tensors once, in chunks along their longest dimension, and return their errors and sums."""
    shape = eager.shape
    longest = max(range(eager.dim()), key=lambda dimension: shape[dimension], default=0)
    judged = [number for number in range(eager.dim()) if shape[number] > 1 and eager.numel() // shape[number] > 1]
    step = max(1, _TAIL_CHUNK * shape[longest] // eager.numel()) if eager.dim() else 1
    starts = range(0, shape[longest] if eager.dim() else 1, step)
    passed = [_ChunkErrors.of(eager, compiled, exact, (longest, start, step), judged, size, free) for start in starts]
    read = yield tuple(chunk.tops for chunk in passed)
    rows = [read[4 * number : 4 * number + 4] for number in range(len(passed))]
    best = max(range(len(rows)), key=lambda number: rows[number][1])
    _, excess, excess_error, place = rows[best]
    found = _Errors(max(row[0] for row in rows), excess, excess_error)
    inside = list(_index(int(place), passed[best].shape))
    if inside:
        inside[longest] += starts[best]
    found.place = sum(index * math.prod(shape[number + 1 :]) for number, index in enumerate(inside))
    for number in judged:
        join: Any = torch.cat if number == longest else lambda sums: torch.stack(sums).sum(0)
        sums = [join(list(column)) for column in zip(*(chunk.sums[number] for chunk in passed), strict=True)]
        count = eager.numel() // shape[number]
        found.sums[number] = _Sums(*(total / count for total in sums[:3]), *sums[3:])
    return found


@dataclass(frozen=True, slots=True)
class _ChunkErrors:
    """The errors and sums of a chunk of a tensor, none of them as large as the chunk.

    `tops` has eager's largest error, the largest excess, the error at its place, and that place among the elements of the
    chunk's `shape`. `sums` has the fields of `_Sums` by dimension.
    """

    tops: torch.Tensor
    shape: torch.Size
    sums: dict[int, list[torch.Tensor]]

    @classmethod
    def of(
        cls,
        eager: torch.Tensor,
        compiled: torch.Tensor,
        exact: torch.Tensor,
        where: tuple[int, int, int],
        judged: list[int],
        size: float,
        free: float,
    ) -> _ChunkErrors:
        e, m, x = (_part(tensor, *where) for tensor in (eager, compiled, exact))
        eager_error, error = (e - x).abs_(), (m - x).abs_()
        worst = eager_error.max()
        excess = error - x.abs_().clamp_(min=size).mul_(free)
        place = excess.argmax()
        # `take`, since indexing with a tensor would read the index from the device.
        tops = torch.stack([worst, excess.take(place), error.take(place), place.double()])
        shape = excess.shape
        del excess, x
        squares = eager_error.square_(), error.square_(), e.square(), (m != 0).double(), (e != 0).double()
        sums = {
            number: [square.sum([other for other in range(eager.dim()) if other != number]) for square in squares]
            for number in judged
        }
        return cls(tops, shape, sums)


def _part(tensor: torch.Tensor, dimension: int, start: int, step: int) -> torch.Tensor:
    if tensor.dim():
        tensor = tensor.narrow(dimension, start, min(step, tensor.shape[dimension] - start))
    return torch.nan_to_num(widened(tensor).double(), nan=0.0, posinf=0.0, neginf=0.0)
