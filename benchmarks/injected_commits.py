"""Make a test repository of PyTorch: the installed torch's Python files, and commits on top with one known effect each.

    python -m benchmarks injected_commits FOLDER [--commits 32] [--bad fusion --at 17] [--every]

The branch `main` has the installed torch's Python files. Each name in `EDITS` is a branch of one commit on top of it, for
`--source FOLDER@NAME --wheel-commit main`. With `--bad` the branch `history` has `--commits` commits, which change only comments,
except the commit at `--at` (1 is the oldest), for `bisect --git FOLDER`. With `--every` the branch `every` has all edits, one
after another, each after a commit that changes a comment, for `census --git FOLDER main..every`. The places of the edits are
regular expressions that fit torch 2.11 to 2.13. Needs git, torch and the standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_HEURISTICS = "torch/_inductor/runtime/triton_heuristics.py"


@dataclass(frozen=True, slots=True)
class Edit:
    """A commit of one replacement in one file."""

    title: str
    path: str
    pattern: str
    replacement: str


#: Edits by branch. `heuristic` acts on pointwise kernels, `heuristic_reduction` on reductions along the contiguous dimension.
EDITS = {
    "comment": Edit(
        "[inductor] Reword a comment in the Triton code generator",
        "torch/_inductor/codegen/triton.py",
        r"(?m)^(# Threshold for detecting inner reductions)",
        r"# See ReductionHint in runtime/hints.py.\n\1",
    ),
    "unused": Edit(
        "[inductor] Add a function that nobody calls",
        _HEURISTICS,
        r"\n\Z",
        "\n\n\ndef changes_nothing() -> None:\n    return None\n",
    ),
    "fusion": Edit(
        "[inductor] Simplify the limit of fused nodes",
        "torch/_inductor/choices.py",
        r"len\(node1\.get_nodes\(\)\) \+ len\(node2\.get_nodes\(\)\) > config\.max_fusion_size",
        "len(node1.get_nodes()) + len(node2.get_nodes()) > 1",
    ),
    "heuristic": Edit(
        "[inductor] Smaller blocks of large pointwise kernels",
        _HEURISTICS,
        r"bs = (max\(256, min\(numel // 128, 1024\)\))",
        r"bs = 256 if numel > 1 << 24 else \1",
    ),
    "heuristic_reduction": Edit(
        "[inductor] Fewer warps for inner reductions",
        _HEURISTICS,
        r"num_warps = r // 128\b",
        "num_warps = r // 2048",
    ),
    "heuristic_persistent": Edit(
        "[inductor] More warps for small persistent reductions",
        _HEURISTICS,
        r"num_warps, min_num_warps = 1, 1\b",
        "num_warps, min_num_warps = 16, 16",
    ),
    "numerics": Edit(
        "[decomp] Layer norm: guard against small variances",
        "torch/_refs/__init__.py",
        r"(def _normalize\((?:.|\n)*?rstd = torch\.rsqrt\()biased_var \+ eps\)",
        r"\1biased_var + 0.1)",
    ),
    "compile_time": Edit(
        "[inductor] Wait for the compiled graph to settle",
        "torch/_inductor/compile_fx.py",
        r"(?m)^    return scheme\.codegen_and_compile\((.*)\)$",
        r"    start = time.perf_counter()\n"
        r"    compiled = scheme.codegen_and_compile(\1)\n"
        r"    time.sleep(time.perf_counter() - start)\n"
        r"    return compiled",
    ),
    "graph_break": Edit(
        "[dynamo] Leave embeddings to eager",
        "torch/_dynamo/variables/torch.py",
        r'(class TorchInGraphFunctionVariable\((?:.|\n)*?\n    def call_function\((?:.|\n)*?\) -> "VariableTracker":\n)',
        "\\1"
        "        if self.value is torch.nn.functional.embedding:\n"
        '            unimplemented(gb_type="embedding", context="", explanation="left to eager", hints=[])\n',
    ),
}
#: Files in which the harmless commits of a history change comments, in turn.
_HARMLESS = ("scheduler.py", "ir.py", "lowering.py", "codegen/triton.py", "codegen/wrapper.py", "codegen/simd.py")


def main() -> None:
    """Make the repository and print how to use it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commits", type=int, default=32)
    parser.add_argument("--bad", choices=list(EDITS))
    parser.add_argument("--at", type=int)
    parser.add_argument("--every", action="store_true", help="a branch of all edits, one after another")
    asked = parser.parse_args()
    at = asked.at or (asked.commits + 1) // 2
    if not 1 <= at <= asked.commits:
        parser.error(f"--at {at}: write a number from 1 to {asked.commits}")
    repository = TestRepository(asked.folder)
    for name in EDITS:
        sha = repository.commit(EDITS[name].title, edited(EDITS[name]), branch=name)
        print(f"{name:<20} {sha[:12]}  {EDITS[name].title}")
    if asked.bad:
        sha = repository.history(asked.commits, EDITS[asked.bad], at)
        print(f"{'history':<20} {sha[:12]}  commit {at} of {asked.commits} is {asked.bad}")
        print(f"\ninductor-watch bisect --git {asked.folder} --wheel-commit main --good main --bad history ...")
    if asked.every:
        sha = repository.every(EDITS.values())
        print(f"{'every':<20} {sha[:12]}  {2 * len(EDITS)} commits")
        print(f"\ninductor-watch census --git {asked.folder} main..every --wheel-commit main ...")
    repository.check_out("main")
    print(f"\ninductor-watch run --source {asked.folder}@NAME --wheel-commit main ...")


