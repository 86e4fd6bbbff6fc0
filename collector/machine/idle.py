"""Checks that the GPU is idle and at full clock: a fixed amount of work takes longer if another process has queued kernels.

A process that is stopped (SIGSTOP) stops launching kernels, but those that it has launched go on. The GPU then runs both
processes in turn, and every latency and device time doubles. The probe is longer than the few milliseconds for which the
driver lets one process run before the other has its turn.
"""

from __future__ import annotations

import time

#: Products of the probe and their size: 17 GFLOP each, together about 45 ms on an H100 in float32 and 6 ms in TF32.
_PRODUCTS, _SIZE = 128, 2048
#: A probe that takes this many times the shortest one was not alone. Two processes in turn give a factor of 2; a GPU that
#: lowers its clock for heat or power stays below 1.4.
BUSY = 1.5
#: The most seconds to wait for an idle GPU.
_LIMIT_S = 20.0


class IdleProbe:
    """Times the probe on this process's GPU. `known_ms` is the shortest probe of other processes, 0 if there is none."""

    def __init__(self, known_ms: float = 0.0) -> None:
        import torch  # not above: whoever judges the probes of a run needs no torch

        self._torch = torch
        self._shortest = known_ms or float("inf")
        self._factor = torch.full((_SIZE, _SIZE), 1e-3, device="cuda")
        self._product = torch.empty_like(self._factor)
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.ms()  # loads the kernel

    def ms(self) -> float:
        """Milliseconds that the probe takes now."""
        self._torch.cuda.synchronize()
        self._begin.record()
        for _ in range(_PRODUCTS):
            self._torch.mm(self._factor, self._factor, out=self._product)
        self._end.record()
        self._torch.cuda.synchronize()
        return round(float(self._begin.elapsed_time(self._end)), 3)

    def wait(self) -> float:
        """Waits until two probes in a row are as fast as on an idle GPU. Returns the milliseconds of the last one.

        Gives up after some seconds; the caller compares the result with `BUSY` times the shortest probe of the run.
        """
        deadline = time.monotonic() + _LIMIT_S
        idle = 0
        while True:
            took = self.ms()
            self._shortest = min(self._shortest, took)
            idle = idle + 1 if took < BUSY * self._shortest else 0
            if idle == 2 or time.monotonic() > deadline:
                return took
