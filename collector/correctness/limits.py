"""Tells an error of the check itself from one of the model, of the compiled program, or of the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from collector.correctness.snapshot import UnknownOutputError
from collector.errors import NotCheckedError
from collector.failures import classify
from collector.vocabulary import Stage, Status

#: Characters of a reason.
_LENGTH = 300
#: Errors that come to light in the check because it is the next to touch the device, or the outputs of a cudagraph.
_ELSEWHERE = ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS", "device-side assert", "overwritten by a subsequent run")


def is_limit(error: Exception) -> bool:
    """Whether an error that was raised while outputs were kept or compared says nothing about the program."""
    if classify(error, Stage.CORRECTNESS)[0] is Status.OOM or type(error).__name__ == "AcceleratorError":
        return False
    return not any(part in str(error) for part in _ELSEWHERE)


def reason(error: Exception) -> str:
    """The type and the first line of an error."""
    if isinstance(error, UnknownOutputError):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:_LENGTH]


@contextmanager
def checking() -> Iterator[None]:
    """Turns an error of the check itself into a `NotCheckedError`. No code of the model may run in here."""
    try:
        yield
    except NotCheckedError:
        raise
    except Exception as error:
        if is_limit(error):
            raise NotCheckedError(reason(error)) from error
        raise