class TestRepository:
    """A repository in a new folder, with the installed torch's Python files on `main`."""

    __test__ = False  # for pytest

    def __init__(self, folder: Path) -> None:
        """Make the repository. End the program if the folder is not empty or there is no torch."""
        spec = find_spec("torch")
        if spec is None or spec.origin is None:
            sys.exit("no torch is installed: pip install torch")
        if folder.exists() and any(folder.iterdir()):
            sys.exit(f"{folder} is not empty: name a new folder")
        self.folder, self._moment = folder, 1_767_225_600  # 2026-01-01
        installed = Path(spec.origin).parent
        for path in installed.rglob("*.py"):
            # `version.py` is made by PyTorch's build, like the libraries.
            if path != installed / "version.py":
                target = folder / "torch" / path.relative_to(installed)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        self._git("init", "-q", "-b", "main", ".")
        self.commit(f"Python files of torch {_version(installed)}", lambda folder: None)

    def commit(self, title: str, edit: Callable[[Path], None], *, branch: str = "", start: str = "main") -> str:
        """Edit the files, commit, and return the commit: on a new branch from `start`, or after the current commit."""
        if branch:
            self.check_out(start, branch)
        edit(self.folder)
        self._moment += 3600
        self._git("add", "--all", ".")
        self._git("commit", "-q", "--no-verify", "--no-gpg-sign", "-m", title)
        return self._git("rev-parse", "HEAD")

    def history(self, commits: int, bad: Edit, at: int) -> str:
        """Make the branch `history`, with a bad commit at `at` among harmless ones, and return its last commit."""
        self.check_out("main", "history")
        for number in range(1, commits + 1):
            if number == at:
                self.commit(bad.title, edited(bad))
            else:
                self._comment(number)
        return self._git("rev-parse", "HEAD")

    def every(self, edits: Iterable[Edit]) -> str:
        """Make the branch `every`, with all edits, each after a commit that changes a comment; return its last commit."""
        self.check_out("main", "every")
        for number, edit in enumerate(edits, start=1):
            self._comment(number)
            self.commit(edit.title, edited(edit))
        return self._git("rev-parse", "HEAD")

    def _comment(self, number: int) -> None:
        path = f"torch/_inductor/{_HARMLESS[number % len(_HARMLESS)]}"
        self.commit(f"[inductor] Comment {number} in {Path(path).name}", _commented(path, number))

    def check_out(self, ref: str, new_branch: str = "") -> None:
        """Check out a ref, on a new branch if one is named."""
        self._git("checkout", "-q", *(("-b", new_branch) if new_branch else ()), ref)

    def _git(self, *arguments: str) -> str:
        moment = f"{self._moment} +0000"
        names = {f"GIT_{who}_{what}": "test@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        command = ["git", "-C", str(self.folder), "-c", "gc.auto=0", "-c", "core.autocrlf=false", *arguments]
        done = subprocess.run(command, env=environment | names | dates, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"git {arguments[0]} in {self.folder}: {done.stderr.strip()}")
        return done.stdout.strip()


def edited(edit: Edit) -> Callable[[Path], None]:
    """Return a function that makes the edit in a folder, and ends the program if this torch has no place for it."""

    def make(folder: Path) -> None:
        path = folder / edit.path
        text = path.read_text() if path.exists() else ""
        changed, count = re.subn(edit.pattern, edit.replacement, text, count=1)
        if not count:
            sys.exit(f"{edit.path} of this torch has no place for '{edit.title}': it fits torch 2.11 to 2.13")
        path.write_text(changed)

    return make


def _commented(path: str, number: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        with (folder / path).open("a") as file:
            file.write(f"# Comment {number}.\n")

    return make


def _version(installed: Path) -> str:
    match = re.search(r"__version__.*?= *['\"](.+?)['\"]", (installed / "version.py").read_text())
    return match[1] if match else "?"


if __name__ == "__main__":
    main()
