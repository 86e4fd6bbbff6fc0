"""The test repository of PyTorch: one commit a branch, and a history with one commit that does harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.injected_commits import EDITS
from jobs.builds.overlay import make_overlay
from tests.jobs.git.repositories import run_git

ROOT = Path(__file__).resolve().parents[2]


def injected(*words):
    command = [sys.executable, "-m", "benchmarks", "injected_commits", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_each_branch_changes_one_file_and_one_commit_of_the_history_does_harm(tmp_path):
    folder = tmp_path / "pytorch"
    done = injected(folder, "--commits", 4, "--bad", "fusion", "--at", 3, "--every")
    assert done.returncode == 0, done.stderr
    for name, edit in EDITS.items():
        assert run_git(folder, "diff", "--name-only", f"main...{name}").split() == [edit.path]
        path = folder / edit.path
        compile(run_git(folder, "show", f"{name}:{edit.path}"), path, "exec")
    titles = run_git(folder, "log", "--reverse", "--format=%s", "main..history").splitlines()
    assert [title == EDITS["fusion"].title for title in titles] == [False, False, True, False]
    assert run_git(folder, "diff", "history~2", "history~1") == run_git(folder, "diff", "main", "fusion")
    every = run_git(folder, "log", "--reverse", "--format=%s", "main..every").splitlines()
    assert every[1::2] == [edit.title for edit in EDITS.values()]
    assert all(title.startswith("[inductor] Comment") for title in every[::2])
    overlay = make_overlay(f"{folder}@fusion", tmp_path / "overlays", wheel_commit="main")
    assert (overlay.files, overlay.branch) == (1, "fusion")
    again = injected(folder)
    assert (again.returncode, again.stderr.strip()) == (1, f"{folder} is not empty: name a new folder")


def test_a_position_outside_of_the_history_is_refused(tmp_path):
    done = injected(tmp_path / "pytorch", "--commits", 4, "--bad", "fusion", "--at", 5)
    assert done.returncode == 2
    assert "--at 5: write a number from 1 to 4" in done.stderr
