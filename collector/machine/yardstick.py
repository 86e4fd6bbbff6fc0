"""Fixed work of our own that is timed to know how fast the machine is, whatever torch does, and whether its GPU is idle.

A process that is stopped (SIGSTOP) stops launching kernels, but kernels that it has launched go on. The GPU then runs both
processes in turn, and every latency and device time doubles. The idle probe is longer than the few milliseconds for which the
driver lets one process run before the other has its turn.

No commit of torch, Inductor or Triton changes this work. On the GPU it is a matrix product and a copy from the PTX below, which
the driver compiles; on the host a loop of Python and a copy of memory.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collector.device import Device

#: Products of the probe and their size: 17 GFLOP each, together about 45 ms on an H100 in float32 and 6 ms in TF32.
_PROBE_PRODUCTS, _SIZE = 128, 2048
#: Products that are timed together as a piece: 0.4 ms in TF32, so that most pieces fit between two turns of another process.
_PIECE = 8
#: A probe was not alone on the GPU if it takes this many times as long as an undisturbed one. Two processes in turn give a
#: factor of 2; a GPU that lowers its clock for heat or power stays below 1.4.
BUSY = 1.5
#: The largest eager latency over the model's least eager latency in the run. Latencies that wait for launches repeat within
#: 15 %; a virtual machine's core that is slow for seconds makes them 1.4 to 1.8 times longer (docs/results.md).
SLOW_HOST = 1.25
#: The most seconds to wait for an idle GPU.
_LIMIT_S = 20.0


class IdleProbe:
    """A probe of matrix products on this process's device, timed by events of torch's class for the device.

    `idle_ms` is the time of the probe on an idle GPU, as far as this process knows: the lesser of the shortest probe of other
    processes (the argument `known_ms`, 0 if there is none) and the shortest piece of its own probes times the number of pieces. A
    piece is short enough to be undisturbed even if the GPU runs another process in turn.
    """

    def __init__(self, device: Device, event: Callable[..., Any], known_ms: float = 0.0) -> None:
        import torch  # not at the top: judging the probes of a run needs no torch

        self._torch, self._device = torch, device
        self.idle_ms = known_ms or float("inf")
        self._factor = torch.full((_SIZE, _SIZE), 1e-3, device=device.torch_name)
        self._product = torch.empty_like(self._factor)
        self._events = [event(enable_timing=True) for _ in range(_PROBE_PRODUCTS // _PIECE + 1)]
        self.ms()  # loads the kernel

    def ms(self) -> float:
        """Run the probe and return its milliseconds; update `idle_ms`."""
        self._device.synchronize()
        self._events[0].record()
        for event in self._events[1:]:
            for _ in range(_PIECE):
                self._torch.mm(self._factor, self._factor, out=self._product)
            event.record()
        self._device.synchronize()
        pieces = [begin.elapsed_time(end) for begin, end in zip(self._events, self._events[1:], strict=False)]
        self.idle_ms = min(self.idle_ms, round(len(pieces) * min(pieces), 3))
        return round(float(sum(pieces)), 3)

    def wait(self) -> float:
        """Wait until two probes in a row are as fast as on an idle GPU, and return the milliseconds of the last one.

        The wait ends after `_LIMIT_S`; the caller compares the result with `BUSY` times the shortest probe of the run.
        """
        deadline = time.monotonic() + _LIMIT_S
        idle = 0
        while True:
            took = self.ms()
            idle = idle + 1 if took < BUSY * self.idle_ms else 0
            if idle == 2 or time.monotonic() > deadline:
                return took


#: Never change this work: changed work is another metric.
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64

// c = a b for square matrices of n rows; a thread for each entry of c.
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %more;
    .reg .b32 %column, %row, %n, %k, %x, %y;
    .reg .b64 %a, %b, %c, %step, %offset;
    .reg .f32 %sum, %left, %right;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %c, [c];
    ld.param.u32 %n, [n];
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ntid.x;
    mov.u32 %column, %tid.x;
    mad.lo.u32 %column, %x, %y, %column;
    mov.u32 %x, %ctaid.y;
    mov.u32 %y, %ntid.y;
    mov.u32 %row, %tid.y;
    mad.lo.u32 %row, %x, %y, %row;
    mad.lo.u32 %x, %row, %n, %column;
    mul.wide.u32 %offset, %x, 4;
    add.s64 %c, %c, %offset;
    mul.lo.u32 %x, %row, %n;
    mul.wide.u32 %offset, %x, 4;
    add.s64 %a, %a, %offset;
    mul.wide.u32 %offset, %column, 4;
    add.s64 %b, %b, %offset;
    mul.wide.u32 %step, %n, 4;
    mov.f32 %sum, 0f00000000;
    mov.u32 %k, 0;
LOOP:
    ld.global.f32 %left, [%a];
    ld.global.f32 %right, [%b];
    fma.rn.f32 %sum, %left, %right, %sum;
    add.s64 %a, %a, 4;
    add.s64 %b, %b, %step;
    add.u32 %k, %k, 1;
    setp.lt.u32 %more, %k, %n;
    @%more bra LOOP;
    st.global.f32 [%c], %sum;
    ret;
}

// to = from, 16 bytes for each thread.
.visible .entry copy(.param .u64 to, .param .u64 from)
{
    .reg .b32 %block, %size, %index;
    .reg .b64 %to, %from, %offset;
    .reg .f32 %v0, %v1, %v2, %v3;
    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %index, %tid.x;
    mad.lo.u32 %index, %block, %size, %index;
    mul.wide.u32 %offset, %index, 16;
    add.s64 %to, %to, %offset;
    add.s64 %from, %from, %offset;
    ld.global.v4.f32 {%v0, %v1, %v2, %v3}, [%from];
    st.global.v4.f32 [%to], {%v0, %v1, %v2, %v3};
    ret;
}
\0"""
#: Rows of the matrices of the product, and its block of threads.
_ROWS, _BLOCK = 1024, 16
#: Bytes that a copy reads, more than the second-level cache of an H100 holds (50 MB), and its threads for each block.
_BYTES, _THREADS = 64 << 20, 256
#: Products and copies that are timed together: 1.7 and 0.8 ms on an H100.
_PRODUCTS, _COPIES = 4, 16
#: Timed rounds, whose median counts; one more round comes first and is not timed.
_ROUNDS = 7
#: Steps of the Python loop, bytes of the memory copy: each takes about a millisecond.
_STEPS, _HOST_BYTES = 20_000, 8 << 20
#: The device memory that the work takes.
DEVICE_BYTES = 2 * _BYTES


