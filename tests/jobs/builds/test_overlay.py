"""A commit's Python files over a wheel: which are taken, what needs a build, what a run of them is called."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from collector.bundle import read_bundle
from jobs.bisect.judges import Overlays, Reading
from jobs.builds.build_environments import commits_of
from jobs.builds.build_options import BuildError, SourceOptions
from jobs.builds.overlay import Wheel, acting, changes_compiling, differing, make_overlay
from jobs.pool.child import Request
from jobs.requested_options import RequestedOptions, RunNames, Selection
from tests.command_line import ROOT, call, tell
from tests.jobs.acting import PLAYER, played_host
from tests.jobs.repositories import commit, installed, run_git

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
    "torch/csrc/a.cpp": "",
    "functorch/__init__.py": "",
    "test/test_torch.py": "",
}


@pytest.fixture
def repo(tmp_path):
    commit(tmp_path / "pytorch", FILES, "main")
    return tmp_path / "pytorch"


@pytest.fixture
def wheel(tmp_path, repo):
    folder = tmp_path / "site"
    shutil.copytree(repo / "torch", folder / "torch", ignore=shutil.ignore_patterns("csrc"))
    shutil.copytree(repo / "functorch", folder / "functorch")
    (folder / "torch" / "lib").mkdir()
    (folder / "torch" / "lib" / "libtorch.so").write_text("library")
    return Wheel(folder, "9.1", run_git(repo, "rev-parse", "HEAD"))


def made(tmp_path, wheel, source, **how):
    return make_overlay(source, tmp_path / "overlays", wheel=wheel, **how)


def read(overlay, name):
    return (overlay.folder / "torch" / name).read_text()


def test_files_that_differ_come_from_git_and_all_others_are_the_wheels(tmp_path, repo, wheel):
    changed = {f"{INDUCTOR}/config.py": "fuse = False\n", f"{INDUCTOR}/new/a.py": "new", f"{INDUCTOR}/old.py": None}
    sha = commit(repo, {**changed, "test/test_torch.py": "x"}, "less")
    overlay = made(tmp_path, wheel, f"{repo}@less")
    assert (overlay.commit, overlay.branch, overlay.title) == (sha, "less", "On less")
    assert (overlay.files, overlay.left_out, overlay.wheel_commit) == (3, 0, wheel.commit)
    assert read(overlay, "_inductor/config.py") == "fuse = False\n"
    assert read(overlay, "_inductor/new/a.py") == "new"
    assert not (overlay.folder / "torch/_inductor/old.py").exists()
    assert read(overlay, "lib/libtorch.so") == "library"
    assert (overlay.folder / "torch" / "__init__.py").is_symlink()
    assert (wheel.folder / "torch/_inductor/config.py").read_text() == FILES["torch/_inductor/config.py"]


def test_equal_content_is_one_overlay_and_a_half_made_one_is_none(tmp_path, repo, wheel, monkeypatch):
    commit(repo, {"torch/_inductor/config.py": "fuse = 1\n"}, "one")
    commit(repo, {"test/test_torch.py": "y"}, "two")
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(Path, "write_bytes", lambda *_: 1 / 0)
        made(tmp_path, wheel, f"{repo}@one")
    assert not list((tmp_path / "overlays").iterdir())
    assert made(tmp_path, wheel, f"{repo}@one").folder == made(tmp_path, wheel, f"{repo}@two").folder


def test_a_working_tree_is_measured_as_it_is_and_stays_so(tmp_path, repo, wheel):
    (repo / "torch/_inductor/config.py").write_text("fuse = 2\n")
    (repo / "torch/_inductor/new.py").write_text("new")
    before = run_git(repo, "status", "--porcelain")
    overlay = made(tmp_path, wheel, f"{repo}@.")
    assert run_git(repo, "status", "--porcelain") == before
    assert (read(overlay, "_inductor/config.py"), read(overlay, "_inductor/new.py")) == ("fuse = 2\n", "new")
    head, dirty, tree = overlay.commit.split("-")
    assert (head, dirty, len(tree), overlay.branch, overlay.date) == (wheel.commit, "dirty", 8, "main", None)
    run_git(repo, "stash", "--include-untracked")
    assert made(tmp_path, wheel, f"{repo}@.").commit == wheel.commit


def test_what_needs_a_build_is_named_unless_it_is_left_out(tmp_path, repo, wheel):
    changed = {"torch/csrc/a.cpp": "int a;", "aten/native_functions.yaml": "- func", "torch/_inductor/config.py": ""}
    commit(repo, changed, "native")
    with pytest.raises(BuildError, match=r"aten/native_functions.yaml, torch/csrc/a.cpp differ"):
        made(tmp_path, wheel, f"{repo}@native")
    overlay = made(tmp_path, wheel, f"{repo}@native", python_only=True)
    assert (overlay.files, overlay.left_out) == (1, 2)
    assert str(overlay).endswith("without 2 that need a build")
    assert not (overlay.folder / "torch" / "csrc").exists()


@pytest.mark.parametrize(
    ("source", "commit", "message"),
    [
        ("{repo}@", None, "write REPO@REF"),
        ("{repo}@gone", None, "has no commit 'gone'"),
        ("{repo}-not@main", None, "no such folder"),
        ("{repo}@main", "f" * 40, "torch 9.1 was built from it; fetch it, or pass --wheel-commit"),
    ],
)
def test_a_source_that_is_none_is_refused_in_one_line(tmp_path, repo, wheel, source, commit, message):
    wheel = Wheel(wheel.folder, wheel.version, commit or wheel.commit)
    with pytest.raises(Exception, match=message) as caught:
        made(tmp_path, wheel, source.format(repo=repo))
    assert "\n" not in str(caught.value)
    if commit:
        assert made(tmp_path, wheel, f"{repo}@main", wheel_commit="main").files == 0


@pytest.fixture(scope="module")
def pytorch(tmp_path_factory):
    """A clone with a file of the installed torch (tag `wheel`), three commits on top, and a branch that fuses less."""
    folder, config = tmp_path_factory.mktemp("clone"), installed("torch/_inductor/config.py").read_text()
    commit(folder, {"torch/_inductor/config.py": config}, "main")
    run_git(folder, "tag", "wheel")
    assert "\nmax_fusion_size = 64\n" in config
    fused = {size: config.replace("max_fusion_size = 64", f"max_fusion_size = {size}") for size in (62, 63)}
    commit(folder, {"torch/_inductor/config.py": fused[62]}, "main", "Fuse less (#1001)")
    commit(folder, {"README.md": "PyTorch"}, "main", "Say what it is (#1002)")
    commit(folder, {"torch/csrc/a.cpp": "int a;"}, "main", "Count (#1003)")
    run_git(folder, "checkout", "-q", "wheel")
    commit(folder, {"torch/_inductor/config.py": fused[63]}, "less")
    return folder


MODEL = "import torch\nfrom torch import nn\ndef small():\n    return nn.Linear(4, 4), (torch.randn(1, 4),)\n"
WORDS = ("--model", "own:small", "--device", "cpu", "--config", "triton", "--samples", "5", "--overlays", "overlays")


@pytest.fixture
def played(tmp_path, pytorch):
    """Variables of a host whose wheel of torch, of the tag `wheel`, computes nothing and whose cells are played."""
    wheel, site = run_git(pytorch, "rev-parse", "wheel"), tmp_path / "site"
    shutil.copytree(PLAYER, site)
    (site / "torch" / "version.py").write_text(f"__version__ = '9.1'\ngit_version = {wheel!r}\n")
    variables = played_host(tmp_path / "log", torch="9.1", torch_git=wheel)
    return {**variables, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "PLAY_SCRIPT": "work:0.01"}


def test_backfill_measures_the_commits_of_a_range_that_need_no_build(tmp_path, pytorch, played):
    words = ("--model", "own:small", "--device", "cpu", "--config", "default+backend=eager", "--start", "spawn")
    touching = ("--touching", "torch/_inductor", "--touching", "torch/csrc")
    source = ("--source", f"{pytorch}@wheel..main", *touching, "--overlays", "overlays", "--out", "filled")
    filled = call("backfill", *words, *source, folder=tmp_path, **played)
    assert filled.returncode == 0, tell(filled)
    fused, native = (run_git(pytorch, "rev-parse", ref) for ref in ("main~2", "main"))
    measured, skipped = filled.stdout.splitlines()[-2:]
    assert f"commit {native[:12]}: skipped" in skipped and "torch/csrc/a.cpp differ" in skipped
    assert measured.startswith(f"torch 9.1 @{fused[:10]} 20") and ": 1 pass; " in measured
    (bundle,) = (tmp_path / "filled").glob("commit-*/*-1/*.gz")
    header = read_bundle(bundle).header
    assert (header.branch, header.commit, header.commit_title) == ("main", fused, "Fuse less (#1001)")
    overlay = header.asked["pace"]["overlay"]
    assert "max_fusion_size = 62" in Path(overlay, "torch/_inductor/config.py").read_text()
    ends = run_git(pytorch, "rev-list", "--reverse", "wheel..main").split()
    done = call("commits", "list", "--between", ends[0], ends[2], "--json", folder=tmp_path)
    told = [(entry["pr_number"], entry["title"]) for entry in json.loads(done.stdout)]
    assert told == [(1002, "Say what it is (#1002)"), (1003, "Count (#1003)")], tell(done)


@pytest.mark.slow
def test_a_resumed_run_of_a_source_compiles_with_its_inductor(tmp_path, pytorch):
    (tmp_path / "own.py").write_text(MODEL)
    source = ("--source", f"{pytorch}@less", "--wheel-commit", "wheel", "--warm-compile", "--max-hours", "1e-9")
    begun = call("nightly", *WORDS, *source, folder=tmp_path)
    assert "1 cells were not started in time" in begun.stdout, tell(begun)
    unnamed = call("resume", folder=tmp_path)
    assert f"pass --overlays {tmp_path / 'overlays'}" in unnamed.stderr, tell(unnamed)
    done = call("resume", "--overlays", "overlays", "--model", "own:small", folder=tmp_path)
    assert done.returncode == 0, tell(done)
    (bundle,) = (tmp_path / "runs").glob("*.gz")
    contents = read_bundle(bundle)
    sha, head = run_git(pytorch, "rev-parse", "less"), contents.header
    assert (head.branch, head.commit, head.commit_title) == ("less", sha, "On less")
    assert {program["max_fusion_size"] for program in contents.programs.values()} == {63}
    (measurement,) = contents.measurements
    # The key of Inductor's cache has a hash of its files: the process that compiles again has imported the same ones.
    assert measurement.details["warm_cache_hits"] > 0
    sources = {data["source"] for data in contents.environments.values() if "source" in data}
    assert sources == {f"1 files of {sha[:10]} over {torch.version.git_version[:10]}"}
    branch = call("commits", "branch", "less", "--json", folder=tmp_path)
    assert json.loads(branch.stdout)[0]["start"]["sha"] == run_git(pytorch, "rev-parse", "wheel"), tell(branch)


def test_of_a_source_for_backfill_the_newest_commits_are_taken(pytorch):
    def titles(ref, *paths, last=None):
        commits = commits_of(SourceOptions(source=f"{pytorch}@{ref}"), paths, last)
        return [run_git(pytorch, "log", "-1", "--format=%s", one.sha) for one in commits]

    assert titles("main") == ["Count (#1003)"]
    assert titles("main", last=2) == ["Say what it is (#1002)", "Count (#1003)"]
    assert titles("main", "torch/_inductor", last=1) == ["Fuse less (#1001)"]
    assert titles("wheel..main", last=2) == titles("main", last=2)
    wrong = {".": "backfill measures commits", "..main": "write REPO@REF", "main..wheel": "did not land"}
    for ref, said in wrong.items():
        with pytest.raises(Exception, match=said):
            titles(ref)


@pytest.fixture
def overlays(tmp_path, repo, wheel, monkeypatch):
    """What measures the commits of the repository by a metric, over the small wheel."""
    monkeypatch.setattr(Wheel, "installed", lambda: wheel)
    options = SourceOptions(overlays=tmp_path / "overlays")
    request = Request(Selection(), ("triton",), RunNames(branch="bisect"), RequestedOptions())
    return lambda metric: Overlays(repo, options, request, metric, tmp_path)


def test_bisect_measures_each_commit_with_its_own_overlay(tmp_path, repo, overlays, monkeypatch):
    monkeypatch.setattr("jobs.bisect.judges.read_run", lambda *asked: asked)
    less = commit(repo, {"torch/_inductor/config.py": "size = 63\n"}, "less")
    python, request, folder, metric, _ = overlays("compiled_ms").measure(less, 2)
    assert (python, folder, metric) == (Path(sys.executable), tmp_path / less[:12] / "2", "compiled_ms")
    assert (request.names.branch, request.names.commit) == ("bisect", less)
    assert Path(request.requested.execution.overlay, "torch/_inductor/config.py").read_text() == "size = 63\n"


#: What a commit after `less` changes, and whether it may then have the code of a commit before it.
AFTER = {
    "comment": (f"{INDUCTOR}/scheduler.py", "fuse = True  # A comment.\n"),
    "compiling": (f"{INDUCTOR}/scheduler.py", "fuse = False\n"),
    "running": (f"{INDUCTOR}/runtime/triton_heuristics.py", "warps = 2\n"),
    "nothing": ("test/test_torch.py", "y"),
}


def test_bisect_takes_a_commit_of_the_same_program_for_one_it_has_measured(tmp_path, repo, overlays, monkeypatch):
    shas = {"main": run_git(repo, "rev-parse", "main")}
    shas["less"] = commit(repo, {f"{INDUCTOR}/config.py": "size = 63\n"}, "less")
    for name, (path, text) in AFTER.items():
        run_git(repo, "checkout", "-q", "less")
        shas[name] = commit(repo, {path: text}, name)
    compiled = []

    def read_run(python, request, bundles, metric, folder):
        assert request.requested.settings.code_only
        compiled.append(bundles)
        return Reading("pass", None, "", "", code="new")

    monkeypatch.setattr("jobs.bisect.judges.read_run", read_run)

    def same(name, metric="compiled_ms", codes=("old", "new")):
        return overlays(metric).same_as(shas[name], {shas["main"]: codes[0], shas["less"]: codes[1]})

    assert [same("nothing"), same("nothing", "status")] == [shas["less"]] * 2
    assert not compiled
    assert [same("comment"), same("compiling")] == [shas["less"]] * 2
    assert compiled == [tmp_path / shas[name][:12] / "code" for name in ("comment", "compiling")]
    assert [same("running"), same("comment", "compile_cold_s"), same("comment", codes=("new", "new"))] == [None] * 3
    assert [same("compiling", codes=codes) for codes in (("old", "other"), (None, None))] == [None] * 2
    assert len(compiled) == 3


@pytest.fixture
def sides(tmp_path):
    """Writes torch and torch with these changes into two folders; returns them and what differs."""

    def write(changed):
        base, new = tmp_path / "base", tmp_path / "new"
        for side, files in ((base, FILES), (new, FILES | changed)):
            for name in (name for name, text in files.items() if text is not None):
                (side / name).parent.mkdir(parents=True, exist_ok=True)
                (side / name).write_text(files[name])
        files = differing(base, new, Wheel(base, "9.1", ""))
        assert differing(new, base, Wheel(base, "9.1", "")) == files
        return base, new, files

    return write


HEURISTICS = f"{INDUCTOR}/runtime/triton_heuristics.py"


@pytest.mark.parametrize(
    ("name", "content", "acts"),
    [
        (HEURISTICS, "warps = 2\n", True),
        (HEURISTICS, "# more warps?\nwarps  =  1\n", False),
        (HEURISTICS, "warps = (\n", True),
        # A function that nobody calls, a constant that nobody reads; but for what is run, called or found by its name.
        (HEURISTICS, "warps = 1\ndef unused(x=1): return x\nUNUSED = 2\n", False),
        (HEURISTICS, "def unused(x=1): return x\nwarps = 2\n", True),
        (HEURISTICS, "warps = 1\n@register\ndef unused(): 1\n", True),
        (HEURISTICS, "warps = 1\nclass Unused: 1\n", True),
        (HEURISTICS, "warps = 1\ndef fuse(): 1\n", True),
        ("torch/nn/functional.py", "x = 1\n", True),
        ("functorch/__init__.py", "x = 1\n", True),
        ("torch/nn/functional.pyi", "x: int\n", False),
        (f"{INDUCTOR}/codegen/cpp_prefix.h", "#define X\n", True),
        (f"{INDUCTOR}/config.py", "size = 1\nclass triton:\n    cudagraphs = False  # off\n", False),
        (f"{INDUCTOR}/config.py", "size = 64\nclass triton:\n    cudagraphs = True\n", True),
        (f"{INDUCTOR}/compile_fx.py", "import a\ndef cudagraphify(): 1\ndef fx_codegen_and_compile(): 2\n", False),
        (f"{INDUCTOR}/compile_fx.py", "import a\ndef cudagraphify(): 2\ndef fx_codegen_and_compile(): 1\n", True),
        (f"{INDUCTOR}/compile_fx.py", "import b\ndef cudagraphify(): 1\ndef fx_codegen_and_compile(): 1\n", True),
    ],
)
def test_what_is_not_known_to_work_at_compile_time_only_acts_at_run_time(sides, name, content, acts):
    base, new, files = sides({name: content})
    assert (files, acting(base, new, files)) == ([name], [name] * acts)


@pytest.mark.parametrize(
    ("content", "changes"),
    [("# more\nfuse = True\n", False), ("fuse = True\ndef unused(): 1\n", False), ("fuse = False\n", True)],
)
def test_compile_times_may_differ_where_a_file_says_something_else(sides, content, changes):
    assert changes_compiling(*sides({f"{INDUCTOR}/scheduler.py": content})) is changes
