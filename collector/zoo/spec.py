"""What a model of the zoo is, before, while and after it is built. Imports no torch: listing the zoo must not need it.

Most models are built on the CPU, for seconds, and moved afterwards. Until then the device is free for others.
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
    """The model is in the zoo, but a package that it needs is not installed here."""


@dataclass(frozen=True, slots=True)
class Built:
    """A model in float32 and its inputs on the CPU, drawn from the CPU's global generators.

    The model may already be on the device that it was built for; weights that are drawn there come from its generator. The
    loss takes the model's output and `targets`, which is None for models that compute their own loss.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Callable[[Any, Any], Tensor]
    targets: Any = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model of one suite: what it needs, its batch size by phase and device, and where the code that builds it is.

    `cuda` stands for every accelerator, and a model without `cpu` is too large for one. `dtypes` restricts the dtypes unless
    it is empty; with `as_is` first it is measured so by default. The builder (`module:function`) is called as
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
        """The phases it is measured in."""
        return tuple(self.batch_sizes)

    def missing(self) -> list[str]:
        """The packages it needs that are not installed; nothing is imported to find out."""
        return [name for name in self.needs if not _is_installed(name)]

    def supports(self, phase: Phase, device: str, dtype: str | None = None) -> bool:
        """Whether the zoo has a size for this phase and device, and the model takes this dtype."""
        sized = _device_key(device) in self.batch_sizes.get(phase, {})
        return sized and (dtype is None or not self.dtypes or dtype in self.dtypes)

    def batch_size(self, phase: Phase, device: str) -> int:
        """The batch size it is measured at. Raises `ZooError` where it is not measured."""
        sizes = self.batch_sizes.get(phase)
        if sizes is None:
            raise ZooError(f"{self} is not measured in {phase}, only in {', '.join(self.phases)}")
        if _device_key(device) not in sizes:
            raise ZooError(f"{self} is not measured on {device} in {phase}: {self.notes or 'it has no size there'}")
        return sizes[_device_key(device)]

    def build(self, batch_size: int, phase: Phase, device: str, shorter: int = 1) -> Built:
        """Builds the model and its inputs, with random weights and without a network; the caller seeds torch and NumPy.

        `device` chooses input sizes, such as a shorter sequence for a CPU, and where batch norms are calibrated. `shorter`
        divides the length of its sequences, which the parameters `LENGTHS` say. Raises `MissingPackageError` for a missing
        package.
        """
        require(self)
        forbid_hubs()
        module, _, function = self.builder.partition(":")
        lengths = {name: max(1, self.params[name] // shorter) for name in LENGTHS if name in self.params}
        built: Built = getattr(import_module(module), function)(batch_size, phase, device, **{**self.params, **lengths})
        return built


def require(spec: ModelSpec) -> None:
    """Raises `MissingPackageError`, saying what to install, where a package that the model needs is missing."""
    missing = spec.missing()
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise MissingPackageError(
            f"suite {spec.suite} needs {' and '.join(missing)} for {spec.name}, which {are} not installed: "
            f"pip install {' '.join(missing)}"
        )


def is_cpu(device: str) -> bool:
    """Whether a device name means the CPU."""
    return _device_key(device) == "cpu"


def _device_key(device: str) -> str:
    return "cpu" if device.partition(":")[0] == "cpu" else ACCELERATOR


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:
        # A module that was put into sys.modules by hand may have no spec; it is there all the same.
        return True


def same_in_both_phases(accelerator: int, cpu: int | None) -> Mapping[Phase, Mapping[str, int]]:
    """One batch size per device for inference and training; `cpu=None` where a CPU is too slow for the model."""
    sizes = {ACCELERATOR: accelerator} if cpu is None else {ACCELERATOR: accelerator, "cpu": cpu}
    return dict.fromkeys(BOTH, sizes)


#: What keeps the model libraries from reaching for a hub.
_SWITCHES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Otherwise transformers warns once per process about things that a random model cannot have.
    "TRANSFORMERS_VERBOSITY": "error",
}


def forbid_hubs() -> None:
    """Turns every download of the model libraries into an error.

    They read these variables when they are imported, so a process that imports them before it builds a model calls this
    first.
    """
    os.environ.update(_SWITCHES)


_listeners: list[Callable[[], None]] = []


def begin_device_use() -> None:
    """Tell that what follows uses the device. A builder calls this before it does."""
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
