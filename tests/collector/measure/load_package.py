"""Compiles two layers with AOTInductor and loads the package, with nothing of this project: whether a crash is torch's.

    python tests/collector/measure/load_package.py [cuda|cpu]

It takes less than a minute. A process that dies prints its C++ and its Python stack. If the one that compiles dies after that,
the package is loaded in other ways as well, each in a new process, and a GPU's host does it all on the CPU, too. The last lines
say how each process ended; the exit code is 1 if the first one failed.
"""

from __future__ import annotations

import ctypes
import faulthandler
import re
import resource
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

#: In a process that compiles nothing. `load-at-once`: before the device is used; `dlopen`: the dynamic linker alone.
WAYS = ("load", "load-single-threaded", "load-at-once", "dlopen")
ON_DEVICE_0 = "load-on-device-0"
#: Seconds after which a process that hangs is ended by SIGALRM.
_LIMIT_S = 200
_LIBRARIES = re.compile(r"/\S*/lib(?:cuda|cudart|stdc\+\+|c10_cuda|torch_cuda)\.so\S*")


def tell(text: str) -> None:
    """Print at once, before a crash."""
    print(text, flush=True)  # noqa: T201


def start(way: str, device: str, folder: Path) -> subprocess.Popen[str]:
    """Start this script for one of the ways, or for `compile`."""
    command = [sys.executable, "-X", "faulthandler", __file__, device, way, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def ended(way: str, process: subprocess.Popen[str]) -> str:
    """Print what a process says, and return how it ended."""
    said, _ = process.communicate()
    tell(f"== {way}\n{said.rstrip()}")
    code, reached = process.returncode, re.findall(r"^\d+ s: (\w+)", said, re.MULTILINE)
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"{way}: {how} after '{reached[-1] if reached else 'nothing'}'"


def main(device: str) -> int:
    """Compile and load; if that dies, try the other ways at the same time."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        first = start("compile", device, folder)
        summary = [ended("compile", first)]
        if first.returncode < 0 and (folder / "model.pt2").exists():
            others = [(way, start(way, device, folder)) for way in WAYS]
            if device == "cuda":
                others.append((ON_DEVICE_0, start(ON_DEVICE_0, device, folder)))
                (folder / "cpu").mkdir()
                others.append(("compile on the CPU", start("compile", "cpu", folder / "cpu")))
            summary += [ended(*other) for other in others]
    tell("\n".join([f"== torch on {device}:", *summary]))
    return 1 if first.returncode else 0


def work(device: str, way: str, folder: Path) -> None:
    """Do one of the ways in this process, and print a line for each step."""
    began = time.monotonic()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(_LIMIT_S)
    import torch
    from torch import nn

    faulthandler.enable()
    torch._C._set_print_stack_traces_on_fatal_signal(True)  # of C++, before Python's

    def say(text: str) -> None:
        tell(f"{time.monotonic() - began:.0f} s: {text}")

    package = folder / "model.pt2"
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    given = torch.randn(8, 64)
    say(f"imported torch {torch.__version__}, CUDA {torch.version.cuda}, Python {sys.version.split()[0]}")
    if way != "load-at-once":
        model, given = model.to(device), given.to(device)
    if way == "compile":
        print_toolchain(device)
        with torch.no_grad():
            exported = torch.export.export(model, (given,))
        say("exported")
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package))
        say("compiled")
    for path in sorted(set(_LIBRARIES.findall(Path("/proc/self/maps").read_text()))):
        tell(f"mapped: {path}")
    if way == "dlopen":
        with zipfile.ZipFile(package) as archive:
            (library,) = (item for item in archive.namelist() if item.endswith(".so"))
            archive.extract(library, folder / way)
        ctypes.CDLL(str(folder / way / library))
        say("opened")
        return
    single, index = way == "load-single-threaded", 0 if way == ON_DEVICE_0 else -1
    loaded = torch._inductor.aoti_load_package(str(package), run_single_threaded=single, device_index=index)
    say("loaded")
    made = loaded(given.to(device))
    say("called")
    if way == "compile":
        say(f"compared: differs by {(made - model(given)).abs().max().item():.3g}")


def print_toolchain(device: str) -> None:
    """Print what the package is compiled with."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch.utils import cpp_extension

    version = subprocess.run([get_cpp_compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    tell(f"compiler: {version.splitlines()[0] if version else 'none'}")
    if device == "cpu":
        return
    tell(f"CUDA_HOME: {cpp_extension.CUDA_HOME}")
    for include in cpp_extension.include_paths(device):
        header = Path(include, "cuda_runtime_api.h")
        found = re.search(r"#define CUDART_VERSION\s+(\d+)", header.read_text()) if header.exists() else None
        if found:
            tell(f"headers: CUDART_VERSION {found[1]} in {include}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        work(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "cuda"))
