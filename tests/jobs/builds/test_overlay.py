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
from collector.errors import ConfigError
from jobs.bisect.judges import Reading
from jobs.bisect.sources import Overlays
from jobs.builds.options import BuildError, SourceOptions
from jobs.builds.overlay import Wheel, make_overlay
from jobs.pool.child import ChildError, Request
from jobs.pool.requested_options import ExecutionOptions, RequestedOptions, RunNames, Selection
from jobs.pool.testbeds import find_testbeds
from tests.command_line import call, is_one_line, tell
from tests.jobs.git.repositories import run_git

FILES = {
    "torch/__init__.py": "",
    "torch/_inductor/config.py": "fuse = True\n",
    "torch/_inductor/old.py": "",
    "torch/csrc/a.cpp": "",
    "test/test_torch.py": "",
}


def commit(folder, files, branch):
    run_git(folder, "checkout", "-q", "-B", branch)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if content is None else path.write_text(content)
    run_git(folder, "add", "--all")
    run_git(folder, "commit", "-q", "--allow-empty", "-m", f"On {branch}")
    return run_git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "pytorch"
    folder.mkdir()
    run_git(folder, "init", "-q", "-b", "main", ".")
    commit(folder, FILES, "main")
    return folder


@pytest.fixture
def wheel(tmp_path, repo):
    folder = tmp_path / "site"
    shutil.copytree(repo / "torch", folder / "torch", ignore=shutil.ignore_patterns("csrc"))
    (folder / "torch" / "lib").mkdir()
    (folder / "torch" / "lib" / "libtorch.so").write_text("library")
    return Wheel(folder, "9.1", run_git(repo, "rev-parse", "HEAD"))


def made(tmp_path, wheel, source, **how):
    return make_overlay(source, tmp_path / "overlays", wheel=wheel, **how)


def read(overlay, name):
    return (overlay.folder / "torch" / name).read_text()


def test_files_that_differ_come_from_git_and_all_others_are_the_wheels(tmp_path, repo, wheel):
    changed = {
        "torch/_inductor/config.py": "fuse = False\n",
        "torch/_inductor/new/a.py": "new",
        "test/test_torch.py": "x",
    }
    sha = commit(repo, {**changed, "torch/_inductor/old.py": None}, "less")
    overlay = made(tmp_path, wheel, f"{repo}@less")
    assert (overlay.commit, overlay.branch, overlay.title) == (sha, "less", "On less")
    assert (overlay.files, overlay.left_out, overlay.wheel_commit) == (3, 0, wheel.commit)
    assert read(overlay, "_inductor/config.py") == "fuse = False\n"
    assert read(overlay, "_inductor/new/a.py") == "new"
    assert not (overlay.folder / "torch/_inductor/old.py").exists()
    assert read(overlay, "lib/libtorch.so") == "library"
    assert (overlay.folder / "torch" / "__init__.py").is_symlink()
    assert (wheel.folder / "torch/_inductor/config.py").read_text() == "fuse = True\n"


def test_equal_content_is_one_overlay_and_a_half_made_one_is_none(tmp_path, repo, wheel, monkeypatch):
    commit(repo, {"torch/_inductor/config.py": "fuse = 1\n"}, "one")
    commit(repo, {"test/test_torch.py": "y"}, "two")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
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
        ("main", None, "write REPO@REF"),
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
    """A clone with the Python files of the installed torch, and a branch that fuses less."""
    folder, installed = tmp_path_factory.mktemp("clone"), Path(torch.__file__).parent
    run_git(folder, "init", "-q", "-b", "main", ".")
    for name in ("_inductor", "_dynamo"):
        shutil.copytree(installed / name, folder / "torch" / name, ignore=shutil.ignore_patterns("__pycache__"))
    commit(folder, {}, "main")
    config = (installed / "_inductor" / "config.py").read_text()
    assert "\nmax_fusion_size = 64\n" in config
    commit(
        folder, {"torch/_inductor/config.py": config.replace("max_fusion_size = 64", "max_fusion_size = 63")}, "less"
    )
    return folder


MODEL = "import torch\nfrom torch import nn\ndef small():\n    return nn.Linear(4, 4), (torch.randn(1, 4),)\n"


