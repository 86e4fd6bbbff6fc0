"""Every metric by name: unit, which way is better, definition. The one list that store, comparison and dashboard read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher", "neither"]

#: A form whose device is busy for less of a call than this is launch-bound.
LAUNCH_BOUND_BELOW = 0.8


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity. `unit` is empty for ratios and counts."""

    name: str
    unit: str
    better: Better
    meaning: str


_ALL = (
    Metric(
        "eager_ms", "ms", "lower", "median wall-clock latency of one eager call, device synchronised before and after"
    ),
    Metric(
        "compiled_ms", "ms", "lower", "median wall-clock latency of one compiled call, interleaved with the eager ones"
    ),
    Metric("speedup", "x", "higher", "eager_ms over compiled_ms of the same process"),
    Metric(
        "eager_kernel_ms",
        "ms",
        "lower",
        "time per eager call in which the device was busy, from a profiler pass of its own",
    ),
    Metric(
        "compiled_kernel_ms", "ms", "lower", "time per compiled call in which the device was busy, from the same pass"
    ),
    Metric(
        "device_speedup",
        "x",
        "higher",
        "eager_kernel_ms over compiled_kernel_ms: free of launch overhead and of host noise",
    ),
    Metric("compile_cold_s", "s", "lower", "first compiled call less a warm one, all caches empty"),
    Metric(
        "eager_peak_bytes",
        "B",
        "lower",
        "most device memory the allocator held during warm eager calls, weights and inputs included",
    ),
    Metric(
        "compiled_peak_bytes",
        "B",
        "lower",
        "the same for the compiled calls after the first, cudagraph recording included",
    ),
    Metric("compression", "x", "higher", "eager_peak_bytes over compiled_peak_bytes"),
    Metric("graphs", "", "neither", "graphs that Dynamo captured"),
    Metric("graph_breaks", "", "lower", "times Dynamo had to leave a graph"),
    Metric("recompiles", "", "lower", "times a frame was compiled again because a guard failed"),
    Metric("cudagraph_skips", "", "lower", "graphs that asked for a cudagraph and did not get one"),
    Metric("cudagraph_partitions", "", "neither", "cudagraph partitions, where this torch counts them"),
    Metric("kernels_generated", "", "neither", "kernels that Inductor generated"),
    Metric("kernels_extern", "", "neither", "calls that Inductor left to a library (ATen, cuBLAS, cuDNN)"),
    Metric(
        "error_rmse_ratio",
        "x",
        "lower",
        "worst RMSE against the reference of the compiled outputs over that of the eager ones",
    ),
    Metric("cosine", "", "higher", "smallest cosine similarity of a compiled output to its eager counterpart"),
    Metric(
        "leak_bytes_per_call",
        "B",
        "lower",
        "device memory that stays allocated after a compiled call; counted over 50 calls where the timed ones left any",
    ),
    Metric(
        "compile_warm_s",
        "s",
        "lower",
        "first compiled call less a later one in a new process that finds all caches full",
    ),
    Metric(
        "compile_instructions",
        "",
        "lower",
        "user-space instructions that the compiling thread retired in the first compiled call",
    ),
)

#: What repeats with an error from run to run: clock readings and their ratios.
TIMINGS = (
    "eager_kernel_ms",
    "compiled_kernel_ms",
    "device_speedup",
    "eager_ms",
    "compiled_ms",
    "speedup",
    "compile_cold_s",
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
