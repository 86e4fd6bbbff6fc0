"""The decision, made once per run instead of once per cell, whether Inductor may trust the CPU's flags.

With empty caches every process builds and runs a probe for each instruction set before its first C++ kernel: ten seconds and
more that say nothing about a model. On a host that runs torch's own builds, a probe only finds out whether the C++ compiler
knows the instructions. So the compiler is asked once; if it knows them, the cells of a run trust the CPU's flags. The probes of
AVX512 BF16 (torch 2.9), AVX512 VNNI (2.10) and AMX still run, one after the other, up to torch 2.12 each with a Python that
imports torch: 15 seconds on the host of an H200. A fork server runs them beside the imports of model libraries, and the cells
inherit the results; it waits for them only where cells have C++ code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

#: The variable that makes Inductor trust the CPU's flags without building a probe.
SKIP_VARIABLE = "TORCHINDUCTOR_VEC_ISA_OK"
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_PROBES = Path("~/.cache/inductor-watch/probes")


def trust_cpu() -> bool:
    """Make Inductor skip its probes, in this process and its children, if its compiler accepts the flags of each.

    Return whether it skips them. Settings of the user, in the environment or in torch's config, stay. Imports torch.
    """
    try:
        from torch._inductor import config

        if config.cpp.vec_isa_ok is not None or not compiler_takes(_flags()):
            return False
    except Exception:  # a torch with other names, or no compiler: the probes run, which is slower but never wrong
        return False
    config.cpp.vec_isa_ok = True  # torch's config has read the variable already
    os.environ[SKIP_VARIABLE] = "1"
    return True


def know_instruction_sets(cores: Iterable[int]) -> None:
    """Make Inductor probe the usable instruction sets here, on these cores; forked processes inherit the result.

    The libraries that it builds for that are kept in the user's cache: from torch 2.13 on building them is most of the work. It
    may run in a thread: only this thread changes its cores. Imports torch. If this torch stores the result elsewhere, each
    process probes for itself.
    """
    own = os.sched_getaffinity(0)
    try:
        import torch
        from torch._inductor import cpu_vec_isa

        with _kept_folder(_PROBES.expanduser() / torch.__version__) as folder, _cache_in(folder):
            os.sched_setaffinity(0, set(cores) or own)
            flags = set(cpu_vec_isa.x86_isa_checker())
            usable = [one for one in cpu_vec_isa.supported_vec_isa_list if flags.issuperset(str(one).split())]
            with ThreadPoolExecutor(max(1, len(usable))) as threads:
                list(threads.map(bool, usable))
            cpu_vec_isa.valid_vec_isa_list()
    except Exception:  # a torch with other names: slower, never wrong
        return
    finally:
        os.sched_setaffinity(0, own)


def is_own(path: Path) -> bool:
    """Return whether a path is there and the user's own: only then libraries in it are loaded, since homes may be shared."""
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


@contextmanager
def _kept_folder(kept: Path) -> Iterator[str]:
    """Yield a new folder with the files of `kept`, and make it `kept` afterwards if there is none.

    Nobody works in `kept` itself: Inductor holds a lock while it loads a probe, and takes half a library, which a killed
    compiler left, for a processor that lacks the instructions.
    """
    with tempfile.TemporaryDirectory() as folder:
        with suppress(OSError):
            if is_own(kept):
                shutil.copytree(kept, folder, dirs_exist_ok=True)
        yield folder
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            if not kept.exists():
                made = Path(tempfile.mkdtemp(dir=kept.parent))
                try:
                    shutil.copytree(folder, made, dirs_exist_ok=True)
                    made.rename(kept)  # fails if another server was first
                finally:
                    shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _cache_in(folder: str) -> Iterator[None]:
    """Keep Inductor's cache in a folder within this context."""
    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = folder
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_CACHE, None)
        else:
            os.environ[_CACHE] = before


def compiler_takes(flags: list[str]) -> bool:
    """Return whether Inductor's C++ compiler accepts these flags. Raises torch's error if there is no compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    command = [get_cpp_compiler(), *flags, "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False).returncode == 0


def _flags() -> list[str]:
    """Return the compiler flags of all instruction sets that torch would use if it trusted the CPU's flags."""
    from torch._inductor import config, cpu_vec_isa

    if known := set(cpu_vec_isa.x86_isa_checker()):
        # Not torch's own list, since building that list runs probes that cannot be skipped.
        sets = [one for one in cpu_vec_isa.supported_vec_isa_list if known.issuperset(str(one).split())]
    else:
        with config.patch({"cpp.vec_isa_ok": True}):
            sets = cpu_vec_isa.valid_vec_isa_list()
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
    return [flag for one in sets for flag in one.build_arch_flags().split()]


def main() -> None:
    """Run as `python -m collector.machine.toolchain`: exit with 0 if cells may trust the CPU's flags, else 1."""
    sys.exit(not trust_cpu())


if __name__ == "__main__":
    main()
