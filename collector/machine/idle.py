"""Checks that the GPU is idle and at full clock: a fixed amount of work takes longer if another process has queued kernels.

A process that is stopped (SIGSTOP) stops launching kernels, but those that it has launched go on. The GPU then runs both
processes in turn, and every latency and device time doubles. The probe is longer than the few milliseconds for which the
driver lets one process run before the other has its turn.
"""

from __future__ import annotations

import time

#: Products of the probe and their size: 17 GFLOP each, together about 45 ms on an H100 in float32 and 6 ms in TF32.
_PRODUCTS, _SIZE = 128, 2048
#: Products that are timed together: 0.4 ms in TF32, so that most of these pieces fit between two turns of another process.
_PIECE = 8
#: A probe that takes this many times an undisturbed one was not alone. Two processes in turn give a factor of 2; a GPU
#: that lowers its clock for heat or power stays below 1.4.
BUSY = 1.5
#: How far an eager latency may be above the same model's elsewhere in a run. Latencies that wait for launches repeat within
#: 15 %; a virtual machine's core that is slow for seconds makes them 1.4 to 1.8 times longer (docs/results.md).
SLOW_HOST = 1.25
#: The most seconds to wait for an idle GPU.
_LIMIT_S = 20.0


class IdleProbe:
    """Times the probe on this process's GPU.

    `idle_ms` is what the probe takes on an idle GPU, as far as this process knows: the shortest probe of other processes
    (the argument, 0 if there is none), or the shortest piece of its own probes times the number of pieces. A piece is
    short enough to be undisturbed even if the GPU runs another process in turn.
    """

    def __init__(self, known_ms: float = 0.0) -> None:
        import torch  # not above: whoever judges the probes of a run needs no torch

        self._torch = torch
        self.idle_ms = known_ms or float("inf")
        self._factor = torch.full((_SIZE, _SIZE), 1e-3, device="cuda")
        self._product = torch.empty_like(self._factor)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(_PRODUCTS // _PIECE + 1)]
        self.ms()  # loads the kernel

    def ms(self) -> float:
        """Milliseconds that the probe takes now."""
        self._torch.cuda.synchronize()
        self._events[0].record()
        for event in self._events[1:]:
            for _ in range(_PIECE):
                self._torch.mm(self._factor, self._factor, out=self._product)
            event.record()
        self._torch.cuda.synchronize()
        pieces = [begin.elapsed_time(end) for begin, end in zip(self._events, self._events[1:], strict=False)]
        self.idle_ms = min(self.idle_ms, round(len(pieces) * min(pieces), 3))
        return round(float(sum(pieces)), 3)

    def wait(self) -> float:
        """Waits until two probes in a row are as fast as on an idle GPU. Returns the milliseconds of the last one.

        Gives up after some seconds; the caller compares the result with `BUSY` times the shortest probe of the run.
        """
        deadline = time.monotonic() + _LIMIT_S
        idle = 0
        while True:
            took = self.ms()
            idle = idle + 1 if took < BUSY * self.idle_ms else 0
            if idle == 2 or time.monotonic() > deadline:
                return took
