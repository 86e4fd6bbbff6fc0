"""Ends each compilation where the code is written: no kernel is compiled, no wrapper is loaded, no cudagraph is recorded.

What Inductor would load is a module whose call returns fake tensors of the graph's outputs.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from collector.census.fake_runtime import CensusError
from collector.census.private_names import find, replace


def stop_at_the_code() -> None:
    """Replace what loads generated code and what acts after it. Raises `CensusError` for a torch that is not known."""
    replace("torch._inductor.codecache:PyCodeCache.load_by_key_path", staticmethod(_load))
    for name in ("cudagraph_post_compile", "cudagraph_partition_post_compile"):
        replace(f"torch._inductor.output_code:{name}", lambda *_, **__: None)
    # Forward and backward are generated in one go: a backward pass need not run.
    replace("torch._functorch.config:force_non_lazy_backward_lowering", True)


def _load(key: str, path: str, *_: Any, **__: Any) -> ModuleType:
    graph = find("torch._inductor.virtualized:V").graph

    def call(arguments: list[Any]) -> tuple[Any, ...]:
        arguments.clear()
        return _outputs(graph)

    module: Any = ModuleType("census")
    module.call, module.__file__, module.key = call, path, key
    return module  # type: ignore[no-any-return]


def _outputs(graph: Any) -> tuple[Any, ...]:
    """Return what a call of the graph returns, without values."""
    sizes = graph.sizevars
    hint = getattr(sizes, "optimization_hint", None) or getattr(sizes, "size_hint", None)  # renamed in torch 2.13
    if hint is None:
        raise CensusError(f"torch {torch.__version__} has no hints of sizes where the census looks for them")

    def output(node: Any) -> Any:
        try:
            size, stride = node.get_size(), node.get_stride()
        except (AttributeError, NotImplementedError):  # no tensor: None, or the value of a size
            return int(hint(node.expr)) if hasattr(node, "expr") else None
        of_tensor = {"dtype": node.get_dtype(), "device": node.get_device()}
        return torch.empty_strided([int(hint(n)) for n in size], [int(hint(n)) for n in stride], **of_tensor)

    return tuple(map(output, graph.graph_outputs))
