"""Which files differ between two overlays, and which of these act when a compiled program runs."""

from __future__ import annotations

import pytest

from jobs.builds.overlay import Wheel, acting, changes_compiling, differing, make_overlay
from tests.jobs.repositories import commit, run_git

INDUCTOR = "torch/_inductor"
FILES = {
    "torch/__init__.py": "",
    f"{INDUCTOR}/scheduler.py": "fuse = True\n",
    f"{INDUCTOR}/config.py": "size = 64\nclass triton:\n    cudagraphs = False\n",
    f"{INDUCTOR}/compile_fx.py": "import a\ndef cudagraphify(): 1\ndef fx_codegen_and_compile(): 1\n",
    f"{INDUCTOR}/runtime/triton_heuristics.py": "warps = 1\n",
    f"{INDUCTOR}/old.py": "",
    f"{INDUCTOR}/reader.py": "from runtime.triton_heuristics import warps\n",
    "torch/nn/functional.py": "",
    "functorch/__init__.py": "",
}


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "pytorch"
    commit(folder, FILES, "main")
    run_git(folder, "worktree", "add", "-q", "--detach", str(tmp_path / "site"))
    return folder


def compared(tmp_path, repo, changed):
    """What differs and what of it acts, from `main` to a commit of these changes."""
    run_git(repo, "checkout", "-q", "main")
    commit(repo, changed, "new")
    wheel = Wheel(tmp_path / "site", "9.1", run_git(repo, "rev-parse", "main"))
    base, new = (make_overlay(f"{repo}@{ref}", tmp_path / "made", wheel=wheel).folder for ref in ("main", "new"))
    files = differing(base, new, wheel)
    assert differing(new, base, wheel) == files
    return files, acting(base, new, files)


def test_files_that_differ_are_named_whether_changed_new_or_gone(tmp_path, repo):
    changed = {
        f"{INDUCTOR}/scheduler.py": "fuse = False\n",
        f"{INDUCTOR}/fx_passes/new.py": "new = 1\n",
        f"{INDUCTOR}/old.py": None,
        "functorch/__init__.py": "x = 1\n",
        "test/test_torch.py": "x = 1\n",
    }
    files, at_run_time = compared(tmp_path, repo, changed)
    assert files == [
        f"{INDUCTOR}/fx_passes/new.py",
        f"{INDUCTOR}/old.py",
        f"{INDUCTOR}/scheduler.py",
        "functorch/__init__.py",
    ]
    assert at_run_time == ["functorch/__init__.py"]
    assert compared(tmp_path, repo, {"test/test_torch.py": "y"}) == ([], [])


@pytest.mark.parametrize(
    ("name", "content", "acts"),
    [
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "warps = 2\n", True),
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "# more warps?\nwarps  =  1\n", False),
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "warps = (\n", True),
        # A function that nobody calls, a constant that nobody reads; but for what is run, called or found by its name.
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "warps = 1\ndef unused(x=1): return x\nUNUSED = 2\n", False),
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "def unused(x=1): return x\nwarps = 2\n", True),
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "warps = 1\n@register\ndef unused(): 1\n", True),
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "warps = 1\nclass Unused: 1\n", True),
        (f"{INDUCTOR}/runtime/triton_heuristics.py", "warps = 1\ndef fuse(): 1\n", True),
        ("torch/nn/functional.py", "x = 1\n", True),
        ("torch/nn/functional.pyi", "x: int\n", False),
        (f"{INDUCTOR}/codegen/cpp_prefix.h", "#define X\n", True),
        (f"{INDUCTOR}/config.py", "size = 1\nclass triton:\n    cudagraphs = False  # off\n", False),
        (f"{INDUCTOR}/config.py", "size = 64\nclass triton:\n    cudagraphs = True\n", True),
        (f"{INDUCTOR}/compile_fx.py", "import a\ndef cudagraphify(): 1\ndef fx_codegen_and_compile(): 2\n", False),
        (f"{INDUCTOR}/compile_fx.py", "import a\ndef cudagraphify(): 2\ndef fx_codegen_and_compile(): 1\n", True),
        (f"{INDUCTOR}/compile_fx.py", "import b\ndef cudagraphify(): 1\ndef fx_codegen_and_compile(): 1\n", True),
    ],
)
def test_what_is_not_known_to_work_at_compile_time_only_acts_at_run_time(tmp_path, repo, name, content, acts):
    assert compared(tmp_path, repo, {name: content}) == ([name], [name] * acts)


@pytest.mark.parametrize(
    ("content", "changes"),
    [("# more\nfuse = True\n", False), ("fuse = True\ndef unused(): 1\n", False), ("fuse = False\n", True)],
)
def test_compile_times_may_differ_where_a_file_says_something_else(tmp_path, repo, content, changes):
    commit(repo, {f"{INDUCTOR}/scheduler.py": content}, "new")
    wheel = Wheel(tmp_path / "site", "9.1", run_git(repo, "rev-parse", "main"))
    base, new = (make_overlay(f"{repo}@{ref}", tmp_path / "made", wheel=wheel).folder for ref in ("main", "new"))
    assert changes_compiling(base, new, differing(base, new, wheel)) is changes
