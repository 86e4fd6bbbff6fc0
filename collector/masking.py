"""What a bundle, a database and a report never tell: variables that may hold a secret, and passwords in addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: The part of a fingerprint's key before the name of a variable.
ENV = "env."
#: Words that no name of a recorded variable contains, in large or small letters.
_SECRET = re.compile("token|key|secret|password|passwd|auth|credential", re.IGNORECASE)
#: Beginnings of names whose variables are all options of a compiler or a library of kernels.
_FAMILIES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_DYNAMO_", "TORCH_COMPILE_", "TORCH_CUDNN_", "PYTORCH_TUNABLEOP_")
#: Other variables that are known to change what is measured. Folders, hosts and devices are none of them.
_LIST = """
    AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL AOT_PARTITIONER_DEBUG CUBLAS_WORKSPACE_CONFIG CUBLASLT_WORKSPACE_SIZE
    CUDA_AUTO_BOOST CUDA_CACHE_DISABLE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER CUDA_DISABLE_PTX_JIT
    CUDA_FORCE_PTX_JIT CUDA_LAUNCH_BLOCKING CUDA_MODULE_DATA_LOADING CUDA_MODULE_LOADING CUDA_SCALE_LAUNCH_QUEUES
    CUDNN_CONV_WSCAP_DBG NVIDIA_TF32_OVERRIDE KMP_AFFINITY KMP_BLOCKTIME KMP_DUPLICATE_LIB_OK KMP_HW_SUBSET
    KMP_INIT_AT_FORK KMP_SETTINGS MKL_NUM_THREADS OMP_NUM_THREADS PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF
    PYTORCH_HIP_ALLOC_CONF PYTORCH_DDP_USE_SIDE_STREAM PYTORCH_JIT PYTORCH_MIOPEN_SUGGEST_NHWC
    PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_NVML_BASED_CUDA_CHECK TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
    TORCH_BLAS_PREFER_CUBLASLT TORCH_CACHING_PRECOMPILE TORCH_COMPILER_COLLECTIVES TORCH_CPP_LOG_LEVEL
    TORCH_CUDA_ARCH_LIST TORCH_CUDAGRAPH_GC TORCH_DEVICE_BACKEND_AUTOLOAD TORCH_DISABLE_NATIVE_JIT
    TORCH_FAKE_TENSOR_DISPATCH_CACHE TORCH_LINALG_PREFER_CUSOLVER TORCH_LINALG_PREFER_HIPSOLVER TORCH_LOGS
    TORCH_NVCC_FLAGS TORCH_SHOW_CPP_STACKTRACES TORCH_SPARSE_BSR_SCATTER_MM_LRU_CACHE_SIZE
    TORCH_SYMM_MEM_DISABLE_MULTICAST TORCH_SYMMMEM_IMPLICIT_POOL TORCH_USE_CUDA_DSA TORCH_WARM_POOL
    TRITON_ALLOW_NON_CONSTEXPR_GLOBALS TRITON_ALWAYS_COMPILE TRITON_DEBUG TRITON_DEFAULT_BACKEND
    TRITON_DEFAULT_FP_FUSION TRITON_DISABLE_LINE_INFO TRITON_ENABLE_ASAN TRITON_ENABLE_LLVM_DEBUG TRITON_F32_DEFAULT
    TRITON_FRONT_END_DEBUGGING TRITON_INTERPRET TRITON_KERNEL_DUMP TRITON_KERNEL_OVERRIDE TRITON_MOCK_PTX_VERSION
    TRITON_OVERRIDE_ARCH TRITON_PRINT_AUTOTUNING TRITON_STORE_BINARY_ONLY TRITON_USE_ASSERT_OP
"""
_KNOWN = frozenset(_LIST.split())
#: User and password of an address. A path made of an address has one slash left.
_USER = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*:/{1,3})[^\s/?#\"<>]*@")
#: A value of an address's query that its name calls secret.
_QUERY = re.compile(rf"([?&][\w.-]*(?:{_SECRET.pattern}|signature)[\w.-]*=)[^\s&#\"'<>]+", re.IGNORECASE)


def is_recorded(name: str) -> bool:
    """Return whether a variable of this name is known to matter and cannot be meant to be secret."""
    return (name in _KNOWN or name.startswith(_FAMILIES)) and not _SECRET.search(name)


def may_tell_secret(line: str) -> bool:
    """Return whether a line of JSON may have an address with a password, so that it is worth a closer look."""
    return ":/" in line and ("@" in line or _QUERY.search(line) is not None)


def mask(value: Any) -> Any:
    """Return the text, or the structure of texts, without the users and passwords of addresses."""
    if isinstance(value, str):
        if ":/" not in value:
            return value
        return _QUERY.sub(r"\1***", _USER.sub(r"\1", value))
    if isinstance(value, Mapping):
        return {mask(key): mask(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item) for item in value]
    return value


def mask_fingerprint(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment without variables that are not known to matter and without passwords in addresses."""
    hidden = hidden_variables(data)
    return {key: mask(item) for key, item in data.items() if key.removeprefix(ENV) not in hidden}


def hidden_variables(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the variables in an environment that are not told."""
    names = (str(key).removeprefix(ENV) for key in data if str(key).startswith(ENV))
    return tuple(sorted(name for name in names if not is_recorded(name)))
