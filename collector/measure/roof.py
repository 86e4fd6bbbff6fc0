"""The roof of a kernel: the time that its bytes and operations take at the best rates of this device, beside its actual time.

The bytes and operations come from the generated wrapper, which has the arguments of each kernel and each library call; the times
come from the profile that is taken anyway. So the roof costs no further pass, and works within cudagraphs, where a profiler sees
no operator. The best rates are the rates of a plain copy and a plain matrix product, measured in the same process.

A library launches kernels under names of its own. Library kernels between two generated kernels belong to the calls that the
wrapper has between these two.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from collector.code import Call, Code, TensorLayout, calls_of
from collector.device import device_named
from collector.measure.timing import DeviceEvent, timed_s

#: Device memory for the copy and the product: three matrices of 8192 x 8192 in 16 bits, several times any cache.
ROOM_BYTES = 3 * 8192 * 8192 * 2
#: Copies, and products, that are timed together, and the number of rounds, of which the fastest counts.
_COPIES, _PRODUCTS, _ROUNDS = 10, 4, 3
#: The most kernels that are kept (the ones that lose most), and the most characters of a name.
_KEPT, _NAME = 24, 160
#: The name of the driver's copies on the device, such as a cudagraph's of inputs: they are plain copies and count as at the roof.
_PLAIN_COPY = "Memcpy DtoD"
#: The least part of a cell's device time in kernels with known work; with less the cell has no share of the roof.
_KNOWN = 0.8
_PRODUCTS_IN = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_PRODUCT_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _PRODUCTS_IN}
#: The position of `is_causal` in the arguments of ATen's attention: a causal attention has half of the operations.
_CAUSAL_AT = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}
_CONVOLUTION = ("bias", "stride", "padding", "dilation", "transposed")
_SIGNATURE = re.compile(r"^def \w+\(([^)]*)\)", re.MULTILINE)


class NoRoofError(Exception):
    """A roof that cannot be computed; the text says why."""


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of a call: bytes read and written once each, and operations on numbers of a dtype."""

    bytes: float
    operations: float = 0.0
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The best rates of this device: bytes that a copy reads and writes in a second, and operations of a product by dtype."""

    bytes_per_s: float
    operations_per_s: Mapping[str, float]

    def ideal_ms(self, work: Work | None) -> float | None:
        """Return the larger of the times for the bytes and for the operations; None if the work or a rate is unknown."""
        if work is None:
            return None
        rate = self.operations_per_s.get(work.dtype)
        if work.operations and not rate:
            return None
        return 1e3 * max(work.bytes / self.bytes_per_s, work.operations / rate if rate else 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the rates in 1e9 bytes and 1e12 operations a second."""
        products = {dtype: round(rate / 1e12, 2) for dtype, rate in self.operations_per_s.items()}
        return {"copy_gb_s": round(self.bytes_per_s / 1e9, 1), "product_tflop_s": products}


@dataclass(frozen=True, slots=True)
class Expected:
    """A call in a wrapper, with its work; the label is a generated kernel's name, or a library's function with its sizes."""

    label: str
    is_kernel: bool
    work: Work | None


@dataclass(slots=True)
class KernelRoof:
    """A kernel, or the library calls between two kernels: launches, time and ideal time (None if unknown) per call."""

    name: str
    launches: float = 0.0
    ms: float = 0.0
    ideal_ms: float | None = 0.0

    def add(self, ms: float, ideal_ms: float | None) -> None:
        """Count one more launch."""
        self.launches += 1
        self.ms += ms
        self.ideal_ms = None if self.ideal_ms is None or ideal_ms is None else self.ideal_ms + ideal_ms

    @property
    def lost_ms(self) -> float:
        """The time above the ideal, 0 if that is unknown; a kernel that a cache serves can be faster, and loses nothing."""
        return 0.0 if self.ideal_ms is None else max(0.0, self.ms - self.ideal_ms)


