"""The environment of a measurement: libraries, GPU, driver, CPU. The testbed is the part that latencies depend on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from collector.device import device_here, device_named
from collector.machine.host import pin_to_cores
from collector.masking import ENV, is_recorded, mask_fingerprint
from collector.vocabulary import short_hash

#: Packages whose version can change a metric.
PACKAGES = ("torch", "triton", "transformers", "timm", "torchvision", "numpy")
#: The keys that must be equal for latencies and compile times to be comparable.
TESTBED_KEYS = (
    "device",
    "gpu",
    "gpu_index",
    "gpus",
    "gpu_memory_bytes",
    "driver",
    "cpu",
    "cores",
    "torch_threads",
    "workers",
    "start",
    "tuning",
    "driven_from",  # of bundles up to November 2026, measured from the core that was the quietest
    "flags",
    "optimizer",
    "node",
)
#: Variables by which the pool describes a cell's surroundings: the number of cells that compile at once, how their processes
#: start, the GPU's number, and the number of the host's GPUs that are measured at once (while one GPU is measured, cells of the
#: others go on compiling).
WORKERS_VARIABLE = "INDUCTOR_WATCH_WORKERS"
START_VARIABLE = "INDUCTOR_WATCH_START"
GPU_VARIABLE = "INDUCTOR_WATCH_GPU"
GPUS_VARIABLE = "INDUCTOR_WATCH_GPUS"
#: The variable that names torch's source if it is not only the installed torch.
SOURCE_VARIABLE = "INDUCTOR_WATCH_SOURCE"
#: Endings of the names of variables that only name folders.
_PLACES = ("_DIR", "_PATH", "_HOME")
#: The prefix of Inductor's variables, and the modules of torch's package that define them.
_INDUCTOR = "TORCHINDUCTOR_"
_CONFIG_MODULES = ("_inductor/config.py", "_dynamo/config.py", "_functorch/config.py", "compiler/config.py")


def fingerprint(device: str) -> dict[str, Any]:
    """Return the whole environment as a flat mapping. Imports torch; with `cuda` it initialises the GPU.

    `cores` is the number of cores that this process may run on; `node` is `INDUCTOR_WATCH_NODE` if set, else the host's name.
    """
    import torch

    found: dict[str, Any] = {
        "device": device,
        "python": platform.python_version(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "libc": " ".join(platform.libc_ver()),
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "node": os.environ.get("INDUCTOR_WATCH_NODE") or platform.node(),
        "torch_git": torch.version.git_version,
        "torch_threads": torch.get_num_threads(),
        **_told(),
        **{name: version for name in PACKAGES if (version := _version(name))},
        **_variables(torch),
    }
    found["torch"] = torch.__version__
    return mask_fingerprint(found | device_named(device).facts())


def _told() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, variable in (("workers", WORKERS_VARIABLE), ("gpu_index", GPU_VARIABLE), ("gpus", GPUS_VARIABLE)):
        if os.environ.get(variable, "").isdigit():
            found[key] = int(os.environ[variable])
    for key, variable in (("start", START_VARIABLE), ("source", SOURCE_VARIABLE)):
        if text := os.environ.get(variable):
            found[key] = text
    return found


def environment_id(environment: Mapping[str, Any]) -> str:
    """Return the id of a fingerprint, twelve hexadecimal digits."""
    return short_hash(dict(environment))


def extract_testbed(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a fingerprint that must be equal for latencies to be comparable."""
    return {key: environment[key] for key in TESTBED_KEYS if key in environment}


def cpu_name() -> str:
    """Return the processor's name from /proc/cpuinfo, else Python's name of the processor or the machine."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _variables(torch: Any) -> dict[str, str]:
    """Return the variables that change what torch or its compilers do: no secrets, folders or unknown options."""
    options = _inductor_options(Path(torch.__file__).parent)
    return {
        f"{ENV}{name}": value
        for name, value in sorted(os.environ.items())
        if is_recorded(name)
        and (not options or not name.startswith(_INDUCTOR) or name in options)
        and not name.endswith(_PLACES)
        and not Path(value).is_absolute()
    }


def _inductor_options(package: Path) -> set[str]:
    """Return the names of Inductor's variables in the source of torch's config modules; empty if it cannot be read."""
    found: set[str] = set()
    for module in _CONFIG_MODULES:
        with suppress(OSError):
            found.update(re.findall(rf"\b{_INDUCTOR}[A-Z0-9_]+", (package / module).read_text(errors="replace")))
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    """Run as `python -m collector.machine.environment DEVICE`: print the fingerprint as one JSON line."""
    device = sys.argv[1] if len(sys.argv) > 1 else ""
    pin_to_cores()
    device = device or device_here()
    sys.stdout.write(json.dumps(fingerprint(device)) + "\n")


if __name__ == "__main__":
    main()
