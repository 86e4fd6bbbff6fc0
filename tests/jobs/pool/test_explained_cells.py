"""Which part of the compiler a stored cell fails with: torch's bisector over a real fault, and what is refused."""

from __future__ import annotations

import json

import pytest
from torch import version

from collector.bundle import read_bundle
from collector.failures import Explanation
from collector.settings import Settings
from collector.vocabulary import Config, Status
from db.engine import open_store
from db.queries import details
from jobs.builds.overlay import make_overlay
from jobs.plan.spared_cells import copy_for
from jobs.pool.resuming import find_night
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.command_line import call, is_one_line, tell
from tests.dashboard import stores
from tests.factories import cell, failing, header, passing, write_bundle
from tests.jobs.repositories import commit, installed

MODEL = """
import torch
from torch import nn

def gate():
    return nn.Sequential(nn.Linear(16, 16), nn.Hardsigmoid()), (torch.randn(4, 16),)
"""
#: What a commit adds to Inductor's decompositions.
FAULT = "\ndecompositions[torch.ops.aten.hardsigmoid.default] = lambda x: x * 1.5\n"
FILE = "torch/_inductor/decomposition.py"


def own(config, model="own:gate"):
    return cell(model, config, suite="user", dtype="float32", device="cpu", batch_size=4)


WRONG, SAME, OTHER = own(Config(template="triton")), own(Config()), own(Config(template="freezing"))
FINE = own(Config(template="triton"), "own:fine")
EAGER = own(Config(backend="aot_eager"), "own:other")


@pytest.fixture(scope="module")
def overlay(tmp_path_factory):
    """The installed torch with one wrong decomposition, as a commit of a clone."""
    folder, right = tmp_path_factory.mktemp("clone"), installed(FILE).read_text()
    commit(folder, {FILE: right}, "main")
    commit(folder, {FILE: right + FAULT}, "wrong")
    return make_overlay(f"{folder}@wrong", tmp_path_factory.mktemp("overlays"), wheel_commit="main")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, overlay):
    """A database of a run by another torch, of one without options and of one in which some cells failed."""
    folder = tmp_path_factory.mktemp("failed")
    execution = ExecutionOptions(workers=2, overlay=str(overlay.folder), source=str(overlay))
    asked = RequestedOptions(Settings(rounds=5, warmups=1), execution).to_json()
    wrong = failing(WRONG, Status.FAIL_ACCURACY)
    measured = [wrong, copy_for(SAME, wrong), failing(OTHER), passing(FINE), failing(EAGER, Status.CRASHED)]
    bundles = []
    runs = {"r2": ("f" * 40, [failing(WRONG)]), "r3": (None, [failing(WRONG)]), "r1": (version.git_version, measured)}
    for minutes, (run_id, (torch_git, items)) in enumerate(runs.items()):
        how = torch_git and asked | {"torch_git": torch_git}
        bundles.append(write_bundle(folder / "runs", header(run_id, minutes=minutes, asked=how), items))
    stores.store(folder / "watch.db", bundles)
    (folder / "own.py").write_text(MODEL)
    return folder


@pytest.fixture
def explain(folder, overlay):
    """Calls the verb in the folder of the database."""
    environ = {"INDUCTOR_WATCH_OVERLAYS": str(overlay.folder.parent)}
    return lambda *words: call("explain", *words, "--db", "watch.db", folder=folder, **environ)


def test_the_fault_of_a_commit_is_named_and_kept(folder, explain):
    done = explain("latest", "user/own:gate", "--config", "triton", "--json")
    assert done.returncode == 0, tell(done)
    line = "torch's compiler bisector names: aot_eager_decomp_partition, decomposition, aten.hardsigmoid.default"
    explained = json.loads(done.stdout)["explained"]
    assert (explained["status"], explained["unfinished"]) == ("fail_accuracy", "")
    assert call("ingest", "runs", "--db", "new.db", folder=folder).returncode == 0
    for database in ("watch.db", "new.db"):
        with open_store(folder / database, write=False).connect() as conn:
            explanation = Explanation.of(details.measurement(conn, "r1", WRONG.cell_id).details)
        assert explanation.to_json() == explained
        assert str(explanation) == line
    contents = read_bundle(folder / "runs" / "r1.jsonl.gz")
    named = {item.cell for item in contents.latest().values() if Explanation.of(item.details)}
    assert named == {WRONG, SAME}
    assert contents.finished_at
    assert not find_night(folder / "runs", "r1")  # nothing for `resume`
    assert Explanation.of({"explained": {"backend": "inductor", "of a newer version": 1}}) == Explanation("inductor")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["r1", "own:fine"], "inference float32 triton: pass): `explain` takes a cell that ended in fail_accuracy, "),
        (["r1", "own:gate"], "3 cells of own:gate failed in r1: choose with --config"),
        (["r1", "own:other"], "takes back-end inductor only"),
        (["r1", WRONG.cell_id], "user/own:gate is a model of your own that nothing here defines"),
        (["r2", "own:gate"], "measures torch ffffffffffff, installed is"),
        (["r3", "own:gate"], "lacks"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(explain, words, said):
    is_one_line(explain(*words), 2, said)