def test_a_run_of_a_source_compiles_with_its_inductor_and_bears_its_name(tmp_path, pytorch):
    (tmp_path / "own.py").write_text(MODEL)
    words = ["--model", "own:small", "--device", "cpu", "--config", "triton", "--samples", "5", "--no-store"]
    source = ["--source", f"{pytorch}@less", "--wheel-commit", "main", "--overlays", "overlays"]
    done = call("run", *words, *source, folder=tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    assert done.returncode == 0, tell(done)
    (bundle,) = (tmp_path / "runs").glob("*.gz")
    contents = read_bundle(bundle)
    sha = run_git(pytorch, "rev-parse", "less")
    assert (contents.header.branch, contents.header.commit) == ("less", sha)
    assert contents.header.commit_title == "On less"
    assert {program["max_fusion_size"] for program in contents.programs.values()} == {63}
    environments = [data for data in contents.environments.values() if "source" in data]
    assert environments
    assert all(
        data["source"] == f"1 files of {sha[:10]} over {torch.version.git_version[:10]}" for data in environments
    )
    assert json.dumps(contents.header.asked)


def test_options_of_a_source_go_with_one(tmp_path):
    is_one_line(call("run", "--model", "x:y", "--python-only", folder=tmp_path), 2, "go with --source")
    done = call("nightly", "--source", "a@b", "--executor", "ray", folder=tmp_path)
    is_one_line(done, 2, "--source measures on this host")


def test_bisect_measures_each_commit_with_its_own_overlay(tmp_path, pytorch, monkeypatch):
    asked = []

    def measure_in(python, request, folder, log):
        asked.append((python, request, folder))
        raise ChildError("nothing is measured")

    monkeypatch.setattr("jobs.bisect.sources.measure_in", measure_in)
    request = Request(Selection(), ("triton",), RunNames(branch="bisect"), RequestedOptions())
    overlays = tmp_path / "overlays"
    options = SourceOptions(wheel_commit="main", overlays=overlays)
    less = run_git(pytorch, "rev-parse", "less")
    with pytest.raises(ChildError):
        Overlays(pytorch, options, request, "compiled_ms", tmp_path).measure(less, 2)
    ((python, request, folder),) = asked
    assert (python, folder) == (Path(sys.executable), tmp_path / less[:12] / "2")
    assert (request.names.branch, request.names.commit) == ("bisect", less)
    assert "max_fusion_size = 63" in Path(request.requested.execution.overlay, "torch/_inductor/config.py").read_text()


#: What a commit after `less` changes, and whether it may then have the code of a commit before it.
AFTER = {
    "comment": ("torch/_inductor/scheduler.py", "# A comment.\n"),
    "compiling": ("torch/_inductor/scheduler.py", "flag = 1\n"),
    "running": ("torch/_inductor/runtime/hints.py", "flag = 1\n"),
    "nothing": ("test/test_torch.py", "y"),
}


def test_bisect_takes_a_commit_of_the_same_program_for_one_it_has_measured(tmp_path, pytorch, monkeypatch):
    shas = {name: run_git(pytorch, "rev-parse", name) for name in ("main", "less")}
    for name, (path, text) in AFTER.items():
        run_git(pytorch, "checkout", "-q", "less")
        before = (pytorch / path).read_text() if (pytorch / path).exists() else ""
        shas[name] = commit(pytorch, {path: before + text}, name)
    compiled = []

    def read_run(python, request, bundles, metric, folder):
        assert request.requested.settings.code_only
        compiled.append(bundles)
        return Reading("pass", None, "", "", code="new")

    monkeypatch.setattr("jobs.bisect.sources.read_run", read_run)
    options = SourceOptions(wheel_commit="main", overlays=tmp_path / "overlays")
    request = Request(Selection(), ("triton",), RunNames(branch="bisect"), RequestedOptions())

    def same(name, metric="compiled_ms", codes=("old", "new")):
        known = {shas["main"]: codes[0], shas["less"]: codes[1]}
        return Overlays(pytorch, options, request, metric, tmp_path).same_as(shas[name], known)

    assert [same("nothing"), same("nothing", "status")] == [shas["less"]] * 2
    assert not compiled
    assert [same("comment"), same("compiling")] == [shas["less"]] * 2
    assert compiled == [tmp_path / shas[name][:12] / "code" for name in ("comment", "compiling")]
    assert [same("running"), same("comment", "compile_cold_s"), same("comment", codes=("new", "new"))] == [None] * 3
    assert [same("compiling", codes=codes) for codes in (("old", "other"), (None, None))] == [None] * 2
    assert len(compiled) == 3


def test_a_run_is_not_resumed_without_the_overlay_that_it_began_with(tmp_path):
    with pytest.raises(ConfigError, match="gone, from which torch was imported"):
        find_testbeds("cpu", ExecutionOptions(overlay=str(tmp_path / "gone")))
