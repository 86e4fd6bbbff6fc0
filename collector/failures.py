"""The status and the hint of an exception raised in a stage, and the result of torch's own compiler bisector."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collector.masking import excerpt, mask_own
from collector.usage_errors import ConfigError, NotCheckedError, NotCompiledError, UnavailableError
from collector.vocabulary import Failure, Measurement, Stage, Status

_BY_STAGE = {
    Stage.START: Status.MODEL_FAIL_TO_LOAD,
    Stage.LOAD_MODEL: Status.MODEL_FAIL_TO_LOAD,
    Stage.RESOLVE_CONFIG: Status.CONFIG_ERROR,
    Stage.EAGER: Status.EAGER_FAIL,
}

_LESS_MEMORY = "use a smaller --batch-size, or a GPU with more memory"
#: (part of a message, hint): the first part that the message contains gives the hint.
_HINTS = (
    ("No choices to select", "no back-end can compute this matrix product: keep ATEN in max_autotune_gemm_backends"),
    ("overwritten by a subsequent run", "a cudagraph output was read after the next replay: clone it first"),
    ("Cannot re-initialize CUDA in forked", "set PYTORCH_NVML_BASED_CUDA_CHECK=1 before torch is imported"),
    ("can't allocate memory", "the host has too little memory: use a smaller --batch-size"),
    ("out of memory", _LESS_MEMORY),
    ("device-side assert", "run again with CUDA_LAUNCH_BLOCKING=1 to find the kernel"),
    (
        "was not declared in this scope",
        "the C++ that Inductor generated calls what this torch does not have: a fault of torch, not of the compiler or the model",
    ),
    ("C++ compile error", "torch needs a C++ compiler that works: see `inductor-watch doctor`"),
    ("InvalidCxxCompiler", "no C++ compiler found: install g++ or set CXX"),
    (
        "the model does not export",
        "torch.export takes whole graphs only: the log's end has the line; --backend inductor breaks the graph there",
    ),
    (
        "AOTInductor failed",
        "the log's end has the stack; the same options with --backend inductor tell a fault of Inductor from one of its C++",
    ),
)
#: The hint of a status, for messages that match none of `_HINTS`.
_BY_STATUS = {
    Status.OOM: _LESS_MEMORY,
    Status.MODEL_FAIL_TO_LOAD: "the model's own code failed while the model was built: the end of the log has the stack",
    Status.EAGER_FAIL: "the model fails without any compiler: the end of the log has the stack",
    Status.NOT_CHECKED: "a limit of the check and no fault of the model: return tensors in lists, tuples or dicts",
    Status.ILL_CONDITIONED: "near ties (between experts, say) that rounding decides: more rows, another seed, or float32",
    Status.NOT_COMPILED: "TORCH_LOGS=+dynamo says what Dynamo did; suppress_errors, TORCHDYNAMO_DISABLE and stances hide errors",
    Status.FAIL_TO_COMPILE: "the end of the log has the stack; TORCHDYNAMO_VERBOSE=1 and TORCH_LOGS=+dynamo,+inductor log more",
    Status.FAIL_TO_RUN: "eager ran, the compiled program did not: --backend aot_eager tells whether Inductor is to blame",
    Status.NONDETERMINISTIC: "eager runs differ (unseeded random numbers, or another order of sums): accuracy is not checked",
    Status.FAIL_ACCURACY: "TORCH_COMPILE_DEBUG=1 keeps the kernels; emulate_precision_casts=true tells rounding from a bug",
}
_STUCK = {
    Stage.COMPILE: "the end of the log shows what it was compiling: use a longer --timeout; TORCH_LOGS=dynamo,inductor logs it",
}
_STUCK_ELSEWHERE = "the end of the log shows the stack where it hung: use a longer --timeout if it was only slow"
_SIGNALS = {
    "SIGKILL": "often the kernel's out-of-memory killer",
    "SIGSEGV": "invalid memory access: the end of the log shows the Python stack of the crash",
    "SIGABRT": "a library aborted the process: the end of the log says why",
    "SIGILL": "a kernel uses an instruction that this CPU lacks",
}
HINT_OF_EXIT = "the model or a library called exit: the end of the log is all that there is"
#: Errors that a compiler raises.
_COMPILERS = {
    "torch._dynamo.exc.TorchDynamoException",
    "torch._inductor.exc.InductorError",
    "collector.measure.ahead_of_time.ExportFailedError",
    "collector.measure.ahead_of_time.AheadOfTimeError",
}
#: Parts of messages that say that memory ran out, in lower case: of torch, CUDA's and HIP's runtimes and drivers, Triton, NCCL,
#: Level Zero, a CPU's allocator, and libraries that find no room for their workspace.
_NO_MEMORY = (
    "out of memory",  # "CUDA out of memory", "CUDA error: out of memory", "Triton Error [CUDA]: out of memory", NCCL's
    "out_of_memory",  # CUDA_ERROR_OUT_OF_MEMORY, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
    "out_of_device_memory",
    "out_of_host_memory",
    "cudaerrormemoryallocation",
    "hiperroroutofmemory",
    "status_alloc_failed",  # cuBLAS, cuDNN, cuSOLVER, cuSPARSE
    "allocation_failed",  # cuDNN 9 (CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED), cuRAND
    "cufft_alloc_failed",
    "cusparse_status_insufficient_resources",
    "cannot allocate memory",  # the kernel's ENOMEM
    "defaultcpuallocator: can't allocate memory",
    "defaultcpuallocator: not enough memory",
    "std::bad_alloc",
)
#: Parts of messages of libraries that cannot be set up or fail inside, mostly for lack of memory (`is_full` of `classify`).
_MAYBE_NO_MEMORY = (
    "status_not_initialized",
    "status_internal_error",
    "status_execution_failed",
    "cudnn_status_not_supported",
    "cufft_internal_error",
    "cufft_setup_failed",
    "curand_status_initialization_failed",
    "unable to find an engine to execute this computation",
    "find was unable to find an engine",
    "ncclunhandledcudaerror",
    "unhandled cuda error",
)
_LONGEST = 2000


def classify(error: BaseException, stage: Stage, is_full: bool = False) -> tuple[Status, Failure]:
    """Return the status and the failure record of an exception raised in a stage.

    `is_full`: whether the device had next to no free memory then, so that an internal error of a library is one of memory.
    """
    message = str(error).strip() or type(error).__name__
    status = _status(error, stage, message, is_full)
    hint = (
        next((hint for part, hint in _HINTS if part in message), None) or _hint_of_type(error) or hint_of_status(status)
    )
    # Masked before it is cut: half an address or half a token would not be recognised.
    return status, Failure(stage, type(error).__qualname__, shortened(str(mask_own(message))), hint)


def reason_of(error: BaseException, length: int = 300) -> str:
    """Return the type of an error and the beginning of its message, without secrets."""
    return f"{type(error).__name__}: {excerpt(str(error), length)}"


def shortened(message: str) -> str:
    """Return a message, without its middle if it is long: a compiler's message begins with a command of a page.

    The first line with `error:` after the kept beginning stays.
    """
    if len(message) <= _LONGEST:
        return message
    head, rest = message[: _LONGEST // 4], message[_LONGEST // 4 :]
    error = next((line.strip() for line in rest.splitlines() if "error:" in line), "")[: _LONGEST // 4]
    parts = [head, error, rest[-_LONGEST // 2 :]]
    return "\n[...]\n".join(part for part in parts if part)


def hint_of_status(status: Status) -> str | None:
    """Return the hint of a status, for failures that nothing else explains; None for a status without a hint."""
    return _BY_STATUS.get(status)


def hint_of_timeout(stage: Stage) -> str:
    """Return the hint for a cell that ran out of time in this stage."""
    return _STUCK.get(stage, _STUCK_ELSEWHERE)


def hint_of_signal(name: str) -> str | None:
    """Return the usual cause of a signal (`SIGKILL`) that ended the process; None for a signal without a known cause."""
    return _SIGNALS.get(name)


def _hint_of_type(error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        return "install it; for a model of your own, start in the folder of its module, or set PYTHONPATH"
    if isinstance(error, ImportError):
        return "the module is installed but does not import: it may be built for another version of a library"
    return None


def _status(error: BaseException, stage: Stage, message: str, is_full: bool) -> Status:
    if isinstance(error, UnavailableError):
        return Status.UNAVAILABLE
    if isinstance(error, ConfigError):
        return Status.CONFIG_ERROR
    if isinstance(error, NotCheckedError):
        return Status.NOT_CHECKED
    if isinstance(error, NotCompiledError):
        return Status.NOT_COMPILED
    if isinstance(error, MemoryError) or lacks_memory(message, is_full) or _raised_for_memory(error):
        return Status.OOM
    if stage in _BY_STAGE:
        return _BY_STAGE[stage]
    return Status.FAIL_TO_COMPILE if _from_compiler(error) else Status.FAIL_TO_RUN


def lacks_memory(message: str, is_full: bool = False) -> bool:
    """Return whether a message says that memory ran out; `is_full` as in `classify`."""
    text = message.lower()
    return any(part in text for part in _NO_MEMORY + (_MAYBE_NO_MEMORY if is_full else ()))


def _raised_for_memory(error: BaseException | None) -> bool:
    """Return whether this error, or an error that it was raised from, is an out-of-memory error by its type."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            return True
        error = error.__cause__
    return False


