"""The GPUs that a census can generate code for, and the library that stands in for the CUDA runtime. Imports no torch."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile

from collector.device import CPU
from collector.usage_errors import ConfigError, ExpectedError, nearest


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


_SOURCE = Path(__file__).with_name("fake_runtime.c")
_HEADER = "cuda_runtime_api.h"


class CensusError(ExpectedError):
    """A census cannot be taken here; the text is one line that says why and what to do."""


def build_runtime(gpu: GpuModel, cache: Path) -> Path:
    """Return the library that answers as this GPU's runtime; compile it into `cache` first if it is not there.

    Raises:
        CensusError: there is no C compiler, no header of the CUDA runtime, or the compiler refuses the source.
    """
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CensusError("the census of a GPU needs a C compiler and there is none: install gcc, or set CC")
    folders = list(_header_folders())
    if not folders:
        raise CensusError(f"no {_HEADER} beside the installed torch: the census of a GPU needs torch's wheel for CUDA")
    words = [*gpu.macros(), *(f"-I{folder}" for folder in folders)]
    content = [_SOURCE.read_bytes(), *(word.encode() for word in words), (folders[0] / _HEADER).read_bytes()]
    key = hashlib.sha256(b"\0".join(content)).hexdigest()[:16]
    library = cache.expanduser().absolute() / f"fake-runtime-{key}.so"
    if not library.exists():
        _compile(compiler, words, library)
    return library


def _compile(compiler: str, words: list[str], library: Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=library.parent, suffix=".partial", delete=False) as partial:
        made = Path(partial.name)
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        "-Wl,-soname,libcuda.so.1",
        *words,
        "-o",
        str(made),
        str(_SOURCE),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no output"])[0]
            raise CensusError(f"{compiler} does not compile the runtime of a census: {reason}")
        made.rename(library)  # whole or not at all, also where two processes build it
    finally:
        made.unlink(missing_ok=True)


def _header_folders() -> Iterator[Path]:
    """Yield the folders of the CUDA runtime's headers: those of NVIDIA's wheels first, then Triton's and the toolkit's."""
    places: list[Path] = []
    for package in ("nvidia", "triton"):
        spec = find_spec(package)
        places += map(Path, (spec.submodule_search_locations or ()) if spec else ())
    candidates = [folder for place in places for folder in sorted(place.glob("*/include"))]
    candidates += [folder for place in places for folder in sorted(place.glob("backends/nvidia/include"))]
    candidates.append(Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda", "include"))
    if any((folder / _HEADER).is_file() for folder in candidates):
        own = [folder for folder in candidates if (folder / _HEADER).is_file()]
        yield from own
        yield from (folder for folder in candidates if folder not in own and (folder / "crt").is_dir())
