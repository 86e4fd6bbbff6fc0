"""A model of the zoo: its spec, its building, and the built model. Imports no torch, so that the zoo can be listed without it.

Most models are built on the CPU, which takes seconds, and moved afterwards. Until then the device is free for other cells.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from collector.device import GPU
from collector.usage_errors import UnavailableError, ZooError
from collector.vocabulary import Phase

if TYPE_CHECKING:
    from torch import Tensor, nn


#: Both phases, for most models.
BOTH = (Phase.INFERENCE, Phase.TRAINING)

#: The key of `ModelSpec.batch_sizes` that stands for every accelerator.
ACCELERATOR = GPU

#: The parameters of a builder that are lengths of sequences.
LENGTHS = ("length", "cpu_length")


class MissingPackageError(ZooError, UnavailableError):
    """A model of the zoo that needs a package which is not installed here."""


@dataclass(frozen=True, slots=True)
class Built:
    """A built model in float32 and its inputs on the CPU, drawn from the CPU's global generators.

    The model may already be on the device that it was built for; weights that are drawn there come from the device's generator.
    The loss takes the model's output and `targets`, which is None for models that compute their own loss.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Callable[[Any, Any], Tensor]
    targets: Any = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model of a suite: its required packages, its batch sizes by phase and device, and its builder.

    In `batch_sizes`, `cuda` stands for every accelerator; a model without `cpu` is too large for one. `dtypes` restricts the
    dtypes unless it is empty; if `as_is` comes first, it is the default. The builder (`module:function`) is called as
    `function(batch_size, phase, device, **params)`.
    """

    suite: str
    name: str
    builder: str
    batch_sizes: Mapping[Phase, Mapping[str, int]]
    input_note: str
    needs: tuple[str, ...] = ("torch",)
    dtypes: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    notes: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        # The mappings have no hash; suite and name identify a model.
        return hash((self.suite, self.name))

    def __str__(self) -> str:
        return f"{self.suite}/{self.name}"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in which the model is measured."""
        return tuple(self.batch_sizes)

    def missing(self) -> list[str]:
        """Return the required packages that are not installed, without importing any."""
        return [name for name in self.needs if not _is_installed(name)]

    def supports(self, phase: Phase, device: str, dtype: str | None = None) -> bool:
        """Return whether the model has a batch size for this phase and device, and takes this dtype."""
        sized = _device_key(device) in self.batch_sizes.get(phase, {})
        return sized and (dtype is None or not self.dtypes or dtype in self.dtypes)

    def batch_size(self, phase: Phase, device: str) -> int:
        """Return the batch size for a phase and device. Raises `ZooError` if the model is not measured there."""
        sizes = self.batch_sizes.get(phase)
        if sizes is None:
            raise ZooError(f"{self} is not measured in {phase}, only in {', '.join(self.phases)}")
        if _device_key(device) not in sizes:
            raise ZooError(f"{self} is not measured on {device} in {phase}: {self.notes or 'it has no size there'}")
        return sizes[_device_key(device)]

    def build(self, batch_size: int, phase: Phase, device: str, shorter: int = 1) -> Built:
        """Build the model and its inputs, with random weights and without a network; the caller seeds torch and NumPy.

        `device` decides the sizes of inputs, such as a shorter sequence on a CPU, and where batch norms are calibrated. The
        lengths of sequences (parameters in `LENGTHS`) are divided by `shorter`. Raises `MissingPackageError` for a missing
        package.
        """
        require(self)
        forbid_hubs()
        module, _, function = self.builder.partition(":")
        lengths = {name: max(1, self.params[name] // shorter) for name in LENGTHS if name in self.params}
        built: Built = getattr(import_module(module), function)(batch_size, phase, device, **{**self.params, **lengths})
        return built


def require(spec: ModelSpec) -> None:
    """Raise `MissingPackageError`, which says what to install, if a package that the model needs is missing."""
    missing = spec.missing()
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise MissingPackageError(
            f"suite {spec.suite} needs {' and '.join(missing)} for {spec.name}, which {are} not installed: "
            f"pip install {' '.join(missing)}"
        )


def is_cpu(device: str) -> bool:
    """Return whether a device name, with or without an index, means the CPU."""
    return _device_key(device) == "cpu"


def _device_key(device: str) -> str:
    return "cpu" if device.partition(":")[0] == "cpu" else ACCELERATOR


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:
        # A module that was put into sys.modules by hand may have no spec, but it is there.
        return True


def same_in_both_phases(accelerator: int, cpu: int | None) -> Mapping[Phase, Mapping[str, int]]:
    """Return batch sizes that are equal for inference and training; `cpu=None` means that a CPU is too slow for the model."""
    sizes = {ACCELERATOR: accelerator} if cpu is None else {ACCELERATOR: accelerator, "cpu": cpu}
    return dict.fromkeys(BOTH, sizes)


#: Variables that keep the model libraries from contacting a hub.
_SWITCHES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Else transformers warns once per process about things that a random model cannot have.
    "TRANSFORMERS_VERBOSITY": "error",
}


def forbid_hubs() -> None:
    """Turn every download of the model libraries into an error, by environment variables.

    The libraries read the variables when they are imported, so call this before their import.
    """
    os.environ.update(_SWITCHES)


_listeners: list[Callable[[], None]] = []


def begin_device_use() -> None:
    """Announce that the code that follows uses the device. A builder calls this before it uses the device."""
    for listener in _listeners:
        listener()


@contextmanager
def before_device_use(listener: Callable[[], None]) -> Iterator[None]:
    """Call `listener` each time that a builder begins to use the device in this context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
