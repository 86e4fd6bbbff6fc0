"""The library that a census preloads in place of the CUDA runtime, built once and kept by its content. Imports no torch."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile

from collector.census.gpu_models import GpuModel
from collector.errors import ExpectedError

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
