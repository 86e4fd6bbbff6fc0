"""What compiling one model on a CPU consists of, below the phases: the processes that Inductor starts, the joint graph's passes.

python scripts/where_compiling_goes.py MODEL [--suite huggingface] [--top 6] [--warmed]     with any torch, on Linux

All caches are empty, one thread compiles, and Inductor is told to believe the CPU's flags, as a night tells it. Seconds by the
clock: of the children by kind, and of the passes with all that they call. docs/history.md has what several builds print.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.toolchain import SKIP_VARIABLE

#: A command's kind by what is in it, the first that fits.
_KINDS = (
    ("asking the compiler who it is", ("--version", "-v")),
    ("preprocessing headers", ("-E",)),
    ("precompiling headers", ("c++-header",)),
    ("compiling kernels", ("-include",)),
    ("building probes of the instruction set", ("g++", "gcc", "clang++")),
    ("loading probes in a new Python", (sys.executable,)),
)

#: Seconds of a child and its command.
Child = tuple[float, Sequence[str]]


def main() -> None:
    """Prints the children by kind, and the dearest functions of the joint graph's passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--suite", default="huggingface")
    parser.add_argument("--top", type=int, default=6)
    parser.add_argument(
        "--warmed", action="store_true", help="after the small compilation that a fork server begins with"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Precompiled headers are kept where temporary files are, whatever the cache's folder.
        os.environ |= {"TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder, SKIP_VARIABLE: "1"}
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        tempfile.tempdir = None
        children, profile, seconds, version = compile_one(options.suite, options.model, options.warmed)
    print(f"torch {version}, {options.model}: compiled in {seconds:.1f} s")
    print_children(children)
    print("joint graph passes: seconds with all that it calls, of its own, calls")
    print_functions(profile, options.top)


def compile_one(suite: str, model: str, warmed: bool) -> tuple[list[Child], cProfile.Profile, float, str]:
    """The children of a compilation, the profile of the passes, the seconds of all, and torch's version."""
    import torch
    from torch._inductor import compile_fx

    from collector.vocabulary import Phase
    from collector.warming import compile_something
    from collector.zoo.registry import find

    torch.manual_seed(0)
    torch.set_num_threads(1)
    spec = find(suite, model)
    built = spec.build(spec.batch_size(Phase.INFERENCE, "cpu"), Phase.INFERENCE, "cpu")
    program = torch.compile(built.model.eval().requires_grad_(False))
    if warmed:
        compile_something("cpu")
        torch._dynamo.reset()
    profile, passes = cProfile.Profile(), compile_fx.joint_graph_passes

    def profiled(*args: Any, **kwargs: Any) -> Any:
        return profile.runcall(passes, *args, **kwargs)

    compile_fx.joint_graph_passes = profiled
    children = watch_children()
    began = time.perf_counter()
    with torch.no_grad():
        program(*built.args, **built.kwargs)
    return children, profile, time.perf_counter() - began, torch.__version__


def watch_children() -> list[Child]:
    """A list to which every child that this process waits for is added from now on."""
    found: list[Child] = []

    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, args: Any, *rest: Any, **kwargs: Any) -> None:
            self._began, self._told = time.perf_counter(), False
            super().__init__(args, *rest, **kwargs)

        def wait(self, timeout: float | None = None) -> int:
            code = super().wait(timeout)
            if not self._told:
                self._told = True
                command = self.args.split() if isinstance(self.args, str) else list(map(str, self.args))  # type: ignore[arg-type]
                found.append((time.perf_counter() - self._began, command))
            return code

    subprocess.Popen = Watched  # type: ignore[misc]
    return found


def print_children(children: Sequence[Child]) -> None:
    """A line a kind."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for seconds, command in children:
        name = next((name for name, words in _KINDS if any(word in command for word in words)), f"other: {command[0]}")
        kinds[name].append(seconds)
    for name, took in sorted(kinds.items(), key=lambda pair: -sum(pair[1])):
        print(f"  {sum(took):6.1f} s  {len(took):3d} x {name}")


def print_functions(profile: cProfile.Profile, top: int) -> None:
    """The functions of torch in which most time was spent, with what they call."""
    rows = []
    for (path, line, name), (_, calls, own, total, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if "torch" in path:
            rows.append((total, own, calls, f"{path.rpartition('torch/')[2]}:{line} {name}"))
    for total, own, calls, where in sorted(rows, reverse=True)[:top]:
        print(f"  {total:6.2f} {own:6.2f} {calls:8d}  {where}")


if __name__ == "__main__":
    main()
