"""The table of metrics. Store, comparison, reports and dashboard derive names, units, titles and thresholds from it.

To add a metric, add an entry here and the line in `collector.measure.cell` that measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Better = Literal["lower", "higher", "neither"]
#: The average over the cells of a suite: the geometric mean for ratios and latencies, the arithmetic mean for compile time.
Average = Literal["geomean", "mean"]

#: The eager or compiled form of a cell is launch-bound if the device is busy for less than this share of a call.
LAUNCH_BOUND_BELOW = 0.8


class Dimension(StrEnum):
    """A subject of a comparison. Each has a verdict of its own, and they are shown in this order."""

    CORRECTNESS = "correctness"
    LATENCY = "latency"
    MEMORY = "memory"
    COMPILE = "compile"
    GRAPHS = "graphs"


class Section(StrEnum):
    """A table of docs/metrics.md."""

    LATENCY = "Latency"
    COMPILE = "Compile time and counters"
    MEMORY = "Memory"
    CORRECTNESS = "Correctness"
    YARDSTICKS = "Yardsticks"


class Place(StrEnum):
    """A place of the dashboard that shows metrics; each place also shows the metrics of the places before it."""

    COLUMN = "a column of Compare"
    COMPARE = "a column of Compare if it is asked for"
    MODEL = "the page of a model"


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity.

    Attributes:
        unit: `ms`, `s`, `B`, `x` for a ratio, empty for counts and similarities.
        title: the name in column heads.
        min_effect: the smallest relative change that matters; None for a metric that is not judged by its noise.
        is_count: whether changes are shown as differences instead of ratios, since a count may be 0.
        dimension: the dimension of a finding about this metric; None for a metric that is derived from others or only shown.
        meaning: the definition; `how` says how it is measured, `absent` where it is absent. docs/metrics.md is made of these.
        floor: a smaller value counts as this one, so that a change of next to nothing is no change; 0 for no floor.
        usual_noise: the standard deviation of its logarithm from process to process of the same code that a check assumes before
            anything was measured twice, as in the measurements in `data/` (`python -m benchmarks borrowed_noise`); None where it
            depends on the machine.
        control: the metric of the eager run in the same process, which shows how fast the machine was.
        judged_by: the metric that is judged in place of this ratio to eager, since the ratio also moves with eager.
        hud_threshold: PyTorch's dashboard marks an average below this value.
        shown: the place where the dashboard shows it, in the order of `rank`; None if it does not.
    """

    name: str
    unit: str
    better: Better
    title: str
    min_effect: float | None = None
    floor: float = 0.0
    usual_noise: float | None = None
    average: Average | None = None
    is_count: bool = False
    dimension: Dimension | None = None
    meaning: str = ""
    section: Section = Section.LATENCY
    shown: Place | None = None
    rank: int = 0
    control: str = ""
    judged_by: str = ""
    hud_threshold: float | None = None
    how: str = ""
    absent: str = ""


