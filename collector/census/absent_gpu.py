"""An imitation of an absent GPU for torch and Triton, in which each compilation ends when the code is written.

In place of the generated code Inductor gets a module whose call returns fake tensors for the graph's outputs.

This module answers questions about the GPU that are asked in Python; the preloaded runtime (`fake_runtime.c`) answers those
of ATen's C++.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from collector.census.gpu_models import CensusError, GpuModel, find_private, replace_private


def stop_at_the_code() -> None:
    """Replace torch's functions that load generated code and that act after it. Raises `CensusError` for an unknown torch."""
    replace_private("torch._inductor.codecache:PyCodeCache.load_by_key_path", staticmethod(_load))
    for name in ("cudagraph_post_compile", "cudagraph_partition_post_compile"):
        replace_private(f"torch._inductor.output_code:{name}", lambda *_, **__: None)
    # Forward and backward are generated together, so that no backward pass has to run.
    replace_private("torch._functorch.config:force_non_lazy_backward_lowering", True)


def _load(key: str, path: str, *_: Any, **__: Any) -> ModuleType:
    graph = find_private("torch._inductor.virtualized:V").graph

    def call(arguments: list[Any]) -> tuple[Any, ...]:
        arguments.clear()
        return _outputs(graph)

    module: Any = ModuleType("census")
    module.call, module.__file__, module.key = call, path, key
    return module  # type: ignore[no-any-return]


def _outputs(graph: Any) -> tuple[Any, ...]:
    """Return tensors of the graph's outputs in their sizes, strides and dtypes; None or a number for other outputs."""
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


#: Libraries of registered operators: a registration ends when its library object is freed.
_kept: list[Any] = []


def pretend(gpu: GpuModel) -> None:
    """Make this process see the GPU. Raises `CensusError` for a torch without CUDA or of an unknown release."""
    if torch.version.cuda is None:
        raise CensusError(
            f"torch {torch.__version__} is built without CUDA: the census of a GPU needs the wheel for CUDA, "
            "e.g. pip install 'torch===2.13.0'"
        )
    _answer_for_cuda(gpu)
    _answer_for_triton(gpu)
    # torch's own switch, by which the guard of the current device does nothing.
    replace_private("torch._subclasses.fake_tensor:FakeTensorMode.avoid_device_init", True)
    replace_private("torch._subclasses.fake_tensor:init_gpu_context", lambda *_: None)
    _compute_constants_on_the_cpu()


def _answer_for_cuda(gpu: GpuModel) -> None:
    properties = SimpleNamespace(
        name=gpu.name,
        type="cuda",
        major=gpu.capability[0],
        minor=gpu.capability[1],
        multi_processor_count=gpu.multiprocessors,
        total_memory=gpu.memory,
        warp_size=gpu.warp,
        regs_per_multiprocessor=gpu.registers,
        max_threads_per_multi_processor=gpu.threads_multiprocessor,
        max_threads_per_block=gpu.threads_block,
        shared_memory_per_block=gpu.shared_block,
        shared_memory_per_block_optin=gpu.shared_optin,
        shared_memory_per_multiprocessor=gpu.shared_multiprocessor,
        L2_cache_size=gpu.l2_cache,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        uuid="",
    )
    answers = {
        "is_available": True,
        "is_initialized": True,
        "_lazy_init": None,
        "device_count": 1,
        "current_device": 0,
        "set_device": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "get_device_properties": properties,
        "get_device_capability": gpu.capability,
        "get_device_name": gpu.name,
        "is_bf16_supported": True,
        "is_tf32_supported": True,
        "synchronize": None,
        "empty_cache": None,
        "manual_seed": None,
        "manual_seed_all": None,
        "set_rng_state": None,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "mem_get_info": (gpu.memory, gpu.memory),
    }
    for name, answer in answers.items():
        replace_private(f"torch.cuda:{name}", _always(answer))
    replace_private("torch.cuda:get_rng_state", lambda *_: torch.zeros(16, dtype=torch.uint8))
    replace_private("torch._C:_cuda_getCurrentRawStream", _always(0))


def _answer_for_triton(gpu: GpuModel) -> None:
    target = find_private("triton.backends.compiler:GPUTarget")(
        "cuda", 10 * gpu.capability[0] + gpu.capability[1], gpu.warp
    )
    properties = {
        "max_shared_mem": gpu.shared_optin,
        "multiprocessor_count": gpu.multiprocessors,
        "max_num_regs": gpu.registers,
        "warpSize": gpu.warp,
        "sm_clock_rate": 1_000 * gpu.clock_mhz,
        "mem_clock_rate": gpu.memory_clock_khz,
        "mem_bus_width": gpu.bus_bits,
    }
    driver = SimpleNamespace(
        get_current_target=_always(target),
        get_current_device=_always(0),
        get_current_stream=_always(0),
        get_device_interface=_always(torch.cuda),
        utils=SimpleNamespace(get_device_properties=_always(properties)),
    )
    find_private("triton.runtime.driver:driver").set_active(driver)
    replace_private("torch._utils_internal:max_clock_rate", _always(gpu.clock_mhz))  # asks nvidia-smi


def _compute_constants_on_the_cpu() -> None:
    """Make the compiler's own constants on the GPU real tensors of the CPU."""

    def empty(
        size: Sequence[int],
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
        memory_format: Any = None,
    ) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format or torch.contiguous_format)

    def empty_strided(
        size: Sequence[int],
        stride: Sequence[int],
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
    ) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device="cpu")

    library = torch.library.Library("aten", "IMPL", "CUDA")
    library.impl("empty.memory_format", empty)
    library.impl("empty_strided", empty_strided)
    _kept.append(library)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer
