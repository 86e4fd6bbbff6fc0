"""The compiler's counters: graphs, graph breaks, recompiles, cudagraph skips and kernels, with the reasons."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import Any

#: The key of a measurement's details that says why frames were left to eager.
FALLBACK_REASONS = "fallback_reasons"
#: Reasons kept per kind, and characters per reason.
_REASONS, _LENGTH = 20, 400
#: Fields of torch's CompilationMetrics, in microseconds, and what their sum over the graphs is called here.
_PHASES = {
    "dynamo_cumulative_compile_time_us": "dynamo",
    "aot_autograd_cumulative_compile_time_us": "aot_autograd",
    "pre_grad_pass_time_us": "pre_grad_passes",
    "joint_graph_pass_time_us": "joint_graph_passes",
    "backward_cumulative_compile_time_us": "backward",
    "inductor_cumulative_compile_time_us": "inductor",
    "post_grad_pass_time_us": "post_grad_passes",
    "inductor_code_gen_cumulative_compile_time_us": "code_gen",
    "triton_compile_time_us": "wait_for_kernels",
    "compile_time_autotune_time_us": "autotune_while_compiling",
    "runtime_triton_autotune_time_us": "autotune_while_running",
    "runtime_cudagraphify_time_us": "cudagraphify",
    "dynamo_compile_time_before_restart_us": "before_restarts",
    "guard_latency_us": "guards",
}
#: What Dynamo raises to itself at a graph break; it compiles the parts around it, and the counter of breaks has it.
_BREAKS = {"Unsupported", "SkipFrame"}
#: The one of these after which no later call of the frame is compiled.
_LIMIT = re.compile(r"(?:recompile|cache.size).limit", re.IGNORECASE)


class CompilerLog(logging.Handler):
    """Collects the messages in which Inductor says why a graph got no cudagraph."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.skips: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the message if it names a skip."""
        message = record.getMessage()
        if "skipping cudagraphs" in message:
            self.skips.append(message.strip()[:_LENGTH])

    def attach(self) -> CompilerLog:
        """Listens to the logger on which Inductor reports skips; returns itself."""
        # The artifact logger's name is private and has moved; both the plain and the artifact form are listened to.
        for name in ("torch._inductor.cudagraph_utils", "torch._inductor.cudagraph_utils.__cudagraphs"):
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.setLevel(logging.WARNING)
        return self


def reset() -> None:
    """Resets the counters of earlier compilations."""
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
    with suppress(ImportError):
        from torch._dynamo.utils import clear_compilation_metrics

        clear_compilation_metrics()


def read(log: CompilerLog) -> tuple[dict[str, float], dict[str, Any]]:
    """The counters as metrics, and the evidence behind them.

    A counter that this torch does not keep is absent from the metrics.
    """
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    breaks = {str(reason)[:_LENGTH]: count for reason, count in counters["graph_break"].items()}
    recompiles, fallbacks = _recompile_reasons(), _fallback_reasons()
    inductor = counters["inductor"]
    values = {
        "graphs": counters["stats"].get("unique_graphs", 0),
        "graph_breaks": sum(breaks.values()),
        "recompiles": None if recompiles is None else len(recompiles),
        "fallbacks": None if fallbacks is None else len(fallbacks),
        "cudagraph_skips": inductor.get("cudagraph_skips", 0),
        "cudagraph_partitions": inductor.get("cudagraph_partitions"),
        "kernels_generated": metrics.generated_kernel_count,
        "kernels_extern": inductor.get("extern_calls", 0),
    }
    details = {
        "graph_break_reasons": dict(sorted(breaks.items(), key=lambda item: -item[1])[:_REASONS]),
        "recompile_reasons": (recompiles or [])[:_REASONS],
        FALLBACK_REASONS: (fallbacks or [])[:_REASONS],
        "cudagraph_skip_reasons": sorted(set(log.skips))[:_REASONS],
        "fusion": _fusion(metrics, counters),
        "compile_phases_s": _phases(),
    }
    found = {name: float(value) for name, value in values.items() if value is not None}
    return found, {name: value for name, value in details.items() if value}


def _fusion(metrics: Any, counters: Any) -> dict[str, int]:
    """Operators that Dynamo captured, nodes of Inductor's IR before fusion, and what they became."""
    matched = counters["inductor"]
    found = {
        "calls_captured": counters["stats"].get("calls_captured", 0),
        "nodes_before": metrics.ir_nodes_pre_fusion,
        "kernels": metrics.generated_kernel_count,
        "extern_calls": matched.get("extern_calls", 0),
        "patterns_matched": matched.get("pattern_matcher_count", 0),
        "attention_fused": matched.get("fuse_attention", 0),
    }
    return {name: int(count) for name, count in found.items() if count}


def _phases() -> dict[str, float]:
    """Seconds by phase, over all graphs. Phases contain each other and overlap; docs/metrics.md has the tree."""
    found: dict[str, float] = {}
    for entry in _entries() or []:
        for name, phase in _PHASES.items():
            if spent := getattr(entry, name, None):
                found[phase] = round(found.get(phase, 0.0) + spent / 1e6, 4)
    return {phase: found[phase] for phase in _PHASES.values() if phase in found}


def _entries() -> list[Any] | None:
    try:
        from torch._dynamo.utils import get_compilation_metrics

        return list(get_compilation_metrics())
    except (ImportError, AttributeError):
        return None


def _recompile_reasons() -> list[str] | None:
    entries = _entries()
    if entries is None:
        return None
    reasons = [getattr(entry, "recompile_reason", None) for entry in entries]
    return [str(reason)[:_LENGTH] for reason in reasons if reason]


def _fallback_reasons() -> list[str] | None:
    """Why frames run in eager although Dynamo traced them: the back-end raised and it was suppressed, or there is a limit."""
    entries = _entries()
    if entries is None:
        return None
    found = []
    for entry in entries:
        kind, reason = getattr(entry, "fail_type", None), str(getattr(entry, "fail_reason", None) or "")
        if kind and (kind.rpartition(".")[2] not in _BREAKS or _LIMIT.search(reason)):
            where = f" in {name}" if (name := getattr(entry, "co_name", None)) else ""
            found.append(f"{kind}{where}: {' '.join(reason.split())}"[:_LENGTH])
    return found