@dataclass(frozen=True, slots=True)
class Roof:
    """The kernels of one call, the one that loses most first. `share` is the ideal over the device time of known kernels."""

    kernels: list[KernelRoof] = field(default_factory=list)

    @property
    def known(self) -> float:
        """The part of the device time in kernels with known work."""
        total = sum(kernel.ms for kernel in self.kernels)
        return sum(kernel.ms for kernel in self.kernels if kernel.ideal_ms is not None) / total if total else 0.0

    @property
    def share(self) -> float | None:
        """The ideal over the actual time of kernels with known work; None if they have less than 80 % of the device time."""
        if self.known < _KNOWN:
            return None
        times = [(kernel.ms, kernel.ms - kernel.lost_ms) for kernel in self.kernels if kernel.ideal_ms is not None]
        return sum(ideal for _, ideal in times) / sum(ms for ms, _ in times)

    def to_json(self) -> dict[str, Any]:
        """Return the part of the device time with known work, and [name, launches, ms, ideal ms] of kernels that lose most."""
        rows = [
            [kernel.name[:_NAME], round(kernel.launches, 3), round(kernel.ms, 6), round(kernel.ideal_ms, 6)]
            for kernel in self.kernels[:_KEPT]
            if kernel.ideal_ms is not None
        ]
        return {"known": round(self.known, 4), "kernels": rows}


def expected_calls(code: Code, texts: Mapping[str, str]) -> list[Expected]:
    """Return the calls of the wrappers of all graphs, in the order of their compilation.

    Raises:
        NoRoofError: a wrapper is not stored, or is not Python.
    """
    try:
        calls = [call for graph in code.graphs for call in calls_of(graph, texts)]
    except ValueError as error:
        raise NoRoofError(str(error)) from error
    return [
        Expected(call.name, True, kernel_work(call, texts.get(call.text_id, "")))
        if call.text_id
        else Expected(call.label, False, library_work(call))
        for call in calls
    ]


def kernel_work(call: Call, text: str) -> Work | None:
    """Return the work of a generated kernel from its arguments; None for a Triton template that is no plain product.

    If a tensor is larger than the range of the kernel, the kernel reads only a part of it (a slice or a gather): the size of the
    range for each load in the kernel's text. Inductor estimates its `kernel_num_gb` in the same way.
    """
    signature = _SIGNATURE.search(text)
    if signature is None or not all(tensor.item_bytes for tensor in call.tensors):
        return None
    names = [part.split(":")[0].strip() for part in signature[1].split(",")]
    if "tl.dot(" in text:
        return _product_work(call, dict(zip(names, call.arguments, strict=False)))
    numbers = [value for value in call.arguments if type(value) is int]
    covered = math.prod(numbers) if numbers else math.inf
    total = 0.0
    for name, value in zip(names, call.arguments, strict=False):
        if not isinstance(value, TensorLayout):
            continue
        counts = [len(re.findall(rf"tl\.{access}\({name}\b", text)) for access in ("load", "store", "atomic_add")]
        # A tensor that is accessed in another way, such as by a descriptor, counts once.
        uses = [count for count in counts if count] or [1]
        total += value.item_bytes * sum(min(value.elements, count * covered) for count in uses)
    return Work(total)


def _product_work(call: Call, given: Mapping[str, Any]) -> Work | None:
    """Return the work of a template for a matrix product or a convolution; `given` has its operands by the template's names.

    A product gets its operands with the shapes in which they were allocated, so the length k of its sums comes from the numbers
    of elements: for [b, m, k] times [b, k, n] to [b, m, n] it is the root of bmk * bkn / bmn / b.
    """
    result = given.get("out_ptr0")
    one, other = given.get("arg_A"), given.get("arg_B")
    image, weights = given.get("arg_X"), given.get("arg_W")
    if isinstance(image, TensorLayout) and isinstance(weights, TensorLayout) and isinstance(result, TensorLayout):
        return Work(_all_bytes(call.tensors), 2.0 * result.elements * math.prod(weights.size[1:]), image.dtype)
    if not (isinstance(one, TensorLayout) and isinstance(other, TensorLayout) and isinstance(result, TensorLayout)):
        return None
    batches = math.prod(result.size[:-2]) if "bmm_" in call.name else 1
    square, rest = divmod(one.elements * other.elements, result.elements * batches)
    length = math.isqrt(square)
    if rest or length * length != square:
        return None
    return Work(_all_bytes(call.tensors), 2.0 * result.elements * length, one.dtype)


