"""`inductor-watch check` from end to end: a real repository of the installed torch's files, real compilations on a CPU."""

from __future__ import annotations

import json

import pytest

from collector.bundle import CENSUS, read_bundle
from db.engine import open_store
from db.nights import find_runs
from tests.command_line import call, is_one_line, tell
from tests.jobs.repositories import commit, installed, run_git

MODEL = "tests.collector.census.small_models:net"
INDUCTOR = "torch/_inductor"


@pytest.fixture(scope="module")
def pytorch(tmp_path_factory):
    """A clone with files of the installed torch on `main`, and a branch with a comment and one that fuses less."""
    folder, names = tmp_path_factory.mktemp("clone"), [f"{INDUCTOR}/{name}.py" for name in ("scheduler", "choices")]
    scheduler, choices = (installed(name).read_text() for name in names)
    assert "> config.max_fusion_size" in choices
    commit(folder, dict(zip(names, (scheduler, choices), strict=True)), "main")
    commit(folder, {names[0]: f"{scheduler}# A comment.\n"}, "comment")
    run_git(folder, "checkout", "-q", "main")
    commit(folder, {names[1]: choices.replace("> config.max_fusion_size", "> 1")}, "unfused")
    run_git(folder, "checkout", "-q", "main")
    return folder


@pytest.fixture
def check(tmp_path, pytorch):
    """Checks a branch against main, in a folder of its own."""
    places = {name: str(tmp_path / name.lower()) for name in ("HOME", "INDUCTOR_WATCH_OVERLAYS")}
    options = ["--repo", pytorch, "--wheel-commit", "main", "--model", MODEL, "--device", "cpu"]
    words = [*options, "--config", "triton", "--samples", "5"]
    return lambda new, *more: call("check", "main", new, *words, *more, folder=tmp_path, **places)


def measured(folder):
    """By branch the measurements of each run but the censuses, in the order of the runs."""
    runs: dict[str, list[list]] = {}
    for contents in map(read_bundle, sorted((folder / "runs").glob("*.gz"))):
        if contents.header.trigger != CENSUS:
            assert contents.header.trigger == "check"
            runs.setdefault(contents.header.branch, []).append(contents.measurements)
    return runs


def test_a_comment_changes_no_code_and_nothing_is_measured(tmp_path, pytorch, check):
    done = check("comment", "--minutes", "8", "--format", "json")
    assert done.returncode == 0, tell(done)
    document = json.loads(done.stdout)
    keys = ("exit_code", "cells", "census", "same_code", "timed", "open", "files", "acting", "rounds")
    told = {name: document["check"][name] for name in keys}
    assert told == dict.fromkeys(keys, 0) | {"cells": 1, "census": 1, "same_code": 1, "files": 1, "acting": []}
    (cell,) = document["cells"]
    assert (cell["model"], cell["verdict"]) == (MODEL, "unchanged")
    assert f"unchanged: user/{MODEL} inference float32 cpu bs1 triton, same code" in done.stderr
    assert "census: 1 unchanged, 0 with other code, 0 not known" in done.stderr
    assert not measured(tmp_path)
    with open_store(tmp_path / "inductor-watch.db", write=False).connect() as connection:
        runs = find_runs(connection)
    assert {run.branch: run.commit for run in runs} == {
        branch: run_git(pytorch, "rev-parse", branch) for branch in ("main", "comment")
    }
    assert {run.trigger for run in runs} == {CENSUS}


@pytest.mark.slow
def test_other_code_is_timed_in_turn_and_a_report_is_written(tmp_path, check):
    done = check("unfused", "--minutes", "3", "--format", "markdown", "--output", "answer.md")
    assert done.returncode in (0, 1, 3), tell(done)  # how much slower it is depends on this machine
    text = (tmp_path / "answer.md").read_text()
    assert "### How it was checked" in text
    assert "0 with the same code and not timed, 1 timed" in text
    assert f"other code: user/{MODEL}" in done.stderr
    timed = {branch: [run for run in runs if run[0].samples] for branch, runs in measured(tmp_path).items()}
    assert timed["main"] and timed["unfused"]
    codes = {branch: {one.code_id for run in runs for one in run} for branch, runs in timed.items()}
    assert [len(known) for known in codes.values()] == [1, 1]
    assert codes["main"] != codes["unfused"]


def test_a_ref_beside_an_option_is_refused_in_one_line(tmp_path, check):
    is_one_line(check("comment", "--against", "+combo_kernels=true"), 2, "--against takes one ref, or none")
    assert not list(tmp_path.glob("*.db"))
