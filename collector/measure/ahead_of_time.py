"""AOTInductor: a model is exported, compiled into a shared library, loaded, and called like any compiled form.

It takes the options, templates and modes of `torch.compile`. The whole forward pass is one graph (`torch.export`) or nothing is
compiled; there are no guards, no cudagraphs and no gradients, and the kernels are launched from C++.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from collector.usage_errors import ConfigError
from collector.vocabulary import Dynamic, OptionValue, Phase

#: Metrics that AOTInductor does not have, since Dynamo captures no graph and no cudagraph is recorded.
NOT_COUNTED = ("graphs", "graph_breaks", "recompiles", "fallbacks", "cudagraph_skips", "cudagraph_partitions")


class ExportFailedError(Exception):
    """A failure of `torch.export`; the text has the type and message of its error."""


class AheadOfTimeError(Exception):
    """A failure of AOTInductor on an exported model; the text has the type and message of its error."""


def check_ahead_of_time(options: dict[str, OptionValue], dynamic: Dynamic, phase: Phase | None = None) -> None:
    """Raise `ConfigError` for a request that AOTInductor cannot meet: a training step, cudagraphs, or dynamic shapes."""
    if phase is Phase.TRAINING:
        raise ConfigError("aot_inductor compiles no gradients: measure inference, or training with --backend inductor")
    if options.get("triton.cudagraphs"):
        raise ConfigError(
            "aot_inductor records no cudagraphs: take a template or mode without them, e.g. max-autotune-no-cudagraphs"
        )
    if dynamic:
        raise ConfigError("aot_inductor is measured at the shapes of the batch: leave out dynamic")


class Program:
    """A model that is exported, compiled and loaded at its first call. Later calls go to the library."""

    def __init__(
        self, model: nn.Module, options: dict[str, OptionValue], autocast: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._forward, self._options = _Forward(model, autocast), options
        self._library: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's outputs. The first call may raise `ExportFailedError` or `AheadOfTimeError`."""
        if self._library is None:
            self._library = _load(_export(self._forward, args, kwargs), self._options)
        return self._library(*args, **kwargs)


class _Forward(nn.Module):  # type: ignore[misc]
    """The model's forward pass with autocast inside, since an export ignores autocast around it."""

    def __init__(self, model: nn.Module, autocast: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self.model, self.autocast = model, autocast

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self.autocast():
            return self.model(*args, **kwargs)


def _export(forward: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return torch.export.export(forward, args, kwargs, strict=False)
    except Exception as error:
        raise ExportFailedError(f"the model does not export ({_in_words(error)})") from error


def _load(exported: Any, options: dict[str, OptionValue]) -> Callable[..., Any]:
    from torch._inductor import aoti_compile_and_package, aoti_load_package
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    # The package, which holds all weights, is in the cell's own cache, which is removed with the cell.
    Path(cache_dir()).mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="aot-", dir=cache_dir())) / "model.pt2"
    try:
        package = aoti_compile_and_package(exported, package_path=str(path), inductor_configs=dict(options))
        library: Callable[..., Any] = aoti_load_package(package)
    except Exception as error:
        raise AheadOfTimeError(f"AOTInductor failed ({_in_words(error)})") from error
    return library


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}"