def library_work(call: Call) -> Work | None:
    """Return the work of a library call by torch's own formulas; None if torch has no formula or an argument is unknown."""
    tensors = [*call.tensors, *([call.out] if call.out else [])]
    name = {"bias_addmm": "addmm"}.get(call.name, call.name)
    arguments = [value.size if isinstance(value, TensorLayout) else value for value in call.arguments]
    out = call.out.size if call.out else None
    factor = 1.0
    if name == "convolution" and call.keywords:
        arguments = [*arguments[:2], *(call.keywords.get(word) for word in _CONVOLUTION)]
    elif name == "convolution_backward" and len(arguments) > 10:
        # torch's own formula for it ignores groups. Each gradient takes as many operations as the convolution.
        factor, out = float(sum(map(bool, arguments[10][:2]))), arguments[0]
        name, arguments = "convolution", arguments[1:8]
    at = _CAUSAL_AT.get(name)
    if at is not None and len(arguments) > at and arguments[at] is True:
        factor = 0.5
    formula = flop_registry.get(getattr(torch.ops.aten, name, None))
    if formula is None or not tensors or not all(tensor.item_bytes for tensor in tensors):
        return None
    try:
        operations = factor * float(formula(*arguments, out_val=out))
    except (TypeError, ValueError, AssertionError, IndexError, AttributeError):
        return None
    return Work(_all_bytes(tensors), operations, tensors[0].dtype)


def _all_bytes(tensors: Iterable[TensorLayout]) -> float:
    return float(sum(tensor.elements * tensor.item_bytes for tensor in tensors))


def compare_with_ideal(
    events: Sequence[DeviceEvent], calls: int, expected: Sequence[Expected], ceilings: Ceilings
) -> Roof:
    """Return the kernels of one of `calls` calls with their ideal times; `events` are the device's, in order."""
    found = _Matching(expected, ceilings)
    each, rest = divmod(len(events), calls)
    for number, event in enumerate(events):
        if not rest and number and number % each == 0:
            found.end()
        found.take(event)
    found.end()
    for kernel in found.kernels.values():
        kernel.launches, kernel.ms = kernel.launches / calls, kernel.ms / calls
        kernel.ideal_ms = None if kernel.ideal_ms is None else kernel.ideal_ms / calls
    return Roof(sorted(found.kernels.values(), key=lambda kernel: -kernel.lost_ms))


