"""The GPUs that a census can generate code for: what torch, Triton and the CUDA runtime say of them. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.errors import ConfigError, nearest

#: The name of a census of code for the CPU that it runs on.
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model of GPU. Memory is in bytes, clocks are the highest ones, `bus_bits` is how wide the memory's bus is.

    `name` is what the driver calls it: torch looks up its rates by this name. Shared memory: `shared_block` is what a block
    gets by default, `shared_optin` what it can ask for, `shared_multiprocessor` what its multiprocessor has.
    """

    word: str
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int
    l2_cache: int
    shared_optin: int
    shared_multiprocessor: int
    clock_mhz: int
    memory_clock_khz: int
    bus_bits: int
    shared_block: int = 49_152
    registers: int = 65_536
    threads_multiprocessor: int = 2_048
    threads_block: int = 1_024
    warp: int = 32

    def macros(self) -> Iterator[str]:
        """Yield the options of a C compiler that put this GPU into the runtime that answers for it."""
        yield f'-DGPU_NAME="{self.name}"'
        values = {
            "MAJOR": self.capability[0],
            "MINOR": self.capability[1],
            "MULTIPROCESSORS": self.multiprocessors,
            "MEMORY": self.memory,
            "L2_CACHE": self.l2_cache,
            "SHARED_BLOCK": self.shared_block,
            "SHARED_OPTIN": self.shared_optin,
            "SHARED_MULTIPROCESSOR": self.shared_multiprocessor,
            "REGISTERS": self.registers,
            "THREADS_MULTIPROCESSOR": self.threads_multiprocessor,
            "THREADS_BLOCK": self.threads_block,
            "WARP": self.warp,
        }
        yield from (f"-DGPU_{name}={value}" for name, value in values.items())


# fmt: off
_ALL = (
    GpuModel("H100", "NVIDIA H100 80GB HBM3", (9, 0), 132, 85_017_493_504, 52_428_800, 232_448, 233_472, 1_980, 2_619_000, 5_120),
    GpuModel("H200", "NVIDIA H200", (9, 0), 132, 150_109_880_320, 62_914_560, 232_448, 233_472, 1_980, 3_201_000, 6_144),
    GpuModel("A100", "NVIDIA A100-SXM4-80GB", (8, 0), 108, 85_095_874_560, 41_943_040, 166_912, 167_936, 1_410, 1_593_000, 5_120),
    GpuModel("B200", "NVIDIA B200", (10, 0), 148, 191_510_675_456, 132_644_864, 232_448, 233_472, 1_965, 3_996_000, 8_192),
)
# fmt: on

GPU_MODELS: dict[str, GpuModel] = {model.word: model for model in _ALL}
#: The values of `--device-name`.
DEVICE_NAMES = (*GPU_MODELS, CPU)


def find_gpu(name: str) -> GpuModel:
    """Return the GPU of this word or full name. Raises `ConfigError` that names the known ones."""
    for model in _ALL:
        if name.lower() in (model.word.lower(), model.name.lower()):
            return model
    raise ConfigError(f"the census has no device {name!r}: {nearest(name, DEVICE_NAMES)}")


def device_word(device: str, gpu: str | None) -> str:
    """Return the device name of a testbed with this device and GPU; empty where the census does not know the GPU."""
    if device == CPU:
        return CPU
    return next((word for word, model in GPU_MODELS.items() if gpu == model.name), "")
