"""A cell's program measured with known slow-downs, the way its own metrics were; `collector.injection` makes them."""

from __future__ import annotations

from statistics import median
from typing import Any

from collector.injection import delayed
from collector.machine.quiet_cores import quietest
from collector.measure import profiling
from collector.measure.clock import Call, interleaved_ms, timed_s
from collector.settings import Settings


def measure(eager: Call, compiled: Call, basis_ms: float, device: str, settings: Settings) -> dict[str, dict[str, Any]]:
    """By slow-down, as a fraction of `basis_ms`: `eager_ms`, `compiled_ms`, its samples and, on a GPU, `compiled_kernel_ms`.

    Call it with the device to oneself and Python's collector off.
    """
    found: dict[str, dict[str, Any]] = {}
    recordings = {}
    with quietest(device) as cores:
        for fraction in settings.inject:
            slower = delayed(compiled, basis_ms * fraction, device)
            timed_s(slower, device)
            samples = interleaved_ms(
                eager, slower, device, settings.rounds, settings.sample_limit_s, before_round=cores.look
            )
            eager_ms, compiled_ms = map(median, samples)
            found[f"{fraction:g}"] = {
                "eager_ms": eager_ms,
                "compiled_ms": compiled_ms,
                # A nanosecond is far below what the clock resolves.
                "samples": [round(sample, 6) for sample in samples[1]],
            }
            if device == "cuda":
                recordings[f"{fraction:g}"] = profiling.record(slower, settings.profile_calls)
    for name, recording in recordings.items():
        if (seen := profiling.device_time(recording)) is not None:
            found[name]["compiled_kernel_ms"] = seen.busy_ms
    return found
