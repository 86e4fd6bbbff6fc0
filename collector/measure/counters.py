"""The compiler's counters with their reasons, and checks that the timed program was compiled at all.

Dynamo runs code that it does not compile in eager, and reports that at most in a log: if it is switched off
(`TORCHDYNAMO_DISABLE=1`, a stance, `torch.compiler.disable`), if the back-end raised and `suppress_errors` hid it, and if a
frame has reached the limit of recompilations. Such a program is eager under another name, and no measurement of it says anything
about a compiler.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torch.profiler import ProfilerActivity, profile

from collector.masking import excerpt
from collector.usage_errors import NotCompiledError
from collector.vocabulary import AHEAD_OF_TIME, Config

#: The key of a measurement's details with the reasons why frames were left to eager.
FALLBACK_REASONS = "fallback_reasons"
#: The most reasons of a kind that are kept, and the most characters of a reason.
_REASONS, _LENGTH = 20, 400
#: Fields of torch's CompilationMetrics, in microseconds, and our names of their sums over the graphs.
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
#: Exceptions that Dynamo raises to itself at a graph break: it compiles the parts around the break and counts it as a break.
_BREAKS = {"Unsupported", "SkipFrame"}
#: The reason among these after which no later call of the frame is compiled.
_LIMIT = re.compile(r"(?:recompile|cache.size).limit", re.IGNORECASE)


class CompilerLog(logging.Handler):
    """A handler that collects the messages in which Inductor says why a graph got no cudagraph."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.skips: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message if it names a skipped cudagraph."""
        message = record.getMessage()
        if "skipping cudagraphs" in message:
            self.skips.append(excerpt(message.strip(), _LENGTH))

    def attach(self) -> CompilerLog:
        """Listen to the loggers on which Inductor reports skips; return self."""
        # The artifact logger's name is private and has moved; both the plain and the artifact form are listened to.
        for name in ("torch._inductor.cudagraph_utils", "torch._inductor.cudagraph_utils.__cudagraphs"):
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.setLevel(logging.WARNING)
        return self


def reset() -> None:
    """Reset Dynamo, its counters and Inductor's metrics of earlier compilations."""
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
    """Return the counters as metrics, and the evidence behind them as details.

    A counter that this torch does not keep is absent from the metrics.
    """
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    breaks = {excerpt(str(reason), _LENGTH): count for reason, count in counters["graph_break"].items()}
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
    """Count the operators that Dynamo captured, the nodes of Inductor's IR before fusion, and the results of fusing them."""
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
    """Return seconds by phase, over all graphs. Phases contain each other and overlap; docs/metrics.md has the tree."""
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
    return [excerpt(str(reason), _LENGTH) for reason in reasons if reason]


def _fallback_reasons() -> list[str] | None:
    """Return why frames run in eager: an error of their compilation that was suppressed, or the limit of recompilations."""
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


#: The event that Dynamo records around each call of a frame that it compiled.
_REGION = "Torch-Compiled Region"
#: The name of the nodes that AOTAutograd puts into a gradient graph.
_COMPILED_NODE = "CompiledFunctionBackward"
_LEAF = "AccumulateGrad"


def demand_graphs(config: Config, metrics: Mapping[str, float], has_code: bool, fallbacks: list[str]) -> None:
    """Raise `NotCompiledError` if Dynamo captured no graph, or Inductor generated no code for any graph.

    `fallbacks` has the reasons why frames were left to eager (`FALLBACK_REASONS`).
    """
    because = f": {fallbacks[0]}" if fallbacks else ""
    if not metrics.get("graphs", 1.0):
        raise NotCompiledError(f"Dynamo compiled no graph, so every call ran in eager{because or _why(metrics)}")
    # AOTInductor raises if it does not compile, and does not log the code of every library.
    if config.is_inductors and config.backend != AHEAD_OF_TIME and not has_code:
        raise NotCompiledError(f"Inductor generated no code for any of the graphs{because}")


def _why(metrics: Mapping[str, float]) -> str:
    if metrics.get("graph_breaks"):
        return ": it broke off before the first operator"
    return ": it is switched off, or leaves the model alone (an RNN of torch, a model that calls no operator of torch)"


@dataclass(frozen=True, slots=True)
class GradientGraph:
    """The compiled part of a training step's gradient graph: the number of compiled nodes, and of those beyond the loss."""

    compiled: int = 0
    beyond_loss: int = 0

    @classmethod
    def of(cls, root: Any) -> GradientGraph:
        """Count the compiled nodes of the graph behind a loss's `grad_fn`. Call it before the backward pass.

        If only the loss was compiled, the root is the only compiled node, and no parameter is attached to it.
        """
        compiled = [node for node in _nodes(root) if _COMPILED_NODE in type(node).__name__]
        return cls(len(compiled), sum(node is not root or _holds_a_leaf(node) for node in compiled))


def demand_compiled_gradients(config: Config, graph: GradientGraph) -> None:
    """Raise `NotCompiledError` if only the loss of a training step was compiled, or nothing of it."""
    if config.is_inductors and not graph.beyond_loss:
        part = "the loss alone was compiled" if graph.compiled else "no gradient comes from a compiled graph"
        raise NotCompiledError(f"{part}, so forward and backward of the model ran in eager")


def demand_compiled_calls(call: Callable[[], Any]) -> None:
    """Raise `NotCompiledError` if a call enters no compiled frame, e.g. after the last recompilation that is allowed.

    It makes one call under a profiler, which slows later calls: use it after everything that is timed.
    """
    with profile(activities=[ProfilerActivity.CPU], acc_events=False) as profiler:
        call()
    events = profiler.profiler.kineto_results.events() if profiler.profiler else []
    if events and not any(event.name().startswith(_REGION) for event in events):
        raise NotCompiledError("what was compiled is no longer called: the timed calls ran in eager")


def _nodes(root: Any) -> Iterator[Any]:
    seen, waiting = set(), [root]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def _holds_a_leaf(node: Any) -> bool:
    return any(_LEAF in type(following).__name__ for following, _ in node.next_functions)
