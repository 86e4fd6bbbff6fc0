"""THE table of metrics. Store, comparison, reports and dashboard derive names, units, titles and thresholds from it.

To add a metric, add an entry here and the line in `collector.measure.cell` that measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Better = Literal["lower", "higher", "neither"]
#: How cells of a suite are averaged: the geometric mean for ratios and latencies, the arithmetic mean for compile time.
Average = Literal["geomean", "mean"]

#: A form whose device is busy for less than this share of a call is launch-bound.
LAUNCH_BOUND_BELOW = 0.8


class Dimension(StrEnum):
    """What a user asks about; each has a verdict of its own, in this order."""

    CORRECTNESS = "correctness"
    LATENCY = "latency"
    MEMORY = "memory"
    COMPILE = "compile"
    GRAPHS = "graphs"


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity.

    Attributes:
        unit: `ms`, `s`, `B`, `x` for a ratio, empty for counts and similarities.
        title: the name in column heads; `short` where there is little room.
        min_effect: the smallest relative change that matters; None for a metric that is not judged by its noise.
        is_count: whether differences are told instead of ratios, since a count may be 0.
        dimension: what a change of it is a finding about; None for what is derived from other metrics or only shown.
        meaning: the definition, as in docs/metrics.md.
    """

    name: str
    unit: str
    better: Better
    title: str
    min_effect: float | None = None
    average: Average | None = None
    is_count: bool = False
    dimension: Dimension | None = None
    meaning: str = ""


# fmt: off
_ALL = (
    Metric("eager_ms", "ms", "lower", "eager latency", average="geomean",
           meaning="median wall-clock latency of one eager call, device synchronised before and after"),
    Metric("compiled_ms", "ms", "lower", "compiled latency", min_effect=0.02, average="geomean",
           dimension=Dimension.LATENCY,
           meaning="median wall-clock latency of one compiled call, interleaved with the eager ones"),
    Metric("speedup", "x", "higher", "speedup", average="geomean",
           meaning="eager_ms over compiled_ms of the same process"),
    Metric("eager_kernel_ms", "ms", "lower", "eager device time",
           meaning="time per eager call in which the device was busy, from a profiler pass of its own"),
    Metric("compiled_kernel_ms", "ms", "lower", "device time", min_effect=0.02, average="geomean",
           dimension=Dimension.LATENCY,
           meaning="time per compiled call in which the device was busy, from the same pass"),
    Metric("device_speedup", "x", "higher", "device speedup", average="geomean",
           meaning="eager_kernel_ms over compiled_kernel_ms: free of launch overhead and of host noise"),
    Metric("compile_cold_s", "s", "lower", "cold compile", min_effect=0.05, average="mean",
           dimension=Dimension.COMPILE,
           meaning="first compiled call less a warm one, all caches empty"),
    Metric("eager_peak_bytes", "B", "lower", "eager peak memory",
           meaning="most device memory the allocator held during warm eager calls, weights and inputs included"),
    Metric("compiled_peak_bytes", "B", "lower", "peak memory", min_effect=0.02,
           dimension=Dimension.MEMORY,
           meaning="the same for the compiled calls after the first, cudagraph recording included"),
    Metric("compression", "x", "higher", "compression", average="geomean",
           meaning="eager_peak_bytes over compiled_peak_bytes"),
    Metric("graphs", "", "neither", "graphs", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="graphs that Dynamo captured"),
    Metric("graph_breaks", "", "lower", "graph breaks", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="times Dynamo had to leave a graph"),
    Metric("recompiles", "", "lower", "recompiles", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="times a frame was compiled again because a guard failed"),
    Metric("fallbacks", "", "lower", "fallbacks", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="frames that run in eager because their compilation failed or reached its limit of recompilations"),
    Metric("cudagraph_skips", "", "lower", "cudagraph skips", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="graphs that asked for a cudagraph and did not get one"),
    Metric("cudagraph_partitions", "", "neither", "cudagraph partitions", is_count=True,
           meaning="cudagraph partitions, where this torch counts them"),
    Metric("kernels_generated", "", "neither", "generated kernels", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="kernels that Inductor generated"),
    Metric("kernels_extern", "", "neither", "library calls", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="calls that Inductor left to a library (ATen, cuBLAS, cuDNN)"),
    Metric("error_rmse_ratio", "x", "lower", "error ratio",
           meaning="worst RMSE against the reference of the compiled outputs over that of the eager ones"),
    Metric("cosine", "", "higher", "cosine",
           meaning="smallest cosine similarity of a compiled output to its eager counterpart"),
    Metric("leak_bytes_per_call", "B", "lower", "leak per call",
           dimension=Dimension.MEMORY,
           meaning="device memory that stays allocated after a compiled call; "
                   "counted over 50 calls where the timed ones left any"),
    Metric("compile_warm_s", "s", "lower", "warm compile", min_effect=0.05,
           dimension=Dimension.COMPILE,
           meaning="first compiled call less a later one in a new process that finds all caches full"),
    # The margin of most counts in PyTorch's own check (benchmarks/dynamo/pr_time_benchmarks/expected_results.csv).
    Metric("over_static", "x", "lower", "over static", average="geomean",
           meaning="compiled_ms of a dynamic program over that of a static one, at the worse of the two sizes"),
    Metric("compile_instructions", "", "lower", "compile instructions", min_effect=0.015,
           dimension=Dimension.COMPILE,
           meaning="user-space instructions that the compiling thread retired in the first compiled call"),
    # Fixed work of our own (`collector.machine.yardstick`): the control for the machine's drift, never judged.
    Metric("yardstick_gpu_ms", "ms", "neither", "GPU yardstick",
           meaning="a fixed matrix product of our own on the GPU, four times: how fast the machine is, whatever torch does"),
    Metric("yardstick_copy_ms", "ms", "neither", "GPU copy yardstick",
           meaning="a fixed copy of our own in the GPU's memory, 64 MiB sixteen times"),
    Metric("yardstick_host_ms", "ms", "neither", "host yardstick",
           meaning="a fixed loop of Python and a copy of 8 MiB on the host"),
)
#: The yardsticks that tell the drift of device time and, where none is measured, of a host's latency.
GPU_YARDSTICKS, HOST_YARDSTICKS = ("yardstick_gpu_ms", "yardstick_copy_ms"), ("yardstick_host_ms",)
# fmt: on

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
#: The smallest relative change that matters, for each metric that is judged by its noise.
MIN_EFFECT: dict[str, float] = {metric.name: metric.min_effect for metric in _ALL if metric.min_effect is not None}