class NoYardstickError(Exception):
    """Fixed work that the driver cannot run; the text is one line that says what failed."""


def host_ms() -> float:
    """Return the milliseconds of a fixed Python loop and a copy of memory, the median of `_ROUNDS` rounds."""
    source, target = bytearray(_HOST_BYTES), bytearray(_HOST_BYTES)
    took = []
    for _ in range(_ROUNDS + 1):
        start = time.perf_counter()
        total = 0
        for step in range(_STEPS):
            total += step & 7
        target[:] = source
        took.append(1e3 * (time.perf_counter() - start))
    return round(median(took[1:]), 6)


class GpuYardstick:
    """The fixed work on the GPU whose context is current in this thread.

    Opening it compiles the PTX, which takes 0.14 s if the driver's cache does not have it. `driver` is libcuda. Raises
    `NoYardstickError`.
    """

    def __init__(self, driver: Any = None) -> None:
        try:
            self._driver = driver or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoYardstickError(f"libcuda.so.1: {error}") from error
        context = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        if not context.value:
            raise NoYardstickError("no CUDA context is current in this thread")
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_PTX))
        self._product, self._copy = self._function(module, b"product"), self._function(module, b"copy")

    def times_ms(self) -> tuple[float, float]:
        """Return the milliseconds of the products and of the copies, medians of `_ROUNDS` rounds. Raises `NoYardstickError`."""
        with self._memory() as (first, second):
            size = 4 * _ROWS * _ROWS
            matrices = [ctypes.c_uint64(first + place * size) for place in range(3)]
            grid = _ROWS // _BLOCK
            product = self._launch(self._product, (grid, grid), (_BLOCK, _BLOCK), *matrices, ctypes.c_uint32(_ROWS))
            both = ctypes.c_uint64(second), ctypes.c_uint64(first)
            copy = self._launch(self._copy, (_BYTES // 16 // _THREADS, 1), (_THREADS, 1), *both)
            return self._median_ms(product, _PRODUCTS), self._median_ms(copy, _COPIES)

    def _median_ms(self, launch: Callable[[], None], times: int) -> float:
        begin, end = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (begin, end):
            self._call("cuEventCreate", ctypes.byref(event), 0)
        took = []
        try:
            for _ in range(_ROUNDS + 1):
                self._call("cuEventRecord", begin, None)
                for _ in range(times):
                    launch()
                self._call("cuEventRecord", end, None)
                self._call("cuEventSynchronize", end)
                elapsed = ctypes.c_float()
                self._call("cuEventElapsedTime", ctypes.byref(elapsed), begin, end)
                took.append(elapsed.value)
        finally:
            for event in (begin, end):
                self._driver.cuEventDestroy_v2(event)
        return round(median(took[1:]), 6)

    def _launch(
        self, function: ctypes.c_void_p, grid: tuple[int, int], block: tuple[int, int], *arguments: Any
    ) -> Callable[[], None]:
        addresses = [ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in arguments]
        given = (ctypes.c_void_p * len(arguments))(*addresses)

        def launch() -> None:
            # On the stream that torch uses by default, without shared memory.
            self._call("cuLaunchKernel", function, *grid, 1, *block, 1, 0, None, given, None)

        launch.arguments = arguments  # type: ignore[attr-defined]  # they must outlive the launches
        return launch

    @contextmanager
    def _memory(self) -> Iterator[tuple[int, int]]:
        """Allocate two pieces of device memory, filled with 0.001, without torch's allocator; yield their addresses."""
        pieces: list[ctypes.c_uint64] = []
        try:
            for _ in range(2):
                piece = ctypes.c_uint64()
                self._call("cuMemAlloc_v2", ctypes.byref(piece), ctypes.c_size_t(_BYTES))
                pieces.append(piece)
                # 0x3a83126f is 0.001: products of denormal numbers or of zeros may draw less power.
                self._call("cuMemsetD32_v2", piece, ctypes.c_uint(0x3A83126F), ctypes.c_size_t(_BYTES // 4))
            yield pieces[0].value, pieces[1].value
        finally:
            for piece in pieces:
                self._driver.cuMemFree_v2(piece)

    def _function(self, module: ctypes.c_void_p, name: bytes) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name))
        return function

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            code = int(getattr(self._driver, name)(*arguments))
        except AttributeError as error:
            raise NoYardstickError(f"libcuda has no {name}") from error
        if code:
            raise NoYardstickError(f"{name} failed with CUDA error {code}")
