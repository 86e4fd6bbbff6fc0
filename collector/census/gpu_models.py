"""The GPUs that a census can generate code for, a replacement of the CUDA runtime, and answers to questions of timing.

Inductor times whether to pad a matrix product (`pad_mm`); its default program times nothing else. The census answers with the
decision that a GPU is known to have made, or else with an assumption that is equal in every census, so that two commits are
compared with one answer. Each question is kept with its answer and the answer's source. If anything else asks for a timing,
the code of the cell is unknown.

A census looks up and replaces names of torch and Triton only by two functions of this module, so that a missing name gives one
clear line. Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from collector.device import CPU
from collector.machine.toolchain import is_own
from collector.usage_errors import ConfigError, ExpectedError, nearest
from collector.vocabulary import short_hash


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model of GPU. Memory is in bytes, clocks are the highest ones, `bus_bits` is the width of the memory bus.

    `name` is the driver's name of the GPU, by which torch looks up its rates. Shared memory: a block gets `shared_block` by
    default and can request `shared_optin`; a multiprocessor has `shared_multiprocessor`.
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
        """Yield the C compiler's options that define this GPU's properties for `fake_runtime.c`."""
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
    """Return the GPU with this word or full name, in any case. Raises `ConfigError`, which names the known ones."""
    for model in _ALL:
        if name.lower() in (model.word.lower(), model.name.lower()):
            return model
    raise ConfigError(f"the census has no device {name!r}: {nearest(name, DEVICE_NAMES)}")


def device_word(device: str, gpu: str | None) -> str:
    """Return the value of `--device-name` for a testbed with this device and GPU; "" for a GPU that the census does not know."""
    if device == CPU:
        return CPU
    return next((word for word, model in GPU_MODELS.items() if gpu == model.name), "")


_SOURCE = Path(__file__).with_name("fake_runtime.c")
_HEADER = "cuda_runtime_api.h"


class CensusError(ExpectedError):
    """A census that cannot be taken here; the text is one line that says why and what to do."""


def build_runtime(gpu: GpuModel, cache: Path) -> Path:
    """Return the library that imitates this GPU's CUDA runtime; compile it into `cache` first if none of the user's is there.

    Raises:
        CensusError: there is no C compiler, no header of the CUDA runtime, the compiler refuses the source, or the library cannot
            be written.
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
    if not is_own(library):
        try:
            _compile(compiler, words, library)
        except OSError as error:
            reason = f"the runtime of a census cannot be written: {error.strerror}: {library}"
            raise CensusError(f"{reason}; name a folder of your own with --cache") from error
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
        made.rename(library)  # a whole file or none, even if two processes build it
    finally:
        made.unlink(missing_ok=True)


def _header_folders() -> Iterator[Path]:
    """Yield the folders of the CUDA runtime's headers: of NVIDIA's wheels first, then of Triton and of the toolkit."""
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


#: The releases of torch whose private names the census knows.
RELEASES = "2.11 to 2.13"


def find_private(path: str) -> Any:
    """Return the object at `module:name` or `module:Class.name`. Raises `CensusError` if this torch has no such name."""
    owner, name = _owner(path)
    try:
        return getattr(owner, name)
    except AttributeError:
        raise _missing(path) from None


def replace_private(path: str, value: Any) -> None:
    """Replace the object at `module:name` or `module:Class.name`. Raises `CensusError` if this torch has no such name."""
    owner, name = _owner(path)
    if not hasattr(owner, name):
        raise _missing(path)
    setattr(owner, name, value)


def _owner(path: str) -> tuple[Any, str]:
    module_name, _, names = path.partition(":")
    *parents, name = names.split(".")
    try:
        owner: Any = importlib.import_module(module_name)
        for parent in parents:
            owner = getattr(owner, parent)
    except (ImportError, AttributeError):
        raise _missing(path) from None
    return owner, name


def _missing(path: str) -> CensusError:
    import torch

    return CensusError(
        f"torch {torch.__version__} has no {path.replace(':', '.')}, which the census needs: it knows torch {RELEASES}"
    )


#: The source of an answer if no GPU's decision is known.
ASSUMED = "assumed"
PAD_MM = "pad_mm"
TIMING = "timing"


@dataclass(frozen=True, slots=True)
class Question:
    """A decision that Inductor makes by timing on a GPU. `key` names it within a cell; `source` is the answer's source."""

    kind: str
    key: str
    answer: bool | None
    source: str
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return asdict(self)


class Questions:
    """The questions of timing in one cell. `answers` has (answer, source) by the question's key."""

    def __init__(self, answers: Mapping[str, tuple[bool, str]] | None = None) -> None:
        self._answers = dict(answers or {})
        self.asked: dict[str, Question] = {}

    def attach(self) -> Questions:
        """Replace Inductor's decision of padding and its benchmarks in this process by these answers; return self."""
        replace_private("torch._inductor.fx_passes.pad_mm:get_cached_should_pad", self._should_pad)
        benchmarking = find_private("torch._inductor.runtime:benchmarking")
        base = find_private("torch._inductor.runtime.benchmarking:Benchmarker")
        for kind in vars(benchmarking).values():
            if isinstance(kind, type) and issubclass(kind, base):
                for name in {"benchmark", "benchmark_gpu", "benchmark_cpu"} & vars(kind).keys():
                    setattr(kind, name, self._time)
        return self

    def _should_pad(self, key: str) -> bool:
        name = short_hash(key)
        answer, source = self._answers.get(name) or (assume_padding(key), ASSUMED)
        self.asked.setdefault(name, Question(PAD_MM, name, answer, source, key))
        return answer

    def _time(self, *_: Any, **__: Any) -> Any:
        self.asked.setdefault(TIMING, Question(TIMING, TIMING, None, ""))
        raise RuntimeError("a census times nothing")


#: The sizes of a product's factors in the key under which Inductor stores its decision: `torch.Size([8192, 768])`.
_SIZES = re.compile(r"torch\.Size\(\[([\d, ]+)\]\)")
#: Padding does not win for products below this smallest dimension, or below this number of multiplications.
_SMALLEST_DIMENSION, _FEWEST_PRODUCTS = 64, 1.5e9
#: The number of elements in half precision to which Inductor pads.
_ALIGNMENT = 8


def assume_padding(key: str) -> bool:
    """Return whether a GPU would pad a matrix product, judged by its sizes as H100 and H200 decided in the measured cells.

    They pad large products in half precision whose inner dimension or columns are not aligned. They do not pad products in
    float32, or products in which only the rows are not aligned.
    """
    sizes = [[int(size) for size in found.split(",")] for found in _SIZES.findall(key)[:2]]
    if "torch.float32" in key or len(sizes) < 2:
        return False
    (*batch, rows, inner), columns = sizes[0], sizes[1][-1]
    is_large = min(rows, inner, columns) >= _SMALLEST_DIMENSION
    is_large = is_large and math.prod((*batch, rows, inner, columns)) >= _FEWEST_PRODUCTS
    return is_large and bool(inner % _ALIGNMENT or columns % _ALIGNMENT)
