"""What the compiler says of itself: graphs, breaks, recompiles, cudagraph skips, kernels, with the reasons."""

from __future__ import annotations

import logging
from typing import Any

#: Reasons kept per kind, and characters per reason.
_REASONS, _LENGTH = 20, 400


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
    """Forgets what earlier compilations counted."""
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    torch._dynamo.reset()
    counters.clear()
    metrics.reset()


def read(log: CompilerLog) -> tuple[dict[str, float], dict[str, Any]]:
    """The counters as metrics, and the evidence behind them.

    A counter that this torch does not keep is absent from the metrics.
    """
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    breaks = {str(reason)[:_LENGTH]: count for reason, count in counters["graph_break"].items()}
    recompiles = _recompile_reasons()
    inductor = counters["inductor"]
    values = {
        "graphs": counters["stats"].get("unique_graphs", 0),
        "graph_breaks": sum(breaks.values()),
        "recompiles": None if recompiles is None else len(recompiles),
        "cudagraph_skips": inductor.get("cudagraph_skips", 0),
        "cudagraph_partitions": inductor.get("cudagraph_partitions"),
        "kernels_generated": metrics.generated_kernel_count,
        "kernels_extern": inductor.get("extern_calls", 0),
    }
    details = {
        "graph_break_reasons": dict(sorted(breaks.items(), key=lambda item: -item[1])[:_REASONS]),
        "recompile_reasons": (recompiles or [])[:_REASONS],
        "cudagraph_skip_reasons": sorted(set(log.skips))[:_REASONS],
        "fusion": {
            "nodes_before": metrics.ir_nodes_pre_fusion,
            "calls_captured": counters["stats"].get("calls_captured", 0),
        },
    }
    found = {name: float(value) for name, value in values.items() if value is not None}
    return found, {name: value for name, value in details.items() if value}


def _recompile_reasons() -> list[str] | None:
    try:
        from torch._dynamo.utils import get_compilation_metrics

        entries = get_compilation_metrics()
    except (ImportError, AttributeError):
        return None
    reasons = [getattr(entry, "recompile_reason", None) for entry in entries]
    return [str(reason)[:_LENGTH] for reason in reasons if reason]
