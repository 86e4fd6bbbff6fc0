"""Make a test repository of PyTorch: the installed torch's Python files, and commits with real changes of a newer release.

    pip download torch==2.12.0 --no-deps && unzip -q torch-2.12.0*.whl 'torch/_inductor/*' -d NEWER
    python -m benchmarks release_commits FOLDER --newer NEWER [--bad fusion]

Each commit of the branch `history` takes one change of a few files over from NEWER: the hunks of their difference that match a
pattern of `CHANGES`, which fit torch 2.11 and 2.12. With `--bad` an edit of `benchmarks.injected_commits` follows, whose effect
is known. Needs git, torch and the standard library only.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.injected_commits import EDITS, TestRepository, edited


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the newer release: its files below torch/_inductor, and the pattern that its hunks contain."""

    title: str
    pattern: str
    files: tuple[str, ...]


CHANGES = (
    Change("Keep the order of ops that draw random numbers", "consumes_rng_state", ("fx_passes/post_grad.py",)),
    Change("Give CantSplit its arguments", r"raise CantSplit\(\n", ("codegen/simd.py",)),
    Change("Multiply outer products without a reduction", "Outer-product specialization", ("decomposition.py",)),
    Change("Keep no-ops whose input is mutated", "is_mutated", ("fx_passes/joint_graph.py",)),
    Change(
        "Let a setting keep addmm fused for half precision",
        "keep_addmm_fused_for_half_dtypes",
        ("config.py", "fx_passes/post_grad.py"),
    ),
    Change(
        "Move only what runs on the GPU there",
        r'is_on_target_device\(user\)|!= "output"',
        ("fx_passes/post_grad.py",),
    ),
    Change("Split a reduction into no more parts than it has", r"min\(\(rnumel", ("runtime/triton_heuristics.py",)),
    Change("Find the Triton back end by torch's devices, too", "_is_backend_active", ("runtime/triton_helpers.py",)),
    Change(
        "Tune 3-D pointwise kernels under max_autotune", r'get\("max_autotune"\)\n', ("runtime/triton_heuristics.py",)
    ),
)


def main() -> None:
    """Make the repository and print how to use it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--newer", type=Path, required=True, help="folder with torch/ of the newer release")
    parser.add_argument("--bad", choices=list(EDITS))
    options = parser.parse_args()
    repository = TestRepository(options.folder)
    repository.check_out("main", "history")
    for change in CHANGES:
        sha = repository.commit(change.title, lambda folder, change=change: take_over(folder, options.newer, change))
        print(f"{sha[:12]}  {change.title}")
    if options.bad:
        print(
            f"{repository.commit(EDITS[options.bad].title, edited(EDITS[options.bad]))[:12]}  {EDITS[options.bad].title}"
        )
    print(f"\ninductor-watch backfill --source {options.folder}@main..history --wheel-commit main ...")


def take_over(folder: Path, newer: Path, change: Change) -> None:
    """Apply the change's hunks to the files below `folder`. End the program if a file has no such hunk."""
    for name in change.files:
        path = Path("torch/_inductor", name)
        if not (newer / path).is_file():
            sys.exit(f"{newer / path} is missing: unpack the newer release's wheel there")
        # git's exit status is no error here: it only says whether the files differ.
        differ = [
            "git",
            "diff",
            "--no-index",
            "--no-color",
            "--no-ext-diff",
            "-U1",
            str(folder / path),
            str(newer / path),
        ]
        diff = subprocess.run(differ, capture_output=True, text=True, check=False).stdout
        hunks = [hunk for hunk in re.split(r"(?m)^(?=@@ )", diff)[1:] if re.search(change.pattern, _added(hunk))]
        if not hunks:
            sys.exit(f"{path} has no place for '{change.title}': the changes fit torch 2.11 and 2.12")
        patch = f"--- a/{path}\n+++ b/{path}\n" + "".join(hunks)
        apply = ["git", "-C", str(folder), "apply", "-"]
        subprocess.run(apply, input=patch, text=True, check=True)


def _added(hunk: str) -> str:
    return "".join(line for line in hunk.splitlines(keepends=True) if line.startswith("+"))


if __name__ == "__main__":
    main()
