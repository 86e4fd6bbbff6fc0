"""Whether the program that is timed was compiled at all.

Dynamo runs in eager what it does not compile, and says so in a log at most: where it is switched off
(`TORCHDYNAMO_DISABLE=1`, a stance, `torch.compiler.disable`), where the back-end raised and `suppress_errors` hid it, and
where a frame has reached the limit of recompilations. Such a program is eager under another name, and no measurement of it
says anything about a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch.profiler import ProfilerActivity, profile

from collector.errors import NotCompiledError
from collector.vocabulary import AHEAD_OF_TIME, Config

#: The event that Dynamo records around each call of a frame that it compiled.
_REGION = "Torch-Compiled Region"
#: How the nodes that AOTAutograd puts into a gradient graph are called.
_COMPILED_NODE = "CompiledFunctionBackward"
_LEAF = "AccumulateGrad"


def demand_graphs(config: Config, metrics: Mapping[str, float], has_code: bool, fallbacks: list[str]) -> None:
    """Raises `NotCompiledError` where Dynamo captured no graph, or Inductor generated no code for any.

    `fallbacks` is why frames were left to eager, from `collector.measure.counters`.
    """
    because = f": {fallbacks[0]}" if fallbacks else ""
    if not metrics.get("graphs", 1.0):
        raise NotCompiledError(f"Dynamo compiled no graph, so every call ran in eager{because or _why(metrics)}")
    # AOTInductor raises where it does not compile, and does not log the code of every library.
    if config.is_inductors and config.backend != AHEAD_OF_TIME and not has_code:
        raise NotCompiledError(f"Inductor generated no code for any of the graphs{because}")


def _why(metrics: Mapping[str, float]) -> str:
    if metrics.get("graph_breaks"):
        return ": it broke off before the first operator"
    return ": it is switched off, or leaves the model alone (an RNN of torch, a model that calls no operator of torch)"


@dataclass(frozen=True, slots=True)
class GradientGraph:
    """What of a training step's gradient graph was compiled: how many nodes, and how many of these hold more than the loss."""

    compiled: int = 0
    beyond_loss: int = 0

    @classmethod
    def of(cls, root: Any) -> GradientGraph:
        """Return the graph behind a loss's `grad_fn`. Call it before the backward pass.

        Where the loss alone was compiled, the only compiled node is the root, and no parameter hangs on it.
        """
        compiled = [node for node in _nodes(root) if _COMPILED_NODE in type(node).__name__]
        return cls(len(compiled), sum(node is not root or _holds_a_leaf(node) for node in compiled))


def demand_compiled_gradients(config: Config, graph: GradientGraph) -> None:
    """Raise `NotCompiledError` where of a training step the loss alone was compiled, or nothing."""
    if config.is_inductors and not graph.beyond_loss:
        part = "the loss alone was compiled" if graph.compiled else "no gradient comes from a compiled graph"
        raise NotCompiledError(f"{part}, so forward and backward of the model ran in eager")


def demand_compiled_calls(call: Callable[[], Any]) -> None:
    """Raises `NotCompiledError` where a call enters no compiled frame, e.g. after the last recompilation that is allowed.

    It calls once under a profiler: not before anything that is timed.
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