class _Matching:
    """A matching of the events in a profile with the calls of the wrappers, in order."""

    def __init__(self, expected: Sequence[Expected], ceilings: Ceilings) -> None:
        self.kernels: dict[str, KernelRoof] = {}
        self._ideal_ms: dict[str, list[float | None]] = {}
        self._ranks: dict[str, list[int]] = {}
        #: The library calls before each generated kernel, and after the last one.
        self._before: list[list[tuple[str, float | None]]] = [[]]
        self._at, self._pending = -1, list[DeviceEvent]()
        for one in expected:
            ideal_ms = ceilings.ideal_ms(one.work)
            if one.is_kernel:
                self._ranks.setdefault(one.label, []).append(len(self._before) - 1)
                self._ideal_ms.setdefault(one.label, []).append(ideal_ms)
                self._before.append([])
            else:
                self._before[-1].append((one.label, ideal_ms))

    def take(self, event: DeviceEvent) -> None:
        """Count an event: a copy or a generated kernel at once, a library's kernel when the next generated kernel comes."""
        if event.name.startswith(_PLAIN_COPY):
            ms = event.duration_ns / 1e6
            self.kernels.setdefault(event.name, KernelRoof(event.name)).add(ms, ms)
            return
        ranks = self._ranks.get(event.name)
        if ranks is None:
            self._pending.append(event)
            return
        last, at = self._at, next((rank for rank in ranks if rank > self._at), ranks[0])
        if at == last + 1:
            self._assign(self._before[at])
        elif at == 0 and last == len(self._before) - 2:
            self._assign(self._before[-1] + self._before[0])
        else:  # generated kernels in an unexpected order: the library's kernels between them cannot be matched
            self._assign([])
        self._at = at
        known = [ideal for ideal in self._ideal_ms[event.name] if ideal is not None]
        ideal_ms = sum(known) / len(known) if known else None
        self.kernels.setdefault(event.name, KernelRoof(event.name)).add(event.duration_ns / 1e6, ideal_ms)

    def end(self) -> None:
        """Match the kernels after the last generated kernel with the library calls there; the next event begins another call."""
        self._assign(self._before[-1] if self._at == len(self._before) - 2 else [])
        self._at = -1

    def _assign(self, calls: Sequence[tuple[str, float | None]]) -> None:
        """Match the waiting kernels with these library calls; without calls their ideal is unknown."""
        spent_ms = sum(event.duration_ns for event in self._pending) / 1e6
        if self._pending and calls:
            counts = Counter(label for label, _ in calls)
            name = " + ".join(label if count == 1 else f"{count} x {label}" for label, count in counts.items())
            ideals = [ideal for _, ideal in calls]
            ideal_ms = sum(ideal for ideal in ideals if ideal is not None) if None not in ideals else None
            self.kernels.setdefault(name, KernelRoof(name)).add(spent_ms, ideal_ms)
        elif self._pending:
            for event in self._pending:
                self.kernels.setdefault(event.name, KernelRoof(event.name)).add(event.duration_ns / 1e6, None)
        self._pending = []


def measure_ceilings(device: str, dtypes: Iterable[str]) -> Ceilings:
    """Measure the rates of a plain copy, and of a plain product in each of these dtypes, under the switches of this process.

    Raises:
        NoRoofError: the device has no room for them.
    """
    try:
        place = device_named(device).torch_name
        room = torch.empty(ROOM_BYTES, dtype=torch.uint8, device=place)
        halves = room[: ROOM_BYTES // 2], room[ROOM_BYTES // 2 :]
        copy_s = _best_s(lambda: halves[1].copy_(halves[0]), _COPIES, device)
        rates = {}
        for name in sorted(set(dtypes) & _PRODUCT_DTYPES.keys()):
            one, other, result = _matrices(room, _PRODUCT_DTYPES[name])
            spent_s = _best_s(lambda a=one, b=other, c=result: torch.mm(a, b, out=c), _PRODUCTS, device)
            rates[name] = 2.0 * one.shape[0] ** 3 / spent_s
    except torch.OutOfMemoryError as error:
        raise NoRoofError("no room on the device for a plain copy and product") from error
    return Ceilings(ROOM_BYTES / copy_s, rates)


def _matrices(room: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return three square matrices in `room`. The factors are random, since a product of zeros takes less power."""
    side = 8192 if dtype.itemsize <= 2 else 4096
    numbers = room.view(dtype)
    one, other, result = (numbers[at * side**2 : (at + 1) * side**2].view(side, side) for at in range(3))
    generator = torch.Generator(device=room.device).manual_seed(0)
    for matrix in (one, other):
        matrix.normal_(generator=generator)
    return one, other, result


def _best_s(call: Any, times: int, device: str) -> float:
    """Return the seconds of one call in the fastest of `_ROUNDS` rounds, each of `times` calls in a row."""

    def several() -> None:
        for _ in range(times):
            call()

    timed_s(several, device)
    return min(timed_s(several, device) for _ in range(_ROUNDS)) / times
