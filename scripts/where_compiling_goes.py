"""What compiling one model on a CPU consists of, below the phases: the C++ compiler's commands, and the joint graph's passes.

python scripts/where_compiling_goes.py MODEL [--suite huggingface] [--top 8]     in the environment of any torch with GCC

Caches are empty and one thread compiles. The compiler's own account of each kernel's command (`-ftime-report`) is asked for
afterwards, with a precompiled header where Inductor used one. docs/history.md has what several builds print.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

_REPORT = re.compile(r"^ ?(phase [a-z ]+?|TOTAL)\s*:((?:\s+[\d.]+\s*\(\s*\d+%\))+|(?:\s+[\d.]+)+)", re.MULTILINE)


def main() -> None:
    """Prints the commands, the compiler's account of them, and the dearest functions of the joint graph's passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--suite", default="huggingface")
    parser.add_argument("--top", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        commands, profile, seconds, version = compile_one(options.suite, options.model)
        print(f"torch {version}, {options.model}: compiled in {seconds:.1f} s")
        print_commands(commands)
    print("joint graph passes, seconds by function (its own, with all that it calls):")
    print_functions(profile, options.top)


def compile_one(suite: str, model: str) -> tuple[list[tuple[float, str, str]], cProfile.Profile, float, str]:
    """The compiler's commands with their seconds and folders, the profile of the passes, the seconds of all, the version."""
    import torch
    from torch._inductor import compile_fx, cpp_builder

    from collector.vocabulary import Phase
    from collector.zoo.registry import find

    commands: list[tuple[float, str, str]] = []
    profile = cProfile.Profile()
    run, passes = cpp_builder._run_compile_cmd, compile_fx.joint_graph_passes

    def timed(cmd_line: str, cwd: str) -> None:
        began = time.perf_counter()
        run(cmd_line, cwd)
        commands.append((time.perf_counter() - began, cmd_line, cwd))

    def profiled(*args: Any, **kwargs: Any) -> Any:
        return profile.runcall(passes, *args, **kwargs)

    cpp_builder._run_compile_cmd, compile_fx.joint_graph_passes = timed, profiled
    torch.manual_seed(0)
    spec = find(suite, model)
    built = spec.build(spec.batch_size(Phase.INFERENCE, "cpu"), Phase.INFERENCE, "cpu")
    torch.set_num_threads(1)
    program = torch.compile(built.model.eval().requires_grad_(False))
    began = time.perf_counter()
    with torch.no_grad():
        program(*built.args, **built.kwargs)
    return commands, profile, time.perf_counter() - began, torch.__version__


def print_commands(commands: list[tuple[float, str, str]]) -> None:
    """How many commands of which kind, their seconds, and GCC's phases summed over those that compile kernels."""
    headers = [item for item in commands if "x c++-header" in item[1] or ".gch" in item[1]]
    kernels = [item for item in commands if item not in headers]
    for name, group in (("precompiled headers", headers), ("kernels", kernels)):
        print(f"  {name}: {len(group)} commands, {sum(item[0] for item in group):.1f} s")
    phases: dict[str, float] = {}
    lines = 0
    for _, command, folder in kernels:
        asked = [*shlex.split(command), "-ftime-report"]
        told = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False).stderr
        for name, figures in _REPORT.findall(told):
            numbers = re.findall(r"[\d.]+", re.sub(r"\(\s*\d+%\)", "", figures))
            phases[name] = phases.get(name, 0.0) + float(numbers[2])  # user, system, wall
        if source := re.search(r"\S+\.cpp", command):
            lines += len(Path(folder, source[0]).read_text().splitlines())
    print(f"  lines that Inductor generated: {lines}; GCC's phases, wall s: " + told_phases(phases))
    if kernels:
        print("  flags: " + " ".join(sorted(set(re.findall(r"\s(-[fOmW]\S+)", kernels[-1][1])))))


def told_phases(phases: dict[str, float]) -> str:
    """The phases, the longest first."""
    return ", ".join(f"{name} {value:.2f}" for name, value in sorted(phases.items(), key=lambda pair: -pair[1]))


def print_functions(profile: cProfile.Profile, top: int) -> None:
    """The functions of torch in which most time was spent, with what they call."""
    stats = pstats.Stats(profile)
    rows = []
    for (path, line, name), (_, calls, own, total, _) in stats.stats.items():  # type: ignore[attr-defined]
        if "torch" in path:
            rows.append((total, own, calls, f"{path.rpartition('torch/')[2]}:{line} {name}"))
    for total, own, calls, where in sorted(rows, reverse=True)[:top]:
        print(f"  {total:7.3f} {own:7.3f} {calls:8d} calls  {where}")


if __name__ == "__main__":
    main()
