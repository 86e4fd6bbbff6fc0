"""Which errors are a lack of memory, in every library's words, and which are not."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.exc import InductorError

from collector.failures import classify, lacks_memory
from collector.machine.health import is_suspect
from collector.usage_errors import ConfigError, NotCheckedError, NotCompiledError, UnavailableError
from collector.vocabulary import Stage, Status

#: Sources: c10/cuda/CUDACachingAllocator.cpp, c10/cuda/CUDAException, aten/src/ATen/cuda/Exceptions.h,
#: aten/src/ATen/cudnn/Exceptions.h, c10/core/impl/alloc_cpu.cpp, triton/backends/nvidia/driver.c, nccl/src/init.cc,
#: c10/xpu/XPUCachingAllocator.cpp, the headers of the libraries of CUDA.
NO_MEMORY = [
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 10.69 MiB is free.",
    "cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUDA error: insufficient resources when calling `cusparseCreate(&handle)`: CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "Native API failed. Native API returns: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)",
    "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    "[enforce fail at alloc_cpu.cpp:83] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
    "[Errno 12] Cannot allocate memory",
]
#: Mostly a lack of memory, where there is none.
AMBIGUOUS = [
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm( handle, opa, opb, m, n, k)`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "GET was unable to find an engine to execute this computation",
    "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
]
#: No lack of memory, whatever is free.
OTHERS = [
    "out of resource: shared memory, Required: 294912, Hardware limit: 232448. Reducing block sizes or `num_stages` may help.",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: device-side assert triggered",
    "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
    "'Attention' object has no attribute 'memory'",
]
STAGES = [stage for stage in Stage if stage is not Stage.DONE]


def status_of(error, stage=Stage.COMPILE, is_full=False):
    return classify(error, stage, is_full)[0]


@pytest.mark.parametrize("message", NO_MEMORY)
def test_memory_that_ran_out_is_oom_in_every_stage_and_nothing_suspect(message):
    assert {status_of(RuntimeError(message), stage) for stage in STAGES} == {Status.OOM}
    assert status_of(InductorError(RuntimeError(message), None)) is Status.OOM, "a compiler's wrapper changes nothing"
    assert not is_suspect(message)


@pytest.mark.parametrize("inner", [torch.OutOfMemoryError("short"), MemoryError()])
def test_an_error_of_memory_is_found_by_its_type_behind_others(inner):
    assert status_of(inner, Stage.EAGER) is Status.OOM
    chained, circle = ValueError("the model gave up"), ValueError("in a circle")
    chained.__cause__ = inner
    wrapped = BackendCompilerFailed(lambda: None, chained, None)
    wrapped.__cause__ = chained
    assert status_of(wrapped) is Status.OOM
    circle.__cause__ = circle
    assert status_of(circle, Stage.TIMING) is Status.FAIL_TO_RUN


@pytest.mark.parametrize("message", AMBIGUOUS)
def test_a_library_that_fails_lacked_memory_only_on_a_full_device(message):
    assert {status_of(RuntimeError(message), stage, is_full=True) for stage in STAGES} == {Status.OOM}
    assert Status.OOM not in {status_of(RuntimeError(message), stage) for stage in STAGES}


@pytest.mark.parametrize("message", OTHERS)
def test_what_is_no_lack_of_memory_is_none_on_a_full_device_either(message):
    assert not lacks_memory(message)
    assert status_of(RuntimeError(message), Stage.TIMING, is_full=True) is Status.FAIL_TO_RUN


def test_the_collectors_own_errors_have_their_status_all_else_its_stage():
    kinds = (UnavailableError, ConfigError, NotCheckedError, NotCompiledError)
    wanted = [Status.UNAVAILABLE, Status.CONFIG_ERROR, Status.NOT_CHECKED, Status.NOT_COMPILED]
    assert [status_of(kind("out of memory")) for kind in kinds] == wanted
    for stage in (Stage.START, Stage.LOAD_MODEL):
        assert status_of(ValueError("no"), stage) is Status.MODEL_FAIL_TO_LOAD
    assert status_of(ValueError("no"), Stage.RESOLVE_CONFIG) is Status.CONFIG_ERROR
    assert status_of(ValueError("no"), Stage.COMPILE) is Status.FAIL_TO_RUN
    assert status_of(InductorError(ValueError("no"), None)) is Status.FAIL_TO_COMPILE
    assert 1000 < len(classify(ValueError("x" * 9999), Stage.COMPILE)[1].message) <= 2000


COMMAND = "CppCompileError: C++ compile error\n\nCommand:\ng++ " + "-Iinclude " * 400
ERROR = "main.cpp:1565:33: error: 'aoti_torch_cuda__grouped_mm' was not declared in this scope"


def test_a_compilers_error_is_told_behind_its_long_command():
    message = f"{COMMAND}\nOutput:\n{ERROR}\n" + "  |  ^~~~\n" * 300
    status, failure = classify(RuntimeError(message), Stage.EAGER)
    assert status is Status.EAGER_FAIL
    assert failure.message.startswith("CppCompileError: C++ compile error")
    assert ERROR in failure.message
    assert len(failure.message) < 2100
    assert "a fault of torch" in failure.hint