def _from_compiler(error: BaseException | None) -> bool:
    """Return whether the compiler raised this error or one behind it: by type, or by a traceback through `convert_frame.py`."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
        if names & _COMPILERS:
            return True
        frames = traceback.extract_tb(error.__traceback__)
        if any(frame.filename.endswith("torch/_dynamo/convert_frame.py") for frame in frames):
            return True
        error = error.__cause__ or error.__context__
    return False


#: The key of a measurement's details under which its `Explanation` is.
EXPLAINED = "explained"
#: Statuses whose cause the bisector can find: eager computes the cell and the compiled program does not.
EXPLAINABLE = (Status.FAIL_ACCURACY, Status.FAIL_TO_COMPILE, Status.FAIL_TO_RUN, Status.CRASHED)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `torch._inductor.compiler_bisector` for one cell; a field that was not found is empty.

    `backend` is the first back-end with which the cell fails, from `eager` to `inductor`. `subsystem` is the part of it
    without which the cell passes, such as `lowerings`. `number` counts the applications of the subsystem up to the one that
    makes the cell fail, and `target` is torch's description of that application: a pass or an operator. `status` is the
    status of the cell with the back-end. `unfinished` says why the search ended early. `steps` is the number of compilations.
    """

    backend: str = ""
    subsystem: str = ""
    number: int | None = None
    target: str = ""
    status: str = ""
    unfinished: str = ""
    steps: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Explanation | None:
        """Return the explanation in a measurement's details, or None. Ignore fields of a newer version."""
        data = details.get(EXPLAINED)
        if not isinstance(data, Mapping):
            return None
        return cls(**{name: value for name, value in data.items() if name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with a key for every field."""
        return asdict(self)

    def added_to(self, measurement: Measurement) -> None:
        """Store this explanation in the measurement's details."""
        measurement.details[EXPLAINED] = self.to_json()

    def __str__(self) -> str:
        names = ", ".join(name for name in (self.backend, self.subsystem, self.target) if name)
        if names:
            return f"torch's compiler bisector names: {names}" + (f" ({self.unfinished})" if self.unfinished else "")
        why = self.unfinished or "the cell passes with every back-end now: the failure did not come again"
        return f"torch's compiler bisector names nothing: {why}"