# fmt: off
_ALL = (
    Metric("eager_ms", "ms", "lower", "eager latency", average="geomean",
           meaning="median wall-clock latency of one eager call, device synchronised before and after",
           section=Section.LATENCY, shown=Place.MODEL, rank=15,
           how="in every other of `--samples` rounds (30), device idle before and after, garbage collection off; all "
               "samples kept"),
    Metric("compiled_ms", "ms", "lower", "compiled latency", min_effect=0.02, average="geomean",
           dimension=Dimension.LATENCY,
           meaning="median wall-clock latency of one compiled call, interleaved with the eager ones",
           section=Section.LATENCY, shown=Place.COLUMN, rank=1, control="eager_ms",
           how="in each of the rounds, after the eager call where there is one"),
    Metric("speedup", "x", "higher", "speedup", average="geomean",
           meaning="eager_ms over compiled_ms of the same process",
           section=Section.LATENCY, shown=Place.COMPARE, rank=7, judged_by="compiled_ms", hud_threshold=0.95,
           how="not judged: `compiled_ms` is"),
    Metric("eager_kernel_ms", "ms", "lower", "eager device time", usual_noise=0.0025,
           meaning="time per eager call in which the device was busy, from a profiler pass of its own",
           section=Section.LATENCY, shown=Place.MODEL, rank=14,
           how="union of all device intervals of a call under the profiler: the shortest one of six calls, three in each of two "
               "passes, in a check of four; each kernel as short as in any of them",
           absent="on a CPU"),
    Metric("compiled_kernel_ms", "ms", "lower", "device time", min_effect=0.02, average="geomean",
           usual_noise=0.0025, dimension=Dimension.LATENCY,
           meaning="time per compiled call in which the device was busy, from the same pass",
           section=Section.LATENCY, shown=Place.COLUMN, rank=2, control="eager_kernel_ms",
           how="the same pass",
           absent="on a CPU"),
    Metric("device_speedup", "x", "higher", "device speedup", average="geomean",
           meaning="eager_kernel_ms over compiled_kernel_ms: free of launch overhead and of host noise",
           section=Section.LATENCY, shown=Place.COMPARE, rank=6, judged_by="compiled_kernel_ms", hud_threshold=0.95,
           how="not judged: `compiled_kernel_ms` is",
           absent="on a CPU"),
    Metric("roof_share", "", "higher", "share of the roof",
           meaning="ideal over actual device time of the kernels of a compiled call: 0.56 is 56 % of the roof",
           section=Section.LATENCY, shown=Place.MODEL, rank=28,
           how="the ideal is the time of the bytes at the rate of a plain copy or of the operations at that of a plain "
               "product, see [below](#the-roof)",
           absent="on a CPU; where the work is known of less than 80 % of the device time (`no_roof` says why)"),
    Metric("compile_cold_s", "s", "lower", "cold compile", min_effect=0.05, average="mean",
           dimension=Dimension.COMPILE,
           meaning="first compiled call less a warm one and less tuning, all caches empty",
           section=Section.COMPILE, shown=Place.COLUMN, rank=3,
           how="time for which the process stood or waited for the device is taken out",
           absent="in cells that tuned before `tuning_s` was measured"),
    Metric("tuning_s", "s", "lower", "tuning", min_effect=0.05, floor=1.0,
           dimension=Dimension.COMPILE,
           meaning="what of the first compiled call went into autotuning: timing candidates and compiling them",
           section=Section.COMPILE, shown=Place.COMPARE, rank=4,
           how="spans of Inductor's functions that choose, see [below](#tuning); standing is taken out; not judged under "
               "`--shared-tuning`, nor where both sides take less than 1 s",
           absent="in cells that took choices or candidates of another cell, or tuned before it was measured"),
    Metric("eager_peak_bytes", "B", "lower", "eager peak memory",
           meaning="most device memory the allocator held during warm eager calls, weights and inputs included",
           section=Section.MEMORY, shown=Place.MODEL, rank=16,
           how="`torch.cuda.max_memory_allocated`; on a CPU the profiler's memory events, on top of the weights",
           absent="on a CPU if the profiler saw no allocation"),
    Metric("compiled_peak_bytes", "B", "lower", "peak memory", min_effect=0.02, usual_noise=0.001,
           dimension=Dimension.MEMORY,
           meaning="the same for the compiled calls after the first, cudagraph recording included",
           section=Section.MEMORY, shown=Place.COLUMN, rank=5,
           how="over four calls",
           absent="as above"),
    Metric("compression", "x", "higher", "compression", average="geomean",
           meaning="eager_peak_bytes over compiled_peak_bytes",
           section=Section.MEMORY, shown=Place.COMPARE, rank=8, judged_by="compiled_peak_bytes", hud_threshold=0.9,
           how="not judged: `compiled_peak_bytes` is",
           absent="as above"),
    Metric("saved_bytes", "B", "lower", "saved for backward",
           meaning="memory of what the forward pass of one compiled training step saves for the backward pass, without weights "
                   "and inputs",
           section=Section.MEMORY, shown=Place.MODEL, rank=17,
           how="`torch.autograd.graph.saved_tensors_hooks` around a call that is not timed, each storage once",
           absent="for inference; where a model allows no hooks (`no_saved_tensors` says why); before this version"),
    Metric("graphs", "", "neither", "graphs", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="graphs that Dynamo captured",
           section=Section.COMPILE,
           how="Dynamo's counter, over the whole cell"),
    Metric("graph_breaks", "", "lower", "graph breaks", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="times Dynamo had to leave a graph",
           section=Section.COMPILE, shown=Place.COMPARE, rank=12,
           how="Dynamo's counter"),
    Metric("recompiles", "", "lower", "recompiles", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="times a frame was compiled again because a guard failed",
           section=Section.COMPILE, shown=Place.MODEL, rank=17,
           how="compilation metrics with a `recompile_reason`; of a `dynamic` config at both sizes"),
    Metric("fallbacks", "", "lower", "fallbacks", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="frames that run in eager because their compilation failed or reached its limit of recompilations",
           section=Section.COMPILE,
           how="compilation metrics with a `fail_type` that is no graph break; errors show here under `suppress_errors` "
               "alone, else they end the cell"),
    Metric("cudagraph_skips", "", "lower", "cudagraph skips", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="graphs that asked for a cudagraph and did not get one",
           section=Section.COMPILE, shown=Place.COMPARE, rank=13,
           how="Inductor's counter"),
    Metric("cudagraph_partitions", "", "neither", "cudagraph partitions", is_count=True,
           meaning="cudagraph partitions, where this torch counts them",
           section=Section.COMPILE,
           how="Inductor's counter",
           absent="before torch 2.11, which does not count them; where there are none"),
    Metric("cudagraph_launches", "", "neither", "cudagraph launches", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="cudagraphs that one compiled call launches, where they are asked for",
           section=Section.COMPILE, shown=Place.MODEL, rank=25,
           how="the profiler's events of the compiled calls",
           absent="on a CPU; under a config without cudagraphs"),
    Metric("kernels_outside_graphs", "", "lower", "kernels outside cudagraphs", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="kernels and copies of one compiled call that no cudagraph launched",
           section=Section.COMPILE, shown=Place.MODEL, rank=26,
           how="the same events: what has not the correlation id of a graph's launch; graph partition leaves work "
               "outside and counts no skip",
           absent="where no cudagraph is launched"),
    Metric("cudagraph_share", "", "higher", "share in cudagraphs",
           meaning="part of the device time of one compiled call that ran in cudagraphs, where they are asked for",
           section=Section.COMPILE, shown=Place.MODEL, rank=27,
           how="the same events",
           absent="on a CPU; under a config without cudagraphs"),
    Metric("kernels_generated", "", "neither", "generated kernels", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="kernels that Inductor generated",
           section=Section.COMPILE, shown=Place.MODEL, rank=18,
           how="Inductor's metrics"),
    Metric("kernels_extern", "", "neither", "library calls", is_count=True,
           dimension=Dimension.GRAPHS,
           meaning="calls that Inductor left to a library (ATen, cuBLAS, cuDNN)",
           section=Section.COMPILE, shown=Place.MODEL, rank=19,
           how="Inductor's counter"),
    Metric("error_rmse_ratio", "x", "lower", "error ratio",
           meaning="worst RMSE against the reference of the compiled outputs over that of the eager ones",
           section=Section.CORRECTNESS, shown=Place.MODEL, rank=20,
           how="over all floating tensors above a thousandth of the largest of their group, where the reference is usable",
           absent="without a reference (`no_float64` says why); where eager is exact"),
    Metric("error_margin", "", "lower", "error over its limit",
           dimension=Dimension.CORRECTNESS,
           meaning="largest error of a compiled tensor as a share of the limit that the rules set it: up to 1 passes",
           section=Section.CORRECTNESS, shown=Place.COMPARE, rank=20,
           how="the largest share over rules 6 to 9, all floating tensors and later calls; of rules that accept a tensor each "
               "by itself the least. `nearest_to_limit` names the tensor. Rows that hang on near ties are left out",
           absent="without floating outputs; where outputs are wrong by a rule without a limit; before this version"),
    Metric("cosine", "", "higher", "cosine",
           meaning="smallest cosine similarity of a compiled output to its eager counterpart",
           section=Section.CORRECTNESS, shown=Place.MODEL, rank=21,
           how="in float64, over the finite values",
           absent="without floating outputs; `nondeterministic` cells"),
    Metric("accuracy_pytorch", "", "higher", "PyTorch's check",
           meaning="1 where PyTorch's own accuracy check passes the same outputs, 0 where it fails them",
           section=Section.CORRECTNESS,
           how="`torch._dynamo.utils.same` with the tolerance, multiplier and reference of PyTorch's runner, see "
               "[below](#pytorchs-own-check)",
           absent="where the check was not reached; where no reference had room (`no_accuracy_pytorch` says why); before this "
                  "version"),
    Metric("leak_bytes_per_call", "B", "lower", "leak per call",
           dimension=Dimension.MEMORY,
           meaning="device memory that stays allocated after a compiled call; "
                   "counted over 50 calls where the timed ones left any",
           section=Section.MEMORY, shown=Place.COMPARE, rank=9,
           how="allocated memory before the timed rounds and after the profile is compared: not grown, the leak is 0; "
               "grown, fifty compiled calls are made for it, and the half counts in which it grows less",
           absent="on a CPU, where torch's allocator keeps no account"),
    Metric("compile_warm_s", "s", "lower", "warm compile", min_effect=0.05,
           dimension=Dimension.COMPILE,
           meaning="first compiled call less a later one in a new process that finds all caches full",
           section=Section.COMPILE, shown=Place.COMPARE, rank=10,
           how="`--warm-compile`; the process first imports what the measuring one had imported, so that neither time "
               "holds imports; standing is taken out",
           absent="without the option; where the second process fails (`no_warm_compile` says why)"),
    # The margin of most counts in PyTorch's own check (benchmarks/dynamo/pr_time_benchmarks/expected_results.csv).
    Metric("host_overhead_us", "us", "lower", "host time",
           meaning="time for which the host works in one compiled call, from its start until it returns",
           section=Section.LATENCY, shown=Place.MODEL, rank=16,
           how="the clock around the calls that `compiled_ms` is of: the median; `host_parts_us` has its parts. Past about a "
               "thousand launches the driver's queue is full, and the host waits for the device",
           absent="on a CPU, where the host computes as well; where a call waits for the device, as after `.item()` "
                  "(`no_host_time` says so); before this version"),
    Metric("call_instructions", "", "lower", "host instructions",
           meaning="user-space instructions that the calling thread retires in one compiled call, until it returns",
           section=Section.LATENCY, shown=Place.MODEL, rank=16,
           how="torch's counter (Linux perf events): the median of three calls before the profiled ones; the backward pass of a "
               "GPU runs in another thread",
           absent="on a CPU; where perf events are not allowed; before this version"),
    Metric("joules_per_call", "J", "lower", "energy",
           meaning="energy that the whole GPU uses for one compiled call, its idle power for that time included",
           section=Section.LATENCY, shown=Place.MODEL, rank=16,
           how="`--energy`; NVML's energy counter over 0.8 to 3 s of calls in a row, after the profile: from a moment at "
               "which it moved to another; known within 3 %, or absent",
           absent="without the option; on a CPU; where a call takes more than 90 ms, the counter moves too seldom or "
                  "power is not steady (`no_joules` says why); on a part of a GPU; before this version"),
    Metric("over_static", "x", "lower", "over static", average="geomean",
           meaning="compiled_ms of a dynamic program over that of a static one, at the worse of the two sizes",
           section=Section.LATENCY, shown=Place.MODEL, rank=22,
           how="eager, static and dynamic in turn at each size, see [measuring.md](measuring.md#dynamic-shapes)",
           absent="for configs other than `dynamic`"),
    Metric("compile_instructions", "", "lower", "compile instructions", min_effect=0.015,
           dimension=Dimension.COMPILE,
           meaning="user-space instructions that the compiling thread retired in the first compiled call",
           section=Section.COMPILE, shown=Place.COMPARE, rank=11,
           how="torch's counter (Linux perf events); compile workers and other threads are not counted; a stop costs none, "
               "and what tuning takes is taken out",
           absent="where perf events are not allowed, as in most containers"),
    # Fixed work of our own (`collector.machine.yardstick`): the control for the machine's drift, never judged.
    Metric("yardstick_gpu_ms", "ms", "neither", "GPU yardstick",
           meaning="a fixed matrix product of our own on the GPU, four times: how fast the machine is, whatever torch does",
           section=Section.YARDSTICKS, shown=Place.MODEL, rank=23,
           how="PTX in the package, compiled and started by the CUDA driver right after the timed rounds; the median of "
               "seven rounds",
           absent="on a CPU; where the driver cannot run it (`no_yardstick` says why); before this version"),
    Metric("yardstick_copy_ms", "ms", "neither", "GPU copy yardstick",
           meaning="a fixed copy of our own in the GPU's memory, 64 MiB sixteen times",
           section=Section.YARDSTICKS, shown=Place.MODEL, rank=24,
           how="the same",
           absent="as above"),
    Metric("yardstick_host_ms", "ms", "neither", "host yardstick",
           meaning="a fixed loop of Python and a copy of 8 MiB on the host",
           section=Section.YARDSTICKS, shown=Place.MODEL, rank=25,
           how="right after the timed rounds, the median of seven rounds",
           absent="before this version"),
)
#: The yardsticks that tell the drift of device time and, where none is measured, of a host's latency.
GPU_YARDSTICKS, HOST_YARDSTICKS = ("yardstick_gpu_ms", "yardstick_copy_ms"), ("yardstick_host_ms",)
# fmt: on

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
#: The smallest relative change that matters, for each metric that is judged by its noise.
MIN_EFFECT: dict[str, float] = {metric.name: metric.min_effect for metric in _ALL if metric.min_effect is not None}


def shown_in(*places: Place) -> tuple[str, ...]:
    """Return the names of the metrics that the dashboard shows in these places, in the order of `rank`."""
    return tuple(metric.name for metric in sorted(_ALL, key=lambda metric: metric.rank) if metric.shown in places)
